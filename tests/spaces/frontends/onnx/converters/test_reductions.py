"""Reductions: types, axes, infinities, nothing to reduce, and sums in half precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.spaces.frontends.onnx.beside_onnxruntime import by_reference, compare, parsed
from tests.spaces.frontends.onnx.converters.one_node import beside, values

pytestmark = pytest.mark.tvm

inf = np.inf
X = np.random.default_rng(0).standard_normal((2, 3, 4)).astype("float32")
ALL = [
    *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax"),
    *("ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare"),
]


@pytest.mark.each_value
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32"])
@pytest.mark.parametrize("operator", ALL)
def test_results_have_the_types_of_their_operands(operator: str, dtype: str) -> None:
    whole = np.array([[1, 2, 4], [3, 3, 1]], dtype)
    beside(operator, {"x": whole}, axes=[1], opset=11, within=1e-2 if dtype == "float16" else 1e-5)


@pytest.mark.each_value
@pytest.mark.parametrize(
    ("axes", "said"),
    [
        ([0], {}),
        ([-1, 0], {"keepdims": 0}),
        ([0, 1, 2], {"keepdims": 0}),
        ([], {}),
        ([], {"noop_with_empty_axes": 1}),
        (None, {"noop_with_empty_axes": 1}),
    ],
)
@pytest.mark.parametrize("operator", ["ReduceL1", "ReduceLogSumExp", "ReduceSumSquare"])
def test_axes_are_operands(operator: str, axes: list[int] | None, said: dict[str, Any]) -> None:
    fixed = {} if axes is None else {"axes": np.array(axes, "int64")}
    beside(operator, {"x": X}, fixed=fixed, opset=18, **said)


@pytest.mark.parametrize(
    ("operator", "axes", "keep"),
    [("ReduceSum", [-1, 0], 0), ("ReduceMax", [1], 1), ("ReduceLogSumExp", [0, 1], 0)],
)
def test_axes_may_be_inputs(operator: str, axes: list[int], keep: int) -> None:
    x = X[:, 0] if len(axes) == 1 else X
    beside(operator, {"x": x, "axes": np.array(axes)}, opset=18, keepdims=keep)


def test_means_of_integers_are_rounded_towards_zero() -> None:
    x = np.array([[-1, -2, -4], [2, 3, 3]], "int32")
    beside("ReduceMean", {"x": x}, axes=[1], peer=values(np.array([[-2], [2]], "int32")))


@pytest.mark.each_value
@pytest.mark.parametrize(("operator", "sign"), [("ReduceMax", -1), ("ReduceMin", 1)])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_extremes_of_infinities(operator: str, sign: int, dtype: str) -> None:
    most = sign * np.finfo(dtype).max
    x = np.array([[sign * inf] * 2, [most, sign * inf], [most, most], [1, most]], dtype)
    beside(operator, {"x": x}, axes=[1])


@pytest.mark.parametrize("operator", ["ReduceMax", "ReduceMin"])
def test_extremes_of_truths(operator: str) -> None:
    x = np.array([[True, False], [False, False], [True, True]])
    beside(operator, {"x": x}, fixed={"axes": [1]}, opset=20)


def test_sums_of_exponentials_of_infinities() -> None:
    x = np.array([[inf, 1], [-inf, -inf], [1000, 1000], [-inf, 0]], "float32")
    beside("ReduceLogSumExp", {"x": x}, axes=[1])


@pytest.mark.parametrize("operator", ["ReduceSum", "ReduceMean", "ReduceL2", "ReduceSumSquare"])
def test_half_precision_adds_up_in_float32(operator: str) -> None:
    x = np.full((1, 3000), 4, "float16")
    beside(operator, {"x": x}, axes=[1], opset=11, within=1e-3)


def test_a_mean_of_pixels_in_half_precision() -> None:
    beside("GlobalAveragePool", {"x": np.full((1, 1, 40, 40), 100, "float16")})


@pytest.mark.parametrize("operator", sorted({*ALL} - {"ReduceMean"}))
def test_reductions_of_nothing(operator: str) -> None:
    text = f"""
    <ir_version: 9, opset_import: ["": 18]>
    nothing (float[2, 3, 4] x) => (float[2, 1, 4] y) {{
      begin = Constant <value_ints = [1]> () empty = Slice(x, begin, begin, begin)
      y = {operator}(empty, begin)
    }}
    """
    compare(parsed(text), {"x": X}, peer=by_reference)


@pytest.mark.each_value
@pytest.mark.parametrize("operator", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("said", [{}, {"select_last_index": 1}, {"keepdims": 0, "axis": -2}])
@pytest.mark.parametrize("dtype", ["float32", "uint8", "int32"])
def test_places_of_extremes(operator: str, said: dict[str, Any], dtype: str) -> None:
    x = np.array([[2, 0, 255, 3], [2, 0, 255, 1], [1, 0, 255, 3]], dtype)
    beside(operator, {"x": x}, **said)


@pytest.mark.each_value
@pytest.mark.parametrize(("operator", "sign"), [("ArgMax", -1), ("ArgMin", 1)])
@pytest.mark.parametrize("last", [0, 1])
def test_places_of_infinities(operator: str, sign: int, last: int) -> None:
    most = sign * np.finfo("float32").max
    x = np.array([[sign * inf] * 2, [sign * inf, most], [most, most]], "float32")
    beside(operator, {"x": x}, axis=1, select_last_index=last)


def test_axes_of_places_may_be_counted_from_the_end_in_old_versions() -> None:
    beside("ArgMax", {"x": X}, axis=-1, opset=8)


@pytest.mark.each_value
@pytest.mark.parametrize(
    "said", [{}, {"exclusive": 1}, {"reverse": 1}, {"exclusive": 1, "reverse": 1}]
)
@pytest.mark.parametrize("operator", ["CumSum", "CumProd"])
@pytest.mark.parametrize("fed", [True, False])
def test_running_sums_and_products(operator: str, said: dict[str, int], fed: bool) -> None:
    axis = {"axis": np.array(-1, "int64")}
    inputs = {"x": X, **(axis if fed else {})}
    fixed = {} if fed else axis
    beside(operator, inputs, fixed=fixed, opset=26, peer=by_reference, **said)


def test_running_sums_in_half_precision() -> None:
    x = np.ones((1, 3000), "float16")
    wanted = np.arange(1, 3001).astype("float16")[None]
    beside("CumSum", {"x": x}, fixed={"axis": np.array(1)}, peer=values(wanted))
