"""The schedules by rule, as the floor for what nobody tuned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tvm.ir.transform import module_pass

from cluster.app.passes.base import ModulePass
from cluster.app.passes.gate import Gate, gate
from cluster.app.passes.roofline import Roofline
from spaces.deploy.provenance import Origin, open_functions, put
from spaces.design_space.knob_space import KnobSpace
from spaces.ir import tvm_compat
from spaces.ir.schedules import InvalidCandidate, task_module
from spaces.ir.symbolic import symbols
from spaces.lowering.extract_tasks import task_of
from spaces.passes.dlight import schedules
from spaces.targets.backends import backend_of
from spaces.targets.target import resolve_target
from spaces.templates.registry import templates_of
from tuner.errors import TunerError, UsageError, first_line
from tuner.record import Status
from tuner.task import Task


@module_pass(opt_level=0, name="Defaults")
class Defaults(ModulePass):
    """Schedules without a search whatever nobody has scheduled.

    On a CPU a program gets the setting of our templates that is estimated to be the fastest, on a
    GPU the schedule of TVM's dlight rules. (Of dlight's rules for CPUs one unrolls whole products,
    for which LLVM takes minutes.) `missed` names the programs that nothing fits.

    With `within`, each is timed, and put in only where it takes at most so many times what the
    program's operations and bytes take on this machine (`cluster.app.passes.roofline`): what these
    leave slow stays open, to be tuned.

    Args:
        target: a TVM target, a kind, or JSON.
        within: factor on the program's floor; None puts in all, and times nothing.

    Raises:
        TunerError: when the pass runs, if something is to be timed, and cannot be on this machine.
    """

    def __init__(self, target: Any, *, within: float | None = None) -> None:
        if within is not None and not within >= 1:
            raise UsageError(f"within: {within!r} is no factor from 1 on")
        tvm_compat.keep_error_kind(TunerError)
        self.target = resolve_target(str(target))
        self.missed: dict[str, str] = {}
        self._within = within
        self._by_rule = _by_template if backend_of(self.target).on_host else _by_dlight

    def transform_module(self, module: Any, _context: Any) -> Any:
        """See `tvm.ir.transform.module_pass`."""
        found: dict[str, tuple[Any, Origin]] = {}
        tasks: dict[str, Task] = {}
        self.missed = {}
        for name, function in open_functions(module):
            if symbols(function):
                self.missed[name] = "it has symbolic dimensions: it runs as it is"
                continue
            tasks[name] = task_of(function, self.target, name=name)
            if (made := self._by_rule(tasks[name])) is not None:
                found[name] = made
            else:
                self.missed[name] = "no rule fits: it runs as it is"
        return put(module, found if self._within is None else self._fast(found, tasks))

    def _fast(
        self, found: Mapping[str, tuple[Any, Origin]], tasks: Mapping[str, Task]
    ) -> dict[str, tuple[Any, Origin]]:
        """Those that are near their floor."""
        fast: dict[str, tuple[Any, Origin]] = {}
        with gate(self.target) as checked:
            if checked is None and found:
                raise TunerError("within: kernels of the target cannot be timed on this machine")
            if checked is not None:
                roofline = Roofline(self.target, checked, self._default)
                for name, made in found.items():
                    if (kept := self._near(name, tasks[name], made, checked, roofline)) is not None:
                        fast[name] = kept
        return fast

    def _near(
        self, name: str, task: Task, made: tuple[Any, Origin], checked: Gate, roofline: Roofline
    ) -> tuple[Any, Origin] | None:
        function, origin = made
        measured = checked.measured(task, function)
        if measured.status is not Status.OK or measured.latency_s is None:
            self.missed[name] = f"{origin.source}: {first_line(ValueError(measured.error))}"
            return None
        floor = roofline.floor(task)
        times = measured.latency_s / floor.seconds
        said = f"{times:.3g} times what its {floor.bound} take, {floor.seconds:.3g} s"
        if self._within is not None and times > self._within:
            self.missed[name] = f"its default takes {said}"
            return None
        return function, replace(origin, why=f"it takes {said}", latency_s=measured.latency_s)

    def _default(self, task: Task) -> Any:
        made = self._by_rule(task)
        return None if made is None else made[0]


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
