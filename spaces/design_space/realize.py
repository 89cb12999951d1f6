"""From a candidate to the scheduled program that it stands for."""

from __future__ import annotations

import json
from typing import Any

from spaces.design_space.knob_space import KnobSpace
from spaces.design_space.schedule_rules import RULES_PREFIX, postprocess, task_rules
from spaces.intrinsics.vnni_registry import register_named
from spaces.ir.schedules import InvalidCandidate, new_schedule, task_module
from spaces.templates.registry import template_named
from tuner.candidate import Candidate, CandidateKind, generic_of, knobs_of
from tuner.errors import first_line
from tuner.task import Task

DEFAULT_SPACE = "default"
"""Name of the space of default schedules."""


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
    if candidate.kind is CandidateKind.TRACE:
        return _replayed(task, candidate.payload, candidate.space)
    if candidate.kind is CandidateKind.KNOBS:
        if candidate.trace:
            return _replayed(task, candidate.trace, candidate.space)
        return _of_template(task, candidate)
    raise InvalidCandidate(f"cannot realise a candidate of kind {candidate.kind}")


def _replayed(task: Task, payload: str, space: str) -> Any:
    from tvm.s_tir.schedule import Trace

    schedule = new_schedule(task_module(task.module))
    register_named(payload)
    try:
        Trace.apply_json_to_schedule(json.loads(payload), schedule)
    except Exception as error:  # TVM raises whatever its C++ side threw
        raise InvalidCandidate(f"trace does not apply: {first_line(error)}") from error
    if space.startswith(RULES_PREFIX):
        postprocess(schedule, task_rules(task.module, task.target))
    return schedule


def _of_template(task: Task, candidate: Candidate) -> Any:
    template = template_named(task, candidate.space)
    if template is None:
        raise InvalidCandidate(f"{task.name} has no template {candidate.space}")
    return KnobSpace(task, template).write(knobs_of(candidate) or {})


def trace_text(task: Task, candidate: Candidate) -> str:
    """A candidate's scheduling instructions, as readable Python."""
    return "\n".join(realize(task, candidate).trace.as_python())
