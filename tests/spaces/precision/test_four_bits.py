"""Weights of 4 bits: their codes, how they are kept, and what onnxruntime makes of the same."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from spaces.lowering.lower import lower
from spaces.lowering.weights.constants import UNPACKS
from spaces.precision.convert import in_precision
from spaces.precision.four_bits import BLOCK, quantize
from tests.spaces.precision.typed_models import (
    LLVM,
    Array,
    constants,
    dense,
    imported,
    normal,
    outputs,
    parsed,
)
from tuner.precision import Precision

pytestmark = pytest.mark.tvm
INT4 = Precision("int4", "int4")


def one_product(weight: Array, rows: str = "5") -> onnx.ModelProto:
    depth, columns = weight.shape
    proto = parsed(
        f"one (float[{rows}, {depth}] x) => (float[{rows}, {columns}] y) {{ y = MatMul(x, w) }}",
        w=weight,
    )
    assert isinstance(proto, onnx.ModelProto)
    return proto


@pytest.mark.parametrize("depth", [BLOCK, 100, 256])
def test_numbers_are_within_half_a_step_and_one_of_each_block_is_exact(depth: int) -> None:
    weight = normal(depth, 7)
    codes, scales = quantize(weight)
    assert (codes.min(), codes.max() <= 7) == (-8, True)
    spread = np.repeat(scales, BLOCK, axis=1)[:, :depth]
    real = codes[:, :depth] * spread
    step = np.abs(spread)
    off = np.abs(real - weight.T)
    beyond = weight.T / spread > 7.5  # 8 is no code
    assert (off <= np.where(beyond, step, step / 2) * 1.0001).all()
    first = slice(0, min(depth, BLOCK))
    farthest = np.abs(weight[first]).argmax(0)
    np.testing.assert_allclose(
        real[range(7), farthest], weight[first][farthest, range(7)], rtol=1e-6
    )


def test_zeros_stay_zeros() -> None:
    codes, scales = quantize(np.zeros((BLOCK, 2), "float32"))
    assert not (codes * np.repeat(scales, BLOCK, axis=1)).any()


@pytest.mark.parametrize("depth", [64, 80])
def test_onnxruntime_computes_the_same_from_the_same_bytes(depth: int) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    weight, x = normal(depth, 24), normal(5, depth, seed=1)
    model = imported(one_product(weight))
    packed, scales = sorted(constants_of(model), key=lambda array: array.dtype.itemsize)
    assert [packed.dtype, scales.dtype] == [np.uint8, np.float32]
    blocks = -(-depth // BLOCK)
    node = onnx.helper.make_node(
        "MatMulNBits", ["x", "b", "s"], ["y"], domain="com.microsoft",
        K=depth, N=24, bits=4, block_size=BLOCK,
    )  # fmt: skip
    tensors = [
        onnx.numpy_helper.from_array(packed.reshape(24, blocks, BLOCK // 2), "b"),
        onnx.numpy_helper.from_array(scales.reshape(-1), "s"),
    ]
    infos = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in (("x", [5, depth]), ("y", [5, 24]))
    ]
    graph = onnx.helper.make_graph([node], "g", infos[:1], infos[1:], tensors)
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("com.microsoft", 1)]
    proto = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    (want,) = session.run(None, {"x": x})
    (got,) = outputs(model, x, precision=INT4)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    assert 0.01 < np.linalg.norm(got - x @ weight) / np.linalg.norm(x @ weight) < 0.2


def constants_of(model: object) -> list[Array]:
    from typing import cast

    from tvm.relax.analysis import post_order_visit

    from spaces.frontends.model import Model
    from spaces.ir import tvm_compat

    found: list[Array] = []
    main = lower(in_precision(cast(Model, model), INT4).module, LLVM)["main"]
    post_order_visit(
        main, lambda e: found.append(e.value.numpy()) if tvm_compat.is_constant(e) else None
    )
    return found


def test_a_lowered_model_holds_them_packed() -> None:
    whole, packed = (
        sum(array.nbytes for array in constants(imported(dense()), precision))
        for precision in (None, INT4)
    )
    assert packed == whole / 8 + whole / BLOCK  # 4 bits, and a scale of 4 bytes a block


def test_they_are_unpacked_by_the_program_that_importers_write() -> None:
    module = in_precision(imported(dense()), INT4).module
    marked = [f for f in module.functions.values() if (f.attrs or {}).get(UNPACKS)]
    assert len(marked) == 2


def test_short_sums_and_convolutions_stay_whole() -> None:
    weight = normal(BLOCK - 1, 8)
    model, x = imported(one_product(weight)), normal(5, BLOCK - 1)
    assert np.array_equal(outputs(model, x, precision=INT4)[0], outputs(model, x)[0])


def test_open_rows() -> None:
    weight = normal(64, 24)
    model = imported(one_product(weight, "N"), {"N": (1, 7)})
    codes, scales = quantize(weight)
    real = (codes * np.repeat(scales, BLOCK, axis=1)).T
    for rows in (1, 7):
        x = normal(rows, 64)
        (got,) = outputs(model, x, precision=INT4)
        np.testing.assert_allclose(got, x @ real, rtol=1e-4, atol=1e-5)
