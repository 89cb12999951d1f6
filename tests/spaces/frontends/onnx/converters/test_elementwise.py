"""Operators on single elements, at the edges of each type."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import helper

from tests.spaces.frontends.onnx.beside_onnxruntime import (
    by_reference,
    compare,
    lowered,
    parsed,
    run_scheduled,
)

pytestmark = [pytest.mark.tvm, pytest.mark.filterwarnings("ignore::RuntimeWarning")]

EDGES = [np.nan, np.inf, -np.inf, 0, -0.0, 1, -1, 0.5, -0.5, 1.5, 2.5, -2.5, 20, -20, 88, -88, 700]
Array = npt.NDArray[Any]


def model(nodes: list[Any], opset: int = 22, **operands: Array) -> Any:
    """Each node gives one output; an operand is an input."""
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for name, a in operands.items()
    ]
    outputs = [helper.make_empty_tensor_value_info(node.output[0]) for node in nodes]
    graph = helper.make_graph(nodes, "small", inputs, outputs)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    proto.ir_version = 10
    return onnx.shape_inference.infer_shapes(proto)


def nodes_of(*said: tuple[str, str, dict[str, Any]]) -> list[Any]:
    return [
        helper.make_node(operator, operands.split(), [f"y{n}"], **attributes)
        for n, (operator, operands, attributes) in enumerate(said)
    ]


ACTIVATIONS = nodes_of(
    *((name, "x", {}) for name in ("Relu", "Elu", "Selu", "Celu", "Mish", "Softplus", "Softsign")),
    *((name, "x", {}) for name in ("HardSigmoid", "HardSwish", "ThresholdedRelu", "LeakyRelu")),
    ("Elu", "x", {"alpha": 2.0}),
    ("Celu", "x", {"alpha": 0.5}),
    ("ThresholdedRelu", "x", {"alpha": -2.0}),
    ("Shrink", "x", {"lambd": 0.75, "bias": 0.25}),
    ("PRelu", "x z", {}),
    ("Sign", "x", {}),
    ("Round", "x", {}),
    ("Sqrt", "x", {}),
    ("Log", "x", {}),
    ("Asin", "x", {}),
    ("Cosh", "x", {}),
    ("IsInf", "x", {}),
    ("IsNaN", "x", {}),
    ("IsInf", "x", {"detect_negative": 0}),
    ("IsInf", "x", {"detect_positive": 0}),
    ("Max", "x z", {}),
    ("Min", "x z x", {}),
    ("Max", "x", {}),
    ("Mean", "x z x", {}),
    ("Sum", "x z", {}),
    ("Mod", "x z", {"fmod": 1}),
    ("Pow", "x z", {}),
)


@pytest.mark.parametrize(
    ("dtype", "within"), [("float32", 1e-5), ("float64", 1e-7), ("float16", 1e-2)]
)
def test_every_float_type_knows_nan_and_infinity(dtype: str, within: float) -> None:
    x = np.array(EDGES, dtype)
    feeds = {"x": x, "z": np.roll(x, 5)}
    compare(model(ACTIVATIONS, **feeds), feeds, peer=by_reference, within=within)


INTEGERS = nodes_of(
    *((name, "x z", {}) for name in ("Div", "Mod", "Max", "Min", "Equal", "Less")),
    *((name, "x z", {}) for name in ("BitwiseAnd", "BitwiseXor")),
    ("Mod", "x z", {"fmod": 1}),
    ("BitShift", "x s", {"direction": "LEFT"}),
    ("BitShift", "x s", {"direction": "RIGHT"}),
    ("Sign", "x", {}),
    ("Clip", "x z x", {}),
    ("Max", "x z s", {}),
    ("Shrink", "x", {"lambd": 1.5, "bias": 1.5}),
)


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint8", "uint32"])
def test_integers_divide_and_shift_as_onnx_says(dtype: str) -> None:
    limits = np.iinfo(dtype)
    x = np.array([0, 1, 7, 9, limits.max, limits.min, 100, 5, 6]).astype(dtype)
    z = np.array([1, 2, -3, 4, 3, 7, -7, 2, 5]).astype(dtype)
    s = np.array([0, 1, 7, 8, 31, 32, 64, 100, 3]).astype(dtype)
    feeds = {"x": x, "z": z, "s": s}
    compare(model(INTEGERS, opset=28, **feeds), feeds, peer=by_reference)


@pytest.mark.each_value
@pytest.mark.parametrize("base", ["int32", "int64", "float32", "float64"])
@pytest.mark.parametrize("exponent", ["int32", "int64", "float32"])
def test_a_power_has_the_type_of_its_base(base: str, exponent: str) -> None:
    feeds = {"x": np.array([2, -2, 3, 7], base), "e": np.array([3, 3, 0, 5], exponent)}
    compare(model(nodes_of(("Pow", "x e", {})), 17, **feeds), feeds)


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 7])
def test_integers_are_multiplied_for_a_known_exponent(exponent: int) -> None:
    x = np.array([2, -3, 5, 2**31 - 1], "int64")
    proto = parsed(
        '<ir_version: 8, opset_import: ["": 17]> g (int64[4] x) => (int64[4] y) { y = Pow(x, e) }',
        e=np.array(exponent, "int64"),
    )
    compare(proto, {"x": x}, peer=by_reference)


def test_a_float_to_a_known_whole_power_is_a_product() -> None:
    proto = parsed(
        '<ir_version: 8, opset_import: ["": 17]> g (float[4] x) => (float[4] y) { y = Pow(x, e) }',
        e=np.array(2, "int64"),
    )
    module = compare(proto, {"x": np.array([2, -2, 0.5, 3], "float32")})
    assert "multiply" in str(module["main"].script())


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_remainder_has_the_sign_of_its_divisor(dtype: str) -> None:
    feeds = {
        "x": np.array([3, -3, 3, -3, np.inf, 2, np.nan, 0, -1.5], dtype),
        "z": np.array([2, 2, -2, -2, 2, np.inf, 1, 5, np.inf], dtype),
    }
    proto = model(nodes_of(("Mod", "x z", {"fmod": 0})), 28, **feeds)
    compare(proto, feeds, peer=by_reference, within=1e-3)


def test_truth_values_are_compared_and_chosen() -> None:
    feeds = {"x": np.array([1, 0, 1, 0], bool), "z": np.array([1, 1, 0, 0], bool)}
    said = (*((name, "x z", {}) for name in ("And", "Or", "Xor", "Equal")), ("Not", "x", {}))
    proto = model(nodes_of(*said, ("Where", "x z x", {})), **feeds)
    compare(proto, feeds, peer=by_reference)


def test_not_less_is_no_greater_or_equal_of_what_is_no_number() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[64] x, float[64] z) => (bool[64] y)
    { l = Less(x, z) y = Not(l) }"""
    feeds = {"x": np.tile(np.array(EDGES[:8], "float32"), 8)}
    feeds["z"] = np.roll(feeds["x"], 3)
    proto = parsed(text)
    wanted = by_reference(proto, feeds)[0]
    np.testing.assert_array_equal(compare_scheduled(proto, feeds), wanted)


