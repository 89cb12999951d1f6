"""From a candidate to the scheduled program that it stands for."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from spaces.design_space.schedule_rules import RULES_PREFIX, RuleSet, make_rules
from spaces.intrinsics.vnni_registry import register_named
from spaces.ir.schedules import InvalidCandidate, new_schedule, task_module
from tuner.candidate import Candidate, CandidateKind, generic_of
from tuner.errors import first_line
from tuner.task import Task

DEFAULT_SPACE = "default"
"""Name of the space of default schedules."""


@lru_cache(maxsize=128)
def task_rules(module_json: str, target_json: str) -> RuleSet:
    """The rules of a task, made once."""
    return make_rules(task_module(module_json), target_json)


def realize(task: Task, candidate: Candidate) -> Any:
    """Schedule a task's program as a candidate says, post-processing included.

    Returns:
        A `tvm.s_tir.Schedule`: its `mod` is the scheduled module, its `trace` the instructions, in
        the form that TVM's databases keep; the trace of a kernel specialised for a shape is empty.

    Raises:
        InvalidCandidate: the candidate cannot be scheduled.
    """
    if candidate.kind is CandidateKind.SPECIALISED:
        from spaces.ir.symbolic import specialised

        kernel, shape = generic_of(candidate)
        return new_schedule(specialised(realize(task, kernel).mod, dict(shape)))
    if candidate.kind is not CandidateKind.TRACE:
        raise InvalidCandidate(f"cannot realise a candidate of kind {candidate.kind}")
    from tvm.s_tir.schedule import Trace

    schedule = new_schedule(task_module(task.module))
    register_named(candidate.payload)
    try:
        Trace.apply_json_to_schedule(json.loads(candidate.payload), schedule)
    except Exception as error:  # TVM raises whatever its C++ side threw
        raise InvalidCandidate(f"trace does not apply: {first_line(error)}") from error
    if candidate.space.startswith(RULES_PREFIX):
        postprocess(schedule, task_rules(task.module, task.target))
    return schedule


def postprocess(schedule: Any, rules: RuleSet) -> None:
    """Apply a space's post-processors.

    Raises:
        InvalidCandidate: a post-processor refused the schedule; the error names it.
    """
    schedule.enter_postproc()
    for postproc in rules.postprocs:
        try:
            accepted = postproc.apply(schedule)
        except Exception as error:  # TVM raises whatever its C++ side threw
            raise InvalidCandidate(f"{_name(postproc)}: {first_line(error)}") from error
        if not accepted:
            raise InvalidCandidate(f"refused by {_name(postproc)}")


def trace_text(task: Task, candidate: Candidate) -> str:
    """A candidate's scheduling instructions, as readable Python."""
    return "\n".join(realize(task, candidate).trace.as_python())


def _name(postproc: Any) -> str:
    return type(postproc).__name__
