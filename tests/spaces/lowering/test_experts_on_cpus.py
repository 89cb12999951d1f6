"""Products of a mixture of experts on a CPU: their weights stay halves, and each row is right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from spaces.check.reference import reference
from spaces.codegen.artifact import build_artifact, load_kernel
from spaces.codegen.executable import compile_module, run_once
from spaces.design_space.knob_space import KnobSpace
from spaces.ir import tvm_compat
from spaces.ir.element_types import numpy_dtype
from spaces.ir.schedules import task_module
from spaces.lowering.extract_tasks import extract
from spaces.lowering.lower import lower
from spaces.lowering.weights.grouped_products import emit_grouped_product, emit_groups
from spaces.templates.registry import templates_of
from tuner.candidate import of_knobs
from tuner.task import Task

pytestmark = pytest.mark.tvm

LLVM = '{"kind":"llvm","mcpu":"x86-64-v3","num-cores":1}'
ROWS, TERMS, COLUMNS, GROUPS = 37, 48, 70, 5


def graph(kind: str) -> tuple[Any, Any]:
    """Rows by constant matrices of groups whose ends are given, and these."""
    from tvm import relax

    weights = (
        np.random.default_rng(0).normal(size=(GROUPS, TERMS, COLUMNS)).astype(numpy_dtype(kind))
    )
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((ROWS, TERMS), kind))
    ends = relax.Var("ends", relax.TensorType((GROUPS,), "int32"))
    with builder.function("main", [x, ends]):
        with builder.dataflow():
            groups = emit_groups(builder, ends, ROWS)
            product = emit_grouped_product(builder, x, relax.const(weights, kind), groups, kind)
            result = builder.emit_output(product)
        builder.emit_func_output(result)
    return builder.get(), weights


def task_of_product(kind: str) -> Task:
    tasks = extract(lower(graph(kind)[0], LLVM), LLVM)
    (found,) = (task for task in tasks if "grouped_product" in task.name)
    return found


@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16"])
def test_rows_of_groups_are_right(kind: str) -> None:
    module, weights = graph(kind)
    x = np.random.default_rng(1).normal(size=(ROWS, TERMS)).astype(weights.dtype)
    ends = np.array([0, 9, 9, 30, 35], np.int32)
    (found,) = run_once(compile_module(lower(module, LLVM), LLVM), [x, ends])
    wide, rows = weights.astype(np.float32), x.astype(np.float32)
    of_row = np.searchsorted(ends, np.arange(ROWS), side="right")
    wanted = [
        r @ wide[g] if g < GROUPS else 0 * wide[0, 0] for r, g in zip(rows, of_row, strict=True)
    ]
    assert np.abs(found.astype(np.float32) - np.stack(wanted)).max() < 0.2
    assert not found[35:].any()


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_weights_stay_halves_and_are_widened_in_the_product(kind: str) -> None:
    params = task_module(task_of_product(kind).module)["main"].params
    types = sorted(tvm_compat.param_dtype(param) for param in params)
    assert types == sorted([kind, kind, kind, "int32"])


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_the_best_predicted_are_right_in_any_order_of_rows(kind: str) -> None:
    task = task_of_product(kind)
    cases = reference(task_module(task.module), "grouped").cases
    templates = [t for t in templates_of(task) if t.name.startswith(("kernel:c", "kernel:p"))]
    assert templates
    for template in templates:
        space = KnobSpace(task, template)
        for knobs in space.ranked[:3]:
            written = space.write(of_knobs(knobs, space.name)).mod
            kernel = load_kernel(build_artifact(written, task.target))
            assert [wrong(kernel, case) for case in cases] == [None] * len(cases)


def wrong(kernel: Any, case: Any) -> str | None:
    """What is wrong with a kernel's output."""
    import tvm

    tensors = [tvm.runtime.tensor(case.fresh(i)) for i in range(len(case.arguments))]
    kernel.module["main"](*kernel.arguments(tensors, tvm.cpu()))
    (output,) = case.outputs
    said: str | None = case.wrong(output, tensors[output].numpy())
    return said
