"""The schedules by rule, as the floor for what nobody tuned."""

from __future__ import annotations

from typing import Any

from tvm.ir.transform import module_pass

from cluster.passes.provenance import Origin, open_functions, put
from spaces.design_space.knob_space import KnobSpace
from spaces.ir.schedules import InvalidCandidate, task_module
from spaces.ir.symbolic import symbols
from spaces.lowering.extract_tasks import task_of
from spaces.passes.dlight import schedules
from spaces.targets.backends import backend_of
from spaces.targets.target import resolve_target
from spaces.templates.registry import templates_of
from tuner.task import Task


@module_pass(opt_level=0, name="Defaults")
class Defaults:
    """Schedules without a search whatever nobody has scheduled.

    On a CPU a program gets the setting of our templates that is estimated to be the fastest, on a
    GPU the schedule of TVM's dlight rules. (Of dlight's rules for CPUs one unrolls whole products,
    for which LLVM takes minutes.) `missed` names the programs that nothing fits.

    Args:
        target: a TVM target, a kind, or JSON.
    """

    def __init__(self, target: Any) -> None:
        self.target = resolve_target(str(target))
        self.missed: dict[str, str] = {}

    def transform_module(self, module: Any, _context: Any) -> Any:
        """See `tvm.ir.transform.module_pass`."""
        found: dict[str, tuple[Any, Origin]] = {}
        self.missed = {}
        by_rule = _by_template if backend_of(self.target).on_host else _by_dlight
        for name, function in open_functions(module):
            if symbols(function):
                self.missed[name] = "it has symbolic dimensions: it runs as it is"
            elif (made := by_rule(task_of(function, self.target, name=name))) is not None:
                found[name] = made
            else:
                self.missed[name] = "no rule fits: it runs as it is"
        return put(module, found)


def _by_template(task: Task) -> tuple[Any, Origin] | None:
    """The schedule with the least estimate of all settings of all templates."""
    spaces = [KnobSpace(task, template) for template in templates_of(task)]
    for space in sorted(spaces, key=lambda space: space.least_s):
        if not space.ranked:
            continue
        try:
            schedule = space.write(space.describe(space.ranked[0]).candidate)
        except InvalidCandidate:
            continue
        why = "its setting with the least estimate, which nobody measured"
        return schedule.mod["main"], Origin("default", space.name, why)
    return None


def _by_dlight(task: Task) -> tuple[Any, Origin] | None:
    """The schedule of the first of dlight's rules that fits."""
    made = next(iter(schedules(task_module(task.module), task.target)), None)
    if made is None:
        return None
    rule, schedule = made
    return schedule.mod["main"], Origin("default", f"dlight {rule}", "by rule, not measured")
