"""onnxruntime adds up products of bytes in full, whatever the CPU has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest

from spaces.import_check.sources import onnx_source
from spaces.import_check.unsigned_weights import drop_signs
from tests.spaces.frontends.onnx.beside_onnxruntime import parsed

Array = npt.NDArray[Any]
RNG = np.random.default_rng(0)
WEIGHT = RNG.integers(90, 128, (32, 6)).astype(np.int8)
FILTERS = RNG.integers(90, 128, (6, 32, 1, 1)).astype(np.int8)
ROWS = RNG.integers(200, 256, (4, 32)).astype(np.uint8)
"""Two products of whose elements are more than 16 bits hold."""
SUMS = ROWS.astype(np.float64) @ WEIGHT
HEAD = '<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]> g '
NUMBERS: dict[str, Array] = {
    "one": np.array(1, np.float32),
    "none": np.array(0, np.uint8),
    "zero": np.array(0, np.int8),
    "s": np.array(SUMS.max() / 200, np.float32),
}


def _round(sums: Array) -> Array:
    return np.clip(np.rint(sums / NUMBERS["s"]), 0, 255)


PRODUCTS: dict[str, tuple[str, Array]] = {
    "MatMulInteger": ("(uint8[4, 32] x) => (int32[4, 6] y) { y = MatMulInteger(x, w) }", SUMS),
    "MatMulIntegerToFloat": (
        """(uint8[4, 32] x) => (float[4, 6] y) {
        y = com.microsoft.MatMulIntegerToFloat(x, w, one, one, none, zero) }""",
        SUMS,
    ),
    "QLinearMatMul": (
        """(uint8[4, 32] x) => (uint8[4, 6] y) {
        y = QLinearMatMul(x, one, none, w, one, zero, s, none) }""",
        _round(SUMS),
    ),
    "QGemm": (
        """(uint8[4, 32] x) => (uint8[4, 6] y) {
        y = com.microsoft.QGemm(x, one, none, w, one, zero, , s, none) }""",
        _round(SUMS),
    ),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_product_is_what_its_definition_says(name: str) -> None:
    text, want = PRODUCTS[name]
    (got,) = onnx_source(parsed(HEAD + text, w=WEIGHT, **NUMBERS), ["x"]).outputs([ROWS])
    np.testing.assert_array_equal(got, want)


def test_a_convolution_is_what_its_definition_says() -> None:
    text = """(uint8[1, 32, 5, 5] x) => (uint8[1, 6, 5, 5] y) {
        y = QLinearConv(x, one, none, w, each, zeros, s, none) }"""
    x = RNG.integers(200, 256, (1, 32, 5, 5)).astype(np.uint8)
    more = {"each": np.ones(6, np.float32), "zeros": np.zeros(6, np.int8)}
    proto = parsed(HEAD + text, w=FILTERS, **more, **NUMBERS)
    (got,) = onnx_source(proto, ["x"]).outputs([x])
    sums = np.einsum("nchw,oc->nohw", x.astype(np.float64), FILTERS[:, :, 0, 0])
    np.testing.assert_array_equal(got, _round(sums))


def test_rows_that_are_rounded_on_the_way_are_multiplied_in_full() -> None:
    text = """(float[4, 32] x) => (float[4, 6] y) {
        y = com.microsoft.DynamicQuantizeMatMul(x, w, one) }"""
    x = ROWS.astype(np.float32)
    x[:, 0] = 255
    (got,) = onnx_source(parsed(HEAD + text, w=WEIGHT, **NUMBERS), ["x"]).outputs([x])
    np.testing.assert_allclose(got, x.astype(np.float64) @ WEIGHT, rtol=1e-6)


@pytest.mark.parametrize(
    "text",
    [
        "(int8[1, 32, 5, 5] x) => (int8[1, 6, 5, 5] y) "
        "{ y = QLinearConv(x, one, zero, w, one, zero, s, zero) }",
        "(uint8[1, 32, 5, 5] x) => (int32[1, 6, 5, 5] y) { y = ConvInteger(x, w) }",
        "(float[4, 32] x) => (float[4, 32] y) { y = Relu(x) }",
    ],
)
def test_what_is_exact_stays_as_it_is(text: str) -> None:
    proto = parsed(HEAD + text, w=FILTERS, **NUMBERS)
    assert drop_signs(proto) is proto


def test_a_file_is_read_and_not_changed(tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    onnx.save(parsed(HEAD + PRODUCTS["MatMulInteger"][0], w=WEIGHT), file)
    before = file.read_bytes()
    changed = drop_signs(file)
    assert file.read_bytes() == before
    assert [t.data_type for t in changed.graph.initializer].count(onnx.TensorProto.UINT8) == 2
    (got,) = onnx_source(file, ["x"]).outputs([ROWS])
    np.testing.assert_array_equal(got, SUMS)


def test_two_products_may_share_a_weight() -> None:
    text = """(uint8[4, 32] x, uint8[2, 32] z) => (int32[4, 6] y, int32[2, 6] t) {
        y = MatMulInteger(x, w) t = MatMulInteger(z, w) }"""
    source: Callable[..., Any] = onnx_source(parsed(HEAD + text, w=WEIGHT), ["x", "z"]).outputs
    got, other = source([ROWS, ROWS[:2]])
    np.testing.assert_array_equal(got, SUMS)
    np.testing.assert_array_equal(other, SUMS[:2])