def compare_scheduled(proto: Any, feeds: dict[str, Array]) -> Array:
    """Schedules put a comparison into what follows it, where it is simplified."""
    found: Array = run_scheduled(lowered(proto), feeds, 0)[0]
    return found


@pytest.mark.parametrize("operator", ["Relu", "Clip", "Max"])
def test_nan_passes_through_a_schedule(operator: str) -> None:
    operands = {"Relu": "x", "Clip": "x, lo, hi", "Max": "x, lo"}[operator]
    proto = parsed(
        f"""<ir_version: 8, opset_import: ["": 17]> g (float[64] x) => (float[64] y)
        {{ a = Add(x, lo) b = Sub(a, lo) y = {operator}({operands.replace("x", "b", 1)}) }}""",
        lo=np.float32(0),
        hi=np.float32(6),
    )
    x = np.tile(np.array(EDGES[:8], "float32"), 8)
    wanted = by_reference(proto, {"x": x})[0]
    np.testing.assert_array_equal(compare_scheduled(proto, {"x": x}), wanted)


def test_bounds_at_run_time_may_be_no_numbers() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (float[n] x, float lo, float hi) => (float[n] y) { y = Clip(x, lo, hi) }"""
    x = np.array([0.5, -3, 11, np.nan], "float32")
    for low, high in ((0, np.nan), (np.nan, 4), (-1, 2), (3, -3)):
        bounds = {"lo": np.array(low, "float32"), "hi": np.array(high, "float32")}
        compare(parsed(text), {"x": x, **bounds})


def test_open_dimensions_are_broadcast() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (float[n, 3] x, float[n, 1] z, float[3] v) => (float[n, 3] y, float[n, 3] w, float[n, 3] u)
    { y = Max(x, z, v) w = Min(v, x) u = Mean(z, v, x) }"""
    rng = np.random.default_rng(0)
    for n in (1, 4):
        shapes = {"x": (n, 3), "z": (n, 1), "v": (3,)}
        feeds = {k: rng.standard_normal(s).astype("float32") for k, s in shapes.items()}
        compare(parsed(text), feeds)


def test_operands_once_began_at_an_axis() -> None:
    rng = np.random.default_rng(0)
    feeds = {"x": rng.random((2, 3, 4), "float32"), "z": rng.random((3,), "float32") + 1}
    said = [(name, "x z", {"axis": 1, "broadcast": 1}) for name in ("Add", "Div", "Pow")]
    graph = model(nodes_of(*said), 6, **feeds)
    wanted = {"Add": np.add, "Div": np.divide, "Pow": np.power}
    peers = [f(feeds["x"], feeds["z"][:, None]) for f in wanted.values()]
    compare(graph, feeds, peer=lambda *_: peers)
