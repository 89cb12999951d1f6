"""From a lowered model to its tasks: distinct tensor programs, weighted by their calls."""

from __future__ import annotations

import fnmatch
import math
from collections import Counter
from dataclasses import replace
from typing import Any

from spaces.ir import tvm_compat
from spaces.ir.left_out import why_left
from spaces.ir.symbolic import specialise, symbols
from spaces.lowering.task_shapes import depending_on_data, shapes_of
from tuner.dynamic.shapes import merge_shapes, sample_shapes
from tuner.errors import TunerError
from tuner.task import Shapes, Task, task_key

_NAMES_SHOWN = 8
_COUNTED = 16
"""The most shapes for which operations are counted."""
_DEPENDS = "shapes in there follow from values that only a run knows"
_FEW = 64
"""The most elements of a tensor that is no work to write."""


def extract(
    lowered: Any, target_json: str, only: str | None = None, shapes: Shapes = ()
) -> list[Task]:
    """The tasks of a lowered module, in the order in which its calls first reach them.

    Equal programs are one task, under the name of the first; its weight is the number of calls to
    all of them. Functions that are scheduled already are left out, those that only write sizes into
    a tensor, and those that `describe_untuned` names.

    Args:
        lowered: a result of `spaces.lowering.lower.lower`.
        target_json: canonical JSON of the target.
        only: glob on names; None is all.
        shapes: instances of the model's symbolic dimensions.

    Raises:
        TunerError: `only` matches no task, or there is nothing to tune.
    """
    tasks: dict[str, Task] = {}
    calls, left = call_counts(lowered), depending_on_data(lowered, shapes)
    for name, count in calls.items():
        function = lowered[name]
        if is_scheduled(function) or not count or name in left or only_writes_sizes(function):
            continue
        if why_left(function):
            continue
        task = task_of(function, target_json, name=name, weight=count)
        task = set_shapes(task, shapes_of(lowered, name, shapes))
        known = tasks.get(task.key)
        tasks[task.key] = task if known is None else _heavier(known, task)
    if not tasks:
        why = describe_untuned(lowered, shapes)
        raise TunerError("the model holds nothing to tune" + (f": {why}" if why else ""))
    if only is None:
        return list(tasks.values())
    chosen = [t for t in tasks.values() if fnmatch.fnmatchcase(t.name, only)]
    if not chosen:
        shown = ", ".join(t.name for t in list(tasks.values())[:_NAMES_SHOWN])
        more = ", ..." if len(tasks) > _NAMES_SHOWN else ""
        raise TunerError(f"--only {only}: no task has such a name; there are {shown}{more}")
    return chosen


def describe_untuned(lowered: Any, shapes: Shapes = ()) -> str:
    """The message about functions that are not tuned, with the reasons; empty where there are
    none."""
    depending = depending_on_data(lowered, shapes)
    left: dict[str, list[str]] = {}
    for name in call_counts(lowered):
        if is_scheduled(lowered[name]) or only_writes_sizes(lowered[name]):
            continue
        why = _DEPENDS if name in depending else why_left(lowered[name])
        if why:
            left.setdefault(why, []).append(name)
    return "; ".join(_describe_reason(names, why) for why, names in left.items())


def _describe_reason(names: list[str], why: str) -> str:
    these = f"{len(names)} functions are left as they are"
    shown = ", ".join(names[:_NAMES_SHOWN]) + (", ..." if len(names) > _NAMES_SHOWN else "")
    return f"{'1 function is left as it is' if len(names) == 1 else these}, since {why}: {shown}"


def task_of(function: Any, target_json: str, *, name: str, weight: float = 1.0) -> Task:
    """The task of a PrimFunc, under a given name."""
    import tvm

    module = tvm_compat.normalize(function)
    static = not symbols(function)
    return Task(
        key=task_key(tvm_compat.structural_hash_hex(module), target_json),
        name=name,
        module=tvm.ir.save_json(module),
        target=target_json,
        weight=float(weight),
        flops=_flops(module) if static else 0.0,
    )


def set_shapes(task: Task, shapes: Shapes) -> Task:
    """A task with the shapes it is tuned for; its operations are the weighted mean over these."""
    if not shapes:
        return task
    import tvm

    module = tvm.ir.load_json(task.module)
    some = sample_shapes(shapes, _COUNTED)
    flops = sum(weight * _flops(specialise(module, dict(instance))) for instance, weight in some)
    return replace(task, shapes=shapes, flops=flops / sum(weight for _, weight in some))


def key_of(function: Any, target_json: str) -> str:
    """The key of a PrimFunc's task."""
    return task_key(tvm_compat.structural_hash_hex(tvm_compat.normalize(function)), target_json)


def program_hash(task: Task) -> str:
    """The hash of a task's program, which its key is made of together with its target."""
    import tvm

    return tvm_compat.structural_hash_hex(tvm.ir.load_json(task.module))


def is_scheduled(function: Any) -> bool:
    """Whether a function is marked as scheduled, to be left alone."""
    return bool(tvm_compat.attribute(function, tvm_compat.IS_SCHEDULED) or False)


def only_writes_sizes(function: Any) -> bool:
    """Whether a function takes sizes as numbers, and puts them into a tensor of a few elements."""
    dims = [tvm_compat.param_dims(param) for param in function.params]
    tensors = [[tvm_compat.as_int(d) for d in each] for each in dims if each is not None]
    if len(tensors) != 1 or len(dims) < 2:
        return False
    (sizes,) = tensors
    return None not in sizes and math.prod(int(size or 0) for size in sizes) <= _FEW


def call_counts(lowered: Any) -> dict[str, int]:
    """The number of calls of each tensor program, in the order of the first call.

    A module without a graph runs each of its programs once. Calls from functions that are never
    called themselves count too: an entry point cannot be told from dead code.
    """
    programs = [name for name, _ in tvm_compat.prim_funcs(lowered)]
    if not tvm_compat.has_relax(lowered):
        return dict.fromkeys(programs, 1)
    from tvm.ir import GlobalVar
    from tvm.relax.analysis import post_order_visit

    counts: Counter[str] = Counter()

    def visit(node: Any) -> None:
        if isinstance(node, GlobalVar):
            counts[str(node.name_hint)] += 1

    for function in lowered.functions.values():
        if tvm_compat.is_relax_function(function):
            post_order_visit(function, visit)
    known = set(programs)
    return {name: count for name, count in counts.items() if name in known}


def _heavier(task: Task, other: Task) -> Task:
    """A task merged with an equal one: weights added, shapes joined."""
    return replace(
        task, weight=task.weight + other.weight, shapes=merge_shapes(task.shapes + other.shapes)
    )


def _flops(module: Any) -> float:
    """Floating point operations of one run; 0 where TVM cannot count them."""
    from tvm.s_tir.analysis import estimate_tir_flops

    try:
        return float(estimate_tir_flops(module))
    except (RuntimeError, ValueError, TypeError):
        return 0.0
