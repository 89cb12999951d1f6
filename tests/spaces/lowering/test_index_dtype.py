"""Programs that mix indices of 32 and 64 bits, as plain numbers beside a `ShapeVar` do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from spaces.design_space.knob_space import KnobSpace
from spaces.frontends.shape_var import ShapeVar
from spaces.ir import tvm_compat
from spaces.lowering.extract_tasks import set_shapes, task_of
from spaces.lowering.index_dtype import with_wide_indices
from spaces.targets.target import resolve_target
from spaces.templates.contraction.match import match_contraction
from spaces.templates.contraction.template import contraction_templates
from tests.contracts.programs import write_down
from tests.spaces.red_zones import feasible
from tuner.dynamic.shapes import joint

pytestmark = pytest.mark.tvm

CPU = resolve_target("llvm", cores=2)


def module_of(*tensors: Any) -> Any:
    from tvm import te
    from tvm.ir import IRModule

    function = te.create_prim_func(list(tensors)).with_attr("global_symbol", "main")
    return IRModule({"main": function})


def convolution(batch: Any) -> Any:
    from tvm import te, topi

    x = te.placeholder((batch, 8, 9, 9), name="x")
    w = te.placeholder((16, 8, 3, 3), name="w")
    return module_of(x, w, topi.nn.relu(topi.nn.conv2d(x, w, 2, 1, 1, "NCHW")))


def dense(rows: Any) -> Any:
    """As the RFC writes it."""
    from tvm import te

    a, b = te.placeholder((16 * rows, 40), name="A"), te.placeholder((40, 72), name="B")
    k = te.reduce_axis((0, 40), "k")
    c = te.compute((16 * rows, 72), lambda i, j: te.sum(a[i, k] * b[k, j], k), name="C")
    return module_of(a, b, c)


def index_types(module: Any) -> set[str]:
    return {str(d.ty.dtype) for p in module["main"].params for d in tvm_compat.param_dims(p)}


def ran(module: Any, *arrays: Any) -> Any:
    import tvm

    library = tvm.compile(module, target=tvm.target.Target({"kind": "llvm"}))
    tensors = [tvm.runtime.tensor(a) for a in arrays]
    library["main"](*tensors)
    return tensors[-1].numpy()


def test_all_indices_become_wide_and_the_numbers_stay() -> None:
    module = convolution(ShapeVar("N"))
    assert index_types(module) == {"int32", "int64"}
    wide = with_wide_indices(module)
    assert index_types(wide) == {"int64"}
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s).astype("float32") for s in ((3, 8, 9, 9), (16, 8, 3, 3))]
    out = np.full((3, 16, 5, 5), np.nan, "float32")
    np.testing.assert_array_equal(ran(wide, *arrays, out), ran(module, *arrays, out))


def test_micro_kernels_suit_a_program_of_plain_numbers() -> None:
    from spaces.lowering.plain_shapes import with_plain_shapes

    function = with_plain_shapes(with_wide_indices(dense(ShapeVar("T"))))["main"]
    task = set_shapes(task_of(function, CPU, name="dense"), joint([("T_x16", (16, 80))]))
    templates = contraction_templates(task, match_contraction(task))
    assert templates
    for template in templates:
        (knobs,) = feasible(task, template, 1, seed=0)
        write_down(KnobSpace(task, template), knobs)


def test_a_program_that_computes_with_narrow_integers_stays() -> None:
    from tvm import te

    a = te.placeholder((ShapeVar("T"), 4), dtype="int32", name="A")
    module = module_of(a, te.compute(a.shape, lambda i, j: a[i, j] + 7, name="B"))
    assert with_wide_indices(module).same_as(module)


@pytest.mark.parametrize("batch", [2, ShapeVar("N", dtype="int32")])
def test_a_program_that_mixes_nothing_stays(batch: Any) -> None:
    module = convolution(batch)
    assert with_wide_indices(module).same_as(module)
