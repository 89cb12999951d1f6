"""Softmax, attention and products: sums in half precision, rows that are masked whole."""

from __future__ import annotations

import numpy as np
import pytest

from tests.spaces.frontends.onnx.beside_onnxruntime import by_reference, compare, parsed
from tests.spaces.frontends.onnx.converters.one_node import beside, values

pytestmark = pytest.mark.tvm

inf = np.inf
X = np.random.default_rng(0).standard_normal((2, 3, 4)).astype("float32")


@pytest.mark.each_value
@pytest.mark.parametrize("opset", [11, 13])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("operator", ["Softmax", "LogSoftmax", "Hardmax"])
def test_which_axes_are_looked_along(operator: str, axis: int, opset: int) -> None:
    beside(operator, {"x": X}, axis=axis, opset=opset)


@pytest.mark.parametrize("operator", ["Softmax", "LogSoftmax"])
def test_old_versions_take_open_dimensions(operator: str) -> None:
    text = f"""
    <ir_version: 8, opset_import: ["": 11]>
    open (float[N, 3, 4] x) => (float[N, 3, 4] y) {{ y = {operator} <axis = 1> (x) }}
    """
    compare(parsed(text), {"x": X}, {"x": X[:1]})


@pytest.mark.parametrize("operator", ["Softmax", "LogSoftmax"])
def test_half_precision_adds_up_in_float32(operator: str) -> None:
    beside(operator, {"x": np.zeros((1, 3000), "float16")}, opset=13, within=1e-3)


@pytest.mark.parametrize("operator", ["Softmax", "Hardmax"])
def test_rows_with_infinities(operator: str) -> None:
    x = np.array([[-inf, 1, -inf], [-3e38, 3e38, 0], [-inf, -3.4028235e38, -inf]], "float32")
    beside(operator, {"x": x}, opset=13)


def test_a_row_of_nothing_has_its_largest_element_first() -> None:
    wanted = np.array([[1, 0]], "float32")
    beside("Hardmax", {"x": np.full((1, 2), -inf, "float32")}, opset=13, peer=values(wanted))


@pytest.mark.each_value
@pytest.mark.parametrize("fed", [False, True])
@pytest.mark.parametrize("mask", ["bool", "float32"])
def test_attention_of_rows_that_are_masked_whole(mask: str, fed: bool) -> None:
    kept = np.array([[True, False, False], [False, False, False], [True, True, True]])
    array = kept if mask == "bool" else np.where(kept, 0, -inf).astype(mask)
    inputs = {name: X.reshape(1, 2, 3, 4) * n for n, name in enumerate("qkv", start=1)}
    inputs |= {"mask": array} if fed else {}
    fixed = {} if fed else {"mask": array}
    beside("Attention", inputs, fixed=fixed, opset=23, peer=by_reference)


@pytest.mark.parametrize("operator", ["MatMul", "Gemm", "Einsum"])
def test_products_in_half_precision_add_up_in_float32(operator: str) -> None:
    fed = {"a": np.ones((2, 3000), "float16"), "b": np.ones((3000, 2), "float16")}
    said = {"equation": "ij,jk->ik"} if operator == "Einsum" else {}
    beside(operator, fed, opset=13, **said)


def test_sums_of_products_in_half_precision_are_scaled_before_they_are_rounded() -> None:
    fed = {"a": np.full((300, 2), 20, "float16"), "b": np.full((2, 300), 20, "float16")}
    fixed = {"c": np.array([1, 2], "float16")}
    said = {"alpha": 0.25, "beta": 0.5, "transA": 1, "transB": 1}
    beside("Gemm", fed, fixed=fixed, opset=13, within=1e-3, **said)


def test_factors_of_integers_are_no_integers() -> None:
    fed = {"a": np.ones((2, 3), "int32"), "b": np.ones((3, 4), "int32")}
    fixed = {"c": np.ones(4, "int32")}
    wanted = np.full((2, 4), 3, "int32")
    beside("Gemm", fed, fixed=fixed, opset=13, alpha=0.5, beta=2.0, peer=values(wanted))


@pytest.mark.parametrize(
    "operator", ["SimplifiedLayerNormalization", "SkipSimplifiedLayerNormalization"]
)
def test_contributed_norms_square_in_float32(operator: str) -> None:
    x = (X[:1] * 300).astype("float16")
    skips = operator.startswith("Skip")
    fed = {"x": x, **({"skip": x} if skips else {})}
    domain = "com.microsoft" if skips else ""
    fixed = {"scale": np.ones(4, "float16")}
    beside(operator, fed, fixed=fixed, domain=domain, within=5e-3)


def test_attention_that_onnx_may_still_change() -> None:
    fed = {name: X.reshape(1, 2, 3, 4) * n for n, name in enumerate("qkv", start=1)}
    beside("FlexAttention", fed, opset=26, domain="ai.onnx.preview", peer=by_reference)
