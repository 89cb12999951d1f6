"""A program, its schedules and kernels, for suites of layers that work on these."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from spaces.codegen.artifact import build_artifact, load_artifact
from spaces.design_space.point import Point
from spaces.design_space.trace_space import TraceSpace
from spaces.ir.schedules import InvalidCandidate, task_module
from spaces.lowering.extract_tasks import task_of
from tuner.candidate import Draft
from tuner.task import Task

TARGET = '{"kind":"llvm","num-cores":1}'
SIZES = (24, 40, 16)
"""Rows, columns, and terms of each sum."""


@lru_cache
def task(target: str = TARGET) -> Task:
    """relu(A B) in float32, for a target as canonical JSON."""
    from tvm import te, topi

    m, n, k = SIZES
    a, b = te.placeholder((m, k), name="a"), te.placeholder((k, n), name="b")
    function = te.create_prim_func([a, b, topi.nn.relu(topi.nn.matmul(a, b))])
    return task_of(function, target, name="product")


def points(count: int, target: str = TARGET) -> Sequence[Point]:
    """Fresh points of the space of TVM's rules; equal calls give equal ones."""
    space, found = TraceSpace(task(target)), []
    for number in range(20 * count):
        try:
            found.append(space.realize_draft(Draft(task(target).key, number, number)))
        except InvalidCandidate:
            continue
        if len(found) == count:
            break
    return found


def schedules(count: int) -> Sequence[Any]:
    """Fresh schedules of the program, by TVM's rules; equal calls give equal ones."""
    return [point.schedule for point in points(count)]


def build_unscheduled(compile_kernel: Any) -> Any:
    """The program, unscheduled, as a builder compiles it and a worker loads it."""
    return load_artifact(build_artifact(task_module(task().module), TARGET, compile_kernel))


def compile_with_tvm(module: Any, target: Any) -> Any:
    """What TVM's compiler makes of a module."""
    import tvm

    return tvm.compile(module, target=target).mod


def arguments(seed: int = 0) -> tuple[Any, list[Any], Any]:
    """A device, arguments of the program on it, and what its output should be."""
    import numpy as np
    import tvm

    m, n, k = SIZES
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(m, k)), rng.normal(size=(k, n))
    inputs = [a.astype(np.float32), b.astype(np.float32), np.zeros((m, n), np.float32)]
    device = tvm.cpu()
    tensors = [tvm.runtime.tensor(array, device) for array in inputs]
    return device, tensors, np.maximum(inputs[0] @ inputs[1], 0)


def usual() -> list[Any]:
    """Programs that libraries have functions for: products of matrices in several forms, an
    activation, a sum of two tensors."""
    from tvm import te, topi

    m, n, k = SIZES
    found = []
    for dtype in ("float32", "float64"):
        a, b = te.placeholder((m, k), dtype, "a"), te.placeholder((k, n), dtype, "b")
        w, t = te.placeholder((n, k), dtype, "w"), te.placeholder((k, m), dtype, "t")
        x, y = te.placeholder((m, n), dtype, "x"), te.placeholder((m, n), dtype, "y")
        found += [
            te.create_prim_func([a, b, topi.nn.matmul(a, b)]),
            te.create_prim_func([a, w, topi.nn.matmul(a, w, transpose_b=True)]),
            te.create_prim_func([t, b, topi.nn.matmul(t, b, transpose_a=True)]),
            te.create_prim_func([a, b, topi.nn.relu(topi.nn.matmul(a, b))]),
            te.create_prim_func([x, topi.tanh(x)]),
            te.create_prim_func([x, y, topi.add(x, y)]),
        ]
    return found
