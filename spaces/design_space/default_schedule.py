"""The schedule of a task before any search: valid, and the one that all others must beat."""

from __future__ import annotations

from spaces.design_space.realize import DEFAULT_SPACE
from spaces.ir.schedules import canonical_payload, new_schedule, task_module
from spaces.passes.dlight import schedules
from spaces.targets.backends import backend_of
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
    module = task_module(task.module)
    made = next((found for _, found in schedules(module, task.target)), None)
    return canonical_payload((made or new_schedule(module)).trace)
