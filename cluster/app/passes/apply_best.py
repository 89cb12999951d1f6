"""The pass that puts in the best schedules that runs and databases have, exact ones first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tvm.ir.transform import module_pass

from cluster.app.passes.anchors import Anchors
from cluster.app.passes.base import ModulePass
from cluster.app.passes.gate import Gate, gate
from cluster.app.passes.sources import Schedules, schedules_of
from spaces.deploy.apply import with_sets
from spaces.deploy.provenance import Origin, open_functions, put
from spaces.ir.symbolic import symbols
from spaces.lowering.extract_tasks import task_of
from spaces.targets.target import resolve_target
from tuner.dynamic.kernel_set import KernelSet
from tuner.errors import UsageError, first_line
from tuner.record import Status
from tuner.task import Task

_Chosen = dict[str, tuple[Task, KernelSet]]


@module_pass(opt_level=0, name="ApplyBest")
class ApplyBest(ModulePass):
    """Schedules the tensor programs of a lowered module that nobody has scheduled.

    For each program the sources are asked in the order given, for a schedule of this very program
    on a target like this one. Where none has one, the schedule of a program with the same largest
    block is tried, whose other parts differ: it is used once its output was found right.
    `tuner.passes.origins` tells which is which; `missed` says of each other why it has none.

    Args:
        sources: run folders and URLs, results of `tuner.tune`, folders of MetaSchedule's databases,
            or database objects.
        target: a TVM target, a kind, or JSON.
        anchor: whether schedules of other programs are tried.

    Raises:
        TunerError: a source holds nothing.
    """

    def __init__(self, *sources: Any, target: Any, anchor: bool = True) -> None:
        if not sources:
            raise UsageError("ApplyBest: name a run, or a database")
        self.target = resolve_target(str(target))
        self.missed: dict[str, str] = {}
        self._sources: Sequence[Schedules] = [schedules_of(where) for where in sources]
        self._anchor = anchor

    def transform_module(self, module: Any, _context: Any) -> Any:
        """See `tvm.ir.transform.module_pass`."""
        found: dict[str, tuple[Any, Origin]] = {}
        sets: dict[str, _Chosen] = {}
        left: list[tuple[str, Task]] = []
        self.missed = {}
        for name, function in open_functions(module):
            task = task_of(function, self.target, name=name)
            if symbols(function):
                self._find_set(name, task, sets)
            elif not self._find_exact(name, task, found):
                left.append((name, task))
        if self._anchor and left:
            self._find_anchors(left, found)
        else:
            self.missed |= {name: "no source has this program" for name, _ in left}
        result = put(module, found)
        for source, chosen in sets.items():
            result = with_sets(result, chosen, source)
        return result

    def _find_exact(self, name: str, task: Task, found: dict[str, tuple[Any, Origin]]) -> bool:
        for source in self._sources:
            if (known := source.exact(task)) is not None:
                found[name] = known.function, known.origin
                return True
        return False

    def _find_set(self, name: str, task: Task, sets: dict[str, _Chosen]) -> None:
        for source in self._sources:
            if (chosen := source.kernel_set(task)) is not None:
                sets.setdefault(source.name, {})[name] = chosen
                return
        self.missed[name] = "no source has kernels for its shapes"

    def _find_anchors(
        self, left: Sequence[tuple[str, Task]], found: dict[str, tuple[Any, Origin]]
    ) -> None:
        anchors = Anchors(self._sources, self.target)
        wanted = [(name, task) for name, task in left if anchors.any_like(task)]
        none = "no source has this program, or one with its largest block"
        self.missed |= {n: none for n, _ in left if n not in dict(wanted)}
        if not wanted:
            return
        with gate(self.target) as checked:
            for name, task in wanted:
                if checked is None:
                    self.missed[name] = "kernels of the target cannot be checked on this machine"
                else:
                    self._try(name, task, anchors, checked, found)

    def _try(
        self,
        name: str,
        task: Task,
        anchors: Anchors,
        checked: Gate,
        found: dict[str, tuple[Any, Origin]],
    ) -> None:
        """Use the first schedule of a similar program that gives the right output."""
        refused = "the schedules of similar programs do not fit"
        for attempt in anchors.attempts(task):
            if isinstance(attempt, str):
                refused = attempt
                continue
            function, origin = attempt
            measured = checked.measured(task, function)
            if measured.status is Status.OK:
                found[name] = function, replace(origin, latency_s=measured.latency_s)
                return
            refused = f"{origin.source}: {first_line(ValueError(measured.error))}"
        self.missed[name] = refused
