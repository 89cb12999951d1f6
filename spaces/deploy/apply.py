"""The pass that puts the best schedules into a lowered module."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from spaces.deploy.apply_kernel_sets import apply_sets
from spaces.design_space.realize import realize
from spaces.ir import tvm_compat
from spaces.ir.schedules import InvalidCandidate
from spaces.lowering.extract_tasks import is_scheduled, key_of, task_of
from tuner.candidate import Candidate
from tuner.dynamic.kernel_set import KernelSet
from tuner.errors import TunerError
from tuner.task import Task

NO_SETS: Mapping[str, tuple[Task, KernelSet]] = MappingProxyType({})
"""The kernel sets of a model without symbolic dimensions."""


def apply_best(
    best: Mapping[str, Candidate],
    target_json: str,
    sets: Mapping[str, tuple[Task, KernelSet]] = NO_SETS,
) -> Any:
    """A TVM pass, IRModule to IRModule, that swaps in a schedule for each program that has one.

    Such a function keeps its name and attributes and is marked as scheduled. All other functions,
    including those that are scheduled already, stay as they are.

    Args:
        best: candidates by the key of their task.
        target_json: canonical JSON of the target that the tasks were extracted for.
        sets: for programs with symbolic dimensions, by the key of their task, the task and the
            kernels that serve its shapes.

    Raises:
        TunerError: when the pass runs, if a candidate does not apply to its task any more.
    """
    from tvm.ir import IRModule
    from tvm.ir.transform import module_pass

    tvm_compat.keep_error_kind(TunerError)

    def apply(module: Any, _context: Any) -> Any:
        scheduled = {}
        chosen = {}
        for name, function in tvm_compat.prim_funcs(module):
            key = None if is_scheduled(function) else key_of(function, target_json)
            candidate = best.get(key) if key is not None else None
            if key is not None and key in sets:
                chosen[name] = sets[key]
            elif candidate is not None:
                scheduled[name] = _scheduled(name, function, candidate, target_json)
        # A copy: passes must leave the module they are given as it was.
        result = IRModule(module.functions, attrs=module.attrs)
        for name, function in scheduled.items():
            result.update_func(result.get_global_var(name), function)
        return apply_sets(result, chosen) if chosen else result

    return module_pass(apply, opt_level=0, name="ApplyBest")


def _scheduled(name: str, function: Any, candidate: Candidate, target_json: str) -> Any:
    try:
        schedule = realize(task_of(function, target_json, name=name), candidate)
    except InvalidCandidate as error:
        raise TunerError(f"the stored schedule of {name} does not apply: {error}") from error
    body = tvm_compat.with_attrs_of(schedule.mod["main"], function)
    return body.with_attr(tvm_compat.IS_SCHEDULED, True)
