"""Schedules of programs that share their largest block, and differ in what is fused to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from cluster.app.passes.sources import Schedules
from spaces.deploy.provenance import Origin
from spaces.design_space.realize import realize
from spaces.ir.schedules import InvalidCandidate, new_schedule, task_module
from spaces.targets.target import parse_target
from tuner.candidate import Candidate, CandidateKind
from tuner.errors import first_line
from tuner.task import Task

_TRIED = 4
"""Schedules of other programs that are tried for one, at most."""


class Anchors:
    """The winners of some sources, by the largest block of their programs.

    Two blocks are the same where TVM's databases take them for the same anchor block.

    Args:
        target: canonical JSON.
    """

    def __init__(self, sources: Sequence[Schedules], target: str) -> None:
        self._target = parse_target(target)
        self._known: dict[str, list[tuple[str, Task, Candidate]]] = {}
        for source in sources:
            for task, candidate in source.others(target):
                if (key := anchor_key(task)) is not None:
                    self._known.setdefault(key, []).append((source.name, task, candidate))

    def any_like(self, task: Task) -> bool:
        """Whether there is a schedule to be tried on a task's program."""
        return anchor_key(task) in self._known

    def attempts(self, task: Task) -> Iterator[tuple[Any, Origin] | str]:
        """Scheduled functions to be checked, best first; a text where a schedule does not fit."""
        for source, other, candidate in self._known.get(anchor_key(task) or "", [])[:_TRIED]:
            try:
                function = self._schedule(task, other, candidate)
            except Exception as error:  # TVM raises whatever its C++ side threw
                yield f"the schedule of {other.name} does not fit: {first_line(error)}"
                continue
            why = f"the schedule of {other.name}, whose largest block is the same; it was checked"
            yield function, Origin("anchor", source, why)

    def _schedule(self, task: Task, other: Task, candidate: Candidate) -> Any:
        """A program with the schedule of another.

        A template makes its own schedule of any program that it fits, for the same knobs. Of any
        other schedule the instructions are applied as far as blocks are there; TVM inlines or
        parallelises the rest.
        """
        if candidate.kind is CandidateKind.KNOBS:
            knobs = Candidate(candidate.kind, candidate.payload, candidate.space)
            return realize(task, knobs).mod["main"]
        from tvm.s_tir.meta_schedule.trace_apply import schedule_using_anchor_trace

        trace = realize(other, candidate).trace
        if not trace.insts:
            raise InvalidCandidate("it has no instructions")
        schedule = new_schedule(task_module(task.module))
        schedule_using_anchor_trace(schedule, trace, self._target)
        return schedule.mod["main"]


def anchor_key(task: Task) -> str | None:
    """A text that is equal for programs with the same largest block; None where there is none."""
    import tvm_ffi
    from tvm.s_tir.analysis import find_anchor_sblock

    block = find_anchor_sblock(task_module(task.module))
    # Its buffers are free: what they are called, and where they come from, does not count.
    return None if block is None else f"{tvm_ffi.structural_hash(block, map_free_vars=True):x}"
