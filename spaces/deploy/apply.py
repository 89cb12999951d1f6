"""The pass that puts the best schedules into a lowered module."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from spaces.deploy.apply_kernel_sets import apply_sets
from spaces.deploy.provenance import Origin, open_functions, put
from spaces.design_space.realize import realize
from spaces.ir import tvm_compat
from spaces.ir.schedules import InvalidCandidate
from spaces.lowering.extract_tasks import key_of, task_of
from tuner.candidate import Candidate, CandidateKind, library_name
from tuner.dynamic.kernel_set import KernelSet
from tuner.errors import TunerError
from tuner.task import Task

NO_SETS: Mapping[str, tuple[Task, KernelSet]] = MappingProxyType({})
"""The kernel sets of a model without symbolic dimensions."""
NO_TASKS: Mapping[str, Task] = MappingProxyType({})
"""No tasks, by key."""


def apply_best(
    best: Mapping[str, Candidate],
    target_json: str,
    sets: Mapping[str, tuple[Task, KernelSet]] = NO_SETS,
    *,
    tasks: Mapping[str, Task] = NO_TASKS,
    source: str = "",
) -> Any:
    """A TVM pass, IRModule to IRModule, that swaps in a schedule for each program that has one.

    Such a function keeps its name and attributes, and is marked as scheduled, with its origin. All
    other functions, including those that are scheduled already, stay as they are.

    Args:
        best: candidates by the key of their task.
        target_json: canonical JSON of the target that the tasks were extracted for.
        sets: for programs with symbolic dimensions, by the key of their task, the task and the
            kernels that serve its shapes.
        tasks: as candidates were found for them, by key: a trace knows blocks by their names, which
            another module may have changed.
        source: where these come from, for `spaces.deploy.provenance.origins`.

    Raises:
        TunerError: when the pass runs, if a candidate does not apply to its task any more.
    """
    from tvm.ir.transform import module_pass

    tvm_compat.keep_error_kind(TunerError)

    def apply(module: Any, _context: Any) -> Any:
        scheduled, chosen = {}, {}
        for name, function in open_functions(module):
            key = key_of(function, target_json)
            if key in sets:
                chosen[name] = sets[key]
            elif (candidate := best.get(key)) is not None:
                task = tasks.get(key) or task_of(function, target_json, name=name)
                made = _schedule(name, task, candidate)
                scheduled[name] = made, origin_of(candidate, source)
        result = put(module, scheduled)
        return with_sets(result, chosen, source) if chosen else result

    return module_pass(apply, opt_level=0, name="ApplyBest")


def origin_of(candidate: Candidate, source: str, latency_s: float | None = None) -> Origin:
    """The origin of a program's own winner."""
    if candidate.kind is CandidateKind.LIBRARY:
        library = library_name(candidate.space)
        why = f"{library} was faster than all that were measured of this program"
        return Origin("library", source, why, latency_s)
    return Origin("tuned", source, "the fastest that was measured of this program", latency_s)


def with_sets(module: Any, chosen: Mapping[str, tuple[Task, KernelSet]], source: str) -> Any:
    """A module with the kernel sets of some of its functions, and their origin."""
    result = apply_sets(module, chosen)
    why = "the kernels that serve its shapes"
    return put(result, {n: (result[n], Origin("tuned", source, why)) for n in chosen})


def _schedule(name: str, task: Task, candidate: Candidate) -> Any:
    try:
        schedule = realize(task, candidate)
    except InvalidCandidate as error:
        raise TunerError(f"the stored schedule of {name} does not apply: {error}") from error
    return schedule.mod["main"]
