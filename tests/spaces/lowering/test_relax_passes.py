"""Rewrites of the graph: biases before batch norms, and indices that leave their table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from spaces.codegen.executable import compile_module, run_once
from spaces.ir import tvm_compat
from spaces.lowering.lower import lower

pytestmark = pytest.mark.tvm

LLVM = '{"kind":"llvm","num-cores":1}'


def biased_convolution(bias_shape: tuple[int, ...], *, training: bool = False) -> Any:
    """A convolution of 4 channels, something added to it, and a batch norm."""
    from tvm import relax

    rng = np.random.default_rng(0)

    def const(*shape: int) -> Any:
        return relax.const((0.5 + rng.random(shape)).astype("float32"))

    b = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 3, 6, 6), "float32"))
    with b.function("main", [x]):
        with b.dataflow():
            conv = b.emit(relax.op.nn.conv2d(x, const(4, 3, 3, 3)))
            bias = const(int(np.prod(bias_shape)))
            added = b.emit(relax.op.add(conv, b.emit(relax.op.reshape(bias, bias_shape))))
            statistics = [const(4) for _ in range(4)]
            norm = b.emit(relax.op.nn.batch_norm(added, *statistics, axis=1, training=training))
            out = b.emit_output(relax.TupleGetItem(norm, 0))
        b.emit_func_output(out)
    return b.get()


def unfolded(module: Any) -> Any:
    """The module compiled as it is, no batch norm folded."""
    from tvm import relax, transform
    from tvm.target import Target

    passes = [relax.transform.DecomposeOpsForInference(), relax.transform.LegalizeOps()]
    with Target({"kind": "llvm", "num-cores": 1}):
        return compile_module(transform.Sequential(passes)(module), LLVM)


@pytest.mark.parametrize("bias_shape", [(1, 4, 1, 1), (1, 4, 4, 1)])
def test_a_batch_norm_after_a_bias_computes_the_same_once_lowered(
    bias_shape: tuple[int, ...],
) -> None:
    module = biased_convolution(bias_shape)
    x = np.random.default_rng(1).standard_normal((1, 3, 6, 6)).astype("float32")
    (expected,) = run_once(unfolded(module), [x])
    (got,) = run_once(compile_module(lower(module, LLVM), LLVM), [x])
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_a_batch_norm_is_folded_across_the_bias_of_its_convolution() -> None:
    found = [
        name for name, _ in tvm_compat.prim_funcs(lower(biased_convolution((1, 4, 1, 1)), LLVM))
    ]
    assert found == ["fused_conv2d_add"]


def test_what_is_added_along_another_axis_is_no_bias() -> None:
    module = biased_convolution((1, 1, 4, 1))
    x = np.random.default_rng(1).standard_normal((1, 3, 6, 6)).astype("float32")
    (name,) = [name for name, _ in tvm_compat.prim_funcs(lower(module, LLVM))]
    assert name == "fused_conv2d_add_multiply_add1", "its batch norm stands alone"
    (expected,) = run_once(unfolded(module), [x])
    (got,) = run_once(compile_module(lower(module, LLVM), LLVM), [x])
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def lone_batch_norm(axis: int, shape: tuple[int, ...], **settings: Any) -> Any:
    """A batch norm with nothing before it."""
    from tvm import relax

    rng = np.random.default_rng(0)
    statistics = [relax.const((0.5 + rng.random(shape[axis])).astype("float32")) for _ in range(4)]
    b = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    with b.function("main", [x]):
        with b.dataflow():
            norm = b.emit(relax.op.nn.batch_norm(x, *statistics, axis=axis, **settings))
            out = b.emit_output(relax.TupleGetItem(norm, 0))
        b.emit_func_output(out)
    return b.get()


@pytest.mark.parametrize(
    ("axis", "shape", "options"),
    [
        (1, (2, 4, 5, 3), {"training": False}),
        (3, (2, 4, 5, 3), {"training": False}),
        (-1, (6, 7), {"training": False}),
        (1, (2, 4, 5), {"training": False, "center": False}),
        (1, (2, 4, 5), {"training": False, "scale": False, "epsilon": 0.1}),
    ],
)
def test_a_lone_batch_norm_is_a_product_and_a_sum(
    axis: int, shape: tuple[int, ...], options: dict[str, Any]
) -> None:
    module = lone_batch_norm(axis, shape, **options)
    x = np.random.default_rng(1).standard_normal(shape).astype("float32")
    (name,) = [name for name, _ in tvm_compat.prim_funcs(lower(module, LLVM))]
    assert name == "fused_multiply_add"
    (expected,) = run_once(unfolded(module), [x])
    (got,) = run_once(compile_module(lower(module, LLVM), LLVM), [x])
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("exponent", "products"), [(2, 1), (3, 2), (2.5, 0), (4, 0)])
def test_squares_and_cubes_are_products(exponent: float, products: int) -> None:
    from tvm import relax

    from spaces.lowering.relax_passes import multiply_powers

    b = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((3, 4), "float32"))
    with b.function("main", [x]):
        with b.dataflow():
            power = b.emit(relax.op.power(x, relax.const(np.float32(exponent))))
            out = b.emit_output(relax.op.add(power, power))
        b.emit_func_output(out)
    text = multiply_powers(b.get()).script()
    assert (text.count("R.multiply"), text.count("R.power")) == (products, int(not products))


@pytest.mark.parametrize(("value", "fills"), [(float("-inf"), 0), (float("nan"), 0), (2.5, 1)])
def test_what_is_full_of_infinities_is_broadcast(value: float, fills: int) -> None:
    from tvm import relax

    from spaces.lowering.lower import lower
    from spaces.lowering.relax_passes import broadcast_infinities

    b = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((3, 4), "float32"))
    with b.function("main", [x]):
        with b.dataflow():
            full = b.emit(relax.op.full((3, 4), relax.const(np.float32(value)), "float32"))
            out = b.emit_output(relax.op.add(x, full))
        b.emit_func_output(out)
    text = broadcast_infinities(b.get()).script()
    assert (text.count("R.full"), text.count("R.broadcast_to")) == (fills, 1 - fills)
    lower(b.get(), "llvm")
