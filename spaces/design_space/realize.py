"""From a candidate to the scheduled program that it stands for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from spaces.design_space.declared.spaces import find_declared_by_name
from spaces.design_space.knob_space import KnobSpace
from spaces.design_space.schedule_rules import RULES
from spaces.design_space.theirs import postprocess_theirs
from spaces.design_space.trace_space import TraceSpace
from spaces.intrinsics.registration import register_named
from spaces.ir.schedules import (
    InvalidCandidate,
    load_program,
    makes_program,
    new_schedule,
    replay,
    task_module,
)
from spaces.libraries.calls import make_call
from spaces.templates.base import FAMILY as TEMPLATE
from spaces.templates.registry import template_named
from tuner.candidate import Candidate, CandidateKind, family, generic_of, library_name
from tuner.source import Source
from tuner.task import DECLARED, Task

DEFAULT_SPACE = "default"
"""Name of the space of default schedules."""


def realize(task: Task, candidate: Candidate, postprocs: tuple[Source, ...] = ()) -> Any:
    """Schedule a task's program as a candidate says, post-processing included.

    Args:
        postprocs: a user's own, for candidates that are not written yet.

    Returns:
        A `tvm.s_tir.Schedule`: its `mod` is the scheduled module, its `trace` the instructions, in
        the form that TVM's databases keep; the trace of a kernel specialised for a shape is empty,
        and so is that of a library's function, and of a program that is made from settings.

    Raises:
        InvalidCandidate: the candidate cannot be scheduled.
        LayerFailed: a user's post-processor is at fault.
    """
    if candidate.kind is CandidateKind.SPECIALISED:
        from spaces.ir.symbolic import specialise

        kernel, shape = generic_of(candidate)
        return new_schedule(specialise(realize(task, kernel, postprocs).mod, dict(shape)))
    if candidate.kind is CandidateKind.LIBRARY:
        return _calling(task, candidate)
    if candidate.holds_program:
        return new_schedule(load_program(candidate.trace))
    if candidate.trace:
        return _replay(task, candidate.trace)
    schedule = _write(task, candidate)
    postprocess_theirs(schedule, postprocs)
    return schedule


def _calling(task: Task, candidate: Candidate) -> Any:
    from tvm.ir import IRModule

    program = task_module(task.module)["main"]
    return new_schedule(IRModule({"main": make_call(program, candidate)}))


def _write(task: Task, candidate: Candidate) -> Any:
    write = _WRITERS.get(family(candidate.space))
    if write is not None:
        return write(task, candidate)
    if candidate.kind is CandidateKind.TRACE:
        return _replay(task, candidate.payload)
    raise InvalidCandidate(f"cannot realise a candidate of kind {candidate.kind}")


def _replay(task: Task, payload: str) -> Any:
    register_named(payload)
    return replay(task_module(task.module), payload)


def _by_rules(task: Task, candidate: Candidate) -> Any:
    register_named(candidate.payload)
    return TraceSpace(task).write(candidate)


def _by_template(task: Task, candidate: Candidate) -> Any:
    template = template_named(task, candidate.space)
    if template is None:
        raise InvalidCandidate(f"{task.name} has no template {candidate.space}")
    return KnobSpace(task, template).write(candidate)


def _by_declaration(task: Task, candidate: Candidate) -> Any:
    register_named(candidate.payload)
    return find_declared_by_name(task, candidate.space).write(candidate)


_WRITERS: Mapping[str, Callable[[Task, Candidate], Any]] = {
    RULES: _by_rules,
    TEMPLATE: _by_template,
    DECLARED: _by_declaration,
}
"""What writes the points of a space, by its family; traces of any other are replayed."""


def trace_text(task: Task, candidate: Candidate) -> str:
    """A candidate's scheduling instructions, as readable Python on a schedule `sch`.

    It runs where `T` is `tvm.script.tirx` and `tvm` is imported. TVM's text loses the types of
    indices, so that layouts that are changed may be refused, or differ in them.
    """
    if candidate.kind is CandidateKind.LIBRARY:
        return f"# no schedule: it calls {candidate.payload} of {library_name(candidate.space)}"
    schedule = realize(task, candidate)
    if makes_program(candidate, schedule):
        return f"# no schedule: {candidate.payload} makes\n{schedule.mod['main'].script()}"
    return "\n".join(schedule.trace.as_python())
