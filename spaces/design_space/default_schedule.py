"""The schedule of a task before any search: valid, and the one that all others must beat."""

from __future__ import annotations

from typing import Any

from spaces.design_space.realize import DEFAULT_SPACE
from spaces.ir.schedules import canonical_payload, new_schedule, task_module
from spaces.targets.backends import backend_of
from spaces.targets.target import parse_target
from tuner.candidate import Candidate, CandidateKind
from tuner.task import Task

_EMPTY_TRACE = "[[],[]]"


def default_candidate(task: Task) -> Candidate:
    """The default schedule of a task.

    On a CPU it is the program as lowered, which TVM compiles as it stands. On a GPU an unscheduled
    program does not run, so there it is the schedule of TVM's dlight rules.
    """
    payload = _EMPTY_TRACE
    if not backend_of(task.target).runs_unscheduled:
        payload = _dlight_trace(task)
    return Candidate(CandidateKind.TRACE, payload, DEFAULT_SPACE)


def _dlight_trace(task: Task) -> str:
    from tvm.s_tir import dlight

    module = task_module(task.module)
    target = parse_target(task.target)
    rules = (
        dlight.gpu.Matmul(),
        dlight.gpu.GEMV(),
        dlight.gpu.Reduction(),
        dlight.gpu.GeneralReduction(),
        dlight.gpu.Fallback(),
    )
    with target:
        for rule in rules:
            schedule: Any = rule.apply(module["main"], target, False)
            if schedule is not None:
                return canonical_payload(_single(schedule).trace)
    return canonical_payload(new_schedule(module).trace)


def _single(schedules: Any) -> Any:
    return schedules[0] if isinstance(schedules, list) else schedules
