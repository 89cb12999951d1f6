"""Operators on tensors without elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.spaces.frontends.onnx.beside_onnxruntime import compare, parsed, refusal

pytestmark = pytest.mark.tvm

NOTHING = np.zeros((1, 0), "float32")


def model(call: str, given: str) -> str:
    return f'<ir_version: 10, opset_import: ["" : 23]> g ({given}) => (float y) {{ y = {call} }}'


@pytest.mark.parametrize(
    "call",
    [
        "RMSNormalization<axis = -2>(x, w)",
        "LayerNormalization(x, w)",
        "MeanVarianceNormalization<axes = [1]>(x)",
        "LRN<size = 1>(x)",
        "Hardmax(x)",
    ],
)
def test_statistics_of_nothing_are_not_computed(call: str) -> None:
    proto = parsed(model(call, "float[1,0] x" + ", float[1,0] w" * call.count("w)")))
    fed = {value.name: NOTHING for value in proto.graph.input}
    compare(proto, fed, peer=lambda *_: [NOTHING])


@pytest.mark.parametrize(
    "call",
    ["GlobalAveragePool(x)", "MaxPool<kernel_shape = [2, 2], pads = [1, 0, 1, 0]>(x)"],
)
def test_what_a_pool_of_nothing_is_nobody_says(call: str) -> None:
    assert "it goes over no element" in refusal(parsed(model(call, "float[1,3,0,6] x")))


def test_axes_that_a_run_knows_are_none_where_there_is_nothing() -> None:
    given = "float[2,3] x, float[0] a"
    proto = parsed(model("ReduceSum(x, n)", given).replace("{", "{ n = Cast<to = 7>(a)"))
    fed = {"x": np.ones((2, 3), "float32"), "a": np.zeros(0, "float32")}
    compare(proto, fed, peer=lambda *_: [np.full((1, 1), 6, "float32")])


@pytest.mark.parametrize(
    ("body", "weights", "wanted"),
    [
        ("a = ReduceSum <keepdims = 0> (x, ax) y = Exp(a)", {"ax": np.array([1])}, np.ones(3)),
        ("t = Transpose(x) a = MatMul(x, t) y = Exp(a)", {}, np.ones((3, 3))),
        ("y = ReduceMax <axes = [1], keepdims = 0> (x)", {}, np.full(3, -np.inf)),
        ("a = Relu(x) y = Pad(a, p)", {"p": np.array([0, 1, 0, 1])}, np.zeros((3, 2))),
    ],
)
def test_sums_over_nothing(body: str, weights: Any, wanted: Any) -> None:
    result = ", ".join("ab"[: wanted.ndim])
    text = f'<ir_version: 8, opset_import: ["": 17]> g (float[3, 0] x) => (float[{result}] y) '
    x = np.zeros((3, 0), "float32")
    peer = wanted.astype("float32")
    compare(parsed(f"{text} {{ {body} }}", **weights), {"x": x}, peer=lambda *_: [peer])


@pytest.mark.parametrize(
    "call", ["AveragePool<kernel_shape = [2, 5]>(x)", "MaxPool<kernel_shape = [5, 1]>(x)"]
)
def test_windows_beyond_an_image_are_refused(call: str) -> None:
    assert "reaches beyond its operand" in refusal(parsed(model(call, "float[1,1,3,3] x")))
