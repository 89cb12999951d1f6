"""Sums of products of bytes, as tasks; what they compute, scheduled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from spaces.codegen.artifact import build_artifact, load_kernel
from spaces.design_space.knob_space import KnobSpace
from spaces.design_space.point import Point
from spaces.ir import tvm_compat
from spaces.ir.schedules import task_module
from spaces.ir.symbolic import NO_VALUES, value_of
from spaces.lowering.extract_tasks import extract, set_shapes, task_of
from spaces.templates.contraction.match import match_contraction
from spaces.templates.contraction.template import ContractionTemplate, contraction_templates
from tests.contracts.programs import write_down
from tests.spaces.templates.open_programs import Size, extent
from tuner.dynamic.shapes import joint
from tuner.task import Task

VNNI = '{"kind":"llvm","mcpu":"cascadelake","mtriple":"x86_64-unknown-linux-gnu","num-cores":1}'
OLDER = '{"kind":"llvm","mcpu":"skylake-avx512","num-cores":1}'
BYTES = ("int8", "uint8")
TUNED = (5, 24, 64)
"""The sizes that open dimensions are tuned for."""

Array = npt.NDArray[Any]


def product_task(
    sizes: Sequence[Size],
    dtypes: Sequence[str] = ("int8", "int8"),
    *,
    turned: Sequence[bool] = (False, False),
    batch: Size | None = None,
    constant: bool = False,
    target: str = VNNI,
) -> Task:
    """A (batch of) m x n products of k bytes; `turned` operands have their last axes swapped."""
    from tvm import te

    opens = [size for size in (batch, *sizes) if isinstance(size, str)]
    known = {name: extent(name) for name in opens}
    m, n, k, *more = (
        known[size] if isinstance(size, str) else extent(size) if opens else size
        for size in (*sizes, *([] if batch is None else [batch]))
    )
    shapes = ((k, m) if turned[0] else (m, k), (n, k) if turned[1] else (k, n))
    a, b = (
        te.placeholder((*more, *s), d, name=name)
        for s, d, name in zip(shapes, dtypes, "ab", strict=True)
    )
    depth = te.reduce_axis((extent(0) if opens else 0, k), name="depth")

    def total(*index: Any) -> Any:
        *outer, i, j = index
        left = a[(*outer, depth, i)] if turned[0] else a[(*outer, i, depth)]
        right = b[(*outer, j, depth)] if turned[1] else b[(*outer, depth, j)]
        return te.sum(left.astype("int32") * right.astype("int32"), axis=depth)

    function = te.create_prim_func([a, b, te.compute((*more, m, n), total, name="c")])
    if constant:
        function = function.with_attr(tvm_compat.LAYOUT_FREE, [1])
    task = task_of(function, target, name="product")
    return set_shapes(task, joint([(name, TUNED) for name in opens])) if opens else task


def multiply(operands: Sequence[Array], turned: Sequence[bool]) -> Array:
    """What NumPy says of such a product, in arithmetic modulo 2^32."""
    left, right = (
        np.swapaxes(operand, -1, -2) if swap else operand
        for operand, swap in zip(operands, turned, strict=True)
    )
    return np.asarray(left.astype(np.int32) @ right.astype(np.int32))


def graph_tasks(
    build: Any, shapes: Sequence[Sequence[int]], dtypes: Sequence[str], target: str
) -> list[Task]:
    """Tasks of a graph of two inputs, legalized and fused by TVM."""
    from tvm import relax
    from tvm.ir.transform import Sequential

    inputs = [
        relax.Var(f"x{n}", relax.TensorType(list(shape), dtype))
        for n, (shape, dtype) in enumerate(zip(shapes, dtypes, strict=True))
    ]
    builder = relax.BlockBuilder()
    with builder.function("main", inputs):
        with builder.dataflow():
            result = builder.emit_output(builder.emit(build(*inputs)))
        builder.emit_func_output(result)
    t = relax.transform
    passes = [t.LegalizeOps(), t.AnnotateTIROpPattern(), t.FuseOps(), t.FuseTIR()]
    return extract(Sequential(passes)(builder.get()), target)


def arguments(task: Task, seed: int, values: Mapping[str, int] = NO_VALUES) -> list[Array]:
    """Random bytes with many extremes among them, and a result full of something else.

    Args:
        values: sizes of open dimensions.
    """
    rng = np.random.default_rng(seed)
    found = []
    for param in task_module(task.module)["main"].params:
        dims = tvm_compat.param_dims(param) or []
        shape, dtype = [value_of(dim, values) or 0 for dim in dims], tvm_compat.param_dtype(param)
        if dtype not in BYTES:
            found.append(np.full(shape, 77, dtype))
            continue
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        drawn = rng.integers(low, high + 1, shape)
        extremes = rng.choice([low, high], shape)
        found.append(np.where(rng.random(shape) < rng.random(), extremes, drawn).astype(dtype))
    return found


def answer(task: Task, schedule: Any, given: Sequence[Array]) -> Array:
    """What a scheduled program computes."""
    return run(load_kernel(build_artifact(schedule.mod, task.target)), given)


def run(kernel: Any, given: Sequence[Array]) -> Array:
    """What a kernel computes."""
    import tvm

    tensors = [tvm.runtime.tensor(array) for array in given]
    kernel.module["main"](*kernel.arguments(tensors, tvm.cpu()))
    return np.asarray(tensors[-1].numpy())


def byte_templates(task: Task) -> list[ContractionTemplate]:
    """A task's templates of contractions."""
    found = contraction_templates(task, match_contraction(task))
    return [template for template in found if isinstance(template, ContractionTemplate)]


def point_of(task: Task, variant: int, place: float) -> Point:
    """A point of one of a task's templates, near the front of its ranking or far behind."""
    templates = byte_templates(task)
    space = KnobSpace(task, templates[variant % len(templates)])
    return write_down(space, space.ranked[int(len(space.ranked) * place**2)])
