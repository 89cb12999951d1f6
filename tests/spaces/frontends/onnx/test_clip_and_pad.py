"""`Clip` and `Pad` in every form, and that graphs with them keep one layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from tests.spaces.frontends.onnx.beside_onnxruntime import compare, lowered, parsed

pytestmark = pytest.mark.tvm

X = np.linspace(-9, 9, 2 * 3 * 4 * 5, dtype="float32").reshape(2, 3, 4, 5)
HEADER = '<ir_version: 8, opset_import: ["": {}]>'


def model(body: str, *, opset: int = 17, result: str = "float[a, b, c, d]", **weights: Any) -> Any:
    text = f"""
    {HEADER.replace("{}", str(opset))}
    small (float[2, 3, 4, 5] x) => ({result} y) {{ {body} }}
    """
    return parsed(text, **{name: np.asarray(array) for name, array in weights.items()})


def number(value: float) -> np.ndarray[Any, Any]:
    return np.asarray(value, "float32")


@pytest.mark.parametrize(
    ("body", "bounds"),
    [
        pytest.param("y = Clip(x, lo, hi)", {"lo": 0.0, "hi": 6.0}, id="both"),
        pytest.param("y = Clip(x, lo)", {"lo": -1.5}, id="from below"),
        pytest.param('y = Clip(x, "", hi)', {"hi": 2.5}, id="from above"),
        pytest.param("y = Clip(x)", {}, id="neither"),
        pytest.param("y = Clip(x, lo, hi)", {"lo": 3.0, "hi": -3.0}, id="in the wrong order"),
        pytest.param("y = Clip(x, lo, hi)", {"lo": -np.inf, "hi": 1.0}, id="an infinite one"),
        pytest.param("y = Clip(x, lo, hi)", {"lo": np.inf, "hi": 3.0}, id="one beyond reach"),
    ],
)
def test_clips_as_onnxruntime_does(body: str, bounds: dict[str, float]) -> None:
    body = body.replace('""', "")
    compare(model(body, **{k: number(v) for k, v in bounds.items()}), {"x": X})


def test_bounds_were_attributes_once() -> None:
    compare(model("y = Clip <min = -2.0, max = 3.0> (x)", opset=6), {"x": X})


def test_bounds_that_are_computed_are_taken_as_well() -> None:
    body = "lo = ReduceMin <keepdims = 0> (half) hi = Abs(lo) y = Clip(x, lo, hi)"
    proto = model(f"half = Mul(x, c) {body}", c=number(0.25))
    compare(proto, {"x": X})


@pytest.mark.parametrize(
    ("body", "weights"),
    [
        pytest.param("y = Pad(x, p)", {"p": [0, 0, 1, 2, 0, 0, 3, 0]}, id="zeros"),
        pytest.param(
            "y = Pad(x, p, v)", {"p": [0, 1, 0, 2, 1, 0, 0, 1], "v": number(1.5)}, id="a value"
        ),
        pytest.param('y = Pad(x, p, "", a)', {"p": [1, 2, 0, 3], "a": [-1, 2]}, id="of some axes"),
        pytest.param('y = Pad <mode = "reflect"> (x, p)', {"p": [0, 0, 1, 2] * 2}, id="reflected"),
        pytest.param("y = Pad(x, p)", {"p": [0, 0, -1, 1, 0, 0, 0, -2]}, id="cut off"),
    ],
)
def test_pads_as_onnxruntime_does(body: str, weights: dict[str, Any]) -> None:
    body = body.replace('""', "")
    compare(model(body, opset=18, **weights), {"x": X})


def test_relu6_and_uneven_padding_between_convolutions_change_no_layout() -> None:
    """Found with MobileNet v2: each ReLU6 was a program of its own, with a change of layout before
    and after it, 1.29 of onnxruntime's time."""
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.standard_normal((8, 3, 1, 1)).astype("float32"),
        "d": rng.standard_normal((8, 1, 3, 3)).astype("float32"),
        "v": rng.standard_normal((4, 8, 1, 1)).astype("float32"),
        "lo": number(0.0),
        "hi": number(6.0),
        "p": np.array([0, 0, 0, 0, 0, 0, 1, 1]),
    }
    body = """
        a = Conv(x, w) b = Clip(a, lo, hi) c = Pad(b, p)
        e = Conv <group = 8, strides = [2, 2]> (c, d) f = Clip(e, lo, hi) y = Conv(f, v)
    """
    proto = model(body, **weights)
    compare(proto, {"x": X}, within=1e-4)
    calls = str(lowered(proto)["main"].script())
    assert calls.count("transpose") <= 2, "of the input and of the result"
    assert calls.count("call_tir(fused_conv2d") == 2, "with what follows them"


def test_integers_are_clipped_by_tvms_importer() -> None:
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.INT32, [4])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.INT32, [4])
    bounds = [
        onnx.numpy_helper.from_array(np.asarray(v, "int32"), n) for v, n in ((-1, "lo"), (2, "hi"))
    ]
    node = onnx.helper.make_node("Clip", ["x", "lo", "hi"], ["y"])
    graph = onnx.helper.make_graph([node], "small", [x], [y], bounds)
    opset = [onnx.helper.make_opsetid("", 17)]
    proto = onnx.helper.make_model(graph, opset_imports=opset, ir_version=8)
    compare(proto, {"x": np.array([-5, 0, 1, 7], "int32")})
