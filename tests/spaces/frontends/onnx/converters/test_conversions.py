"""Conversions between element types."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.spaces.frontends.onnx.beside_onnxruntime import (
    Feeds,
    by_reference,
    compare,
    parsed,
    refusal,
)

pytestmark = [pytest.mark.tvm, pytest.mark.filterwarnings("ignore::RuntimeWarning")]

Array = npt.NDArray[Any]
SMALL = ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"]
EDGES = [
    *(np.nan, np.inf, -np.inf, 0, -0.0, 1, -2.7, 300, 448, 464, 465, 480, 57344, 61440, 61441),
    *(240, 250, 2**-7, 2**-9, 2**-10, 1.5 * 2**-10, 2**-17, 1e-8, 1.0625, 1.1875, 3e38, -1e-9),
]


def small_type(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name))


def converting(x: Array, *kinds: Any, opset: int = 25, **attributes: Any) -> Any:
    """One conversion to each of these types."""
    numbers = [helper.np_dtype_to_tensor_dtype(np.dtype(kind)) for kind in kinds]
    nodes = [
        helper.make_node("Cast", ["x"], [f"y{n}"], to=to, **attributes)
        for n, to in enumerate(numbers)
    ]
    given = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
    outputs = [helper.make_tensor_value_info(f"y{n}", to, x.shape) for n, to in enumerate(numbers)]
    graph = helper.make_graph(nodes, "small", [given], outputs)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    proto.ir_version = 10
    return proto


def read(proto: Any, feeds: Feeds) -> list[Array]:
    """The reference's values, as floats that NumPy compares."""
    return [array.astype("float32") for array in by_reference(proto, feeds)]


@pytest.mark.parametrize("source", ["float32", "float64", "float16"])
def test_floats_become_integers_as_in_onnxruntime(source: str) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 1e20, -1e20, 3e9, -3e9, 300, -1.7, 0.5], source)
    kinds = ("int8", "uint8", "int16", "int32", "uint32", "int64", "bool")
    compare(converting(x, *kinds, opset=17), {"x": x})


@pytest.mark.each_value
@pytest.mark.parametrize("saturate", [0, 1])
@pytest.mark.parametrize("kind", SMALL)
def test_floats_of_8_bits_are_rounded_and_saturated(kind: str, saturate: int) -> None:
    x = np.array(EDGES, "float32")
    there = converting(x, small_type(kind), saturate=saturate)
    again = helper.make_node("Cast", ["y0"], ["z"], to=TensorProto.FLOAT)
    there.graph.node.append(again)
    there.graph.output[0].CopyFrom(helper.make_tensor_value_info("z", 1, x.shape))
    compare(there, {"x": x}, peer=by_reference, within=0)


@pytest.mark.parametrize("kind", [*SMALL, "float8_e8m0fnu"])
def test_each_float_of_8_bits_is_read(kind: str) -> None:
    x = np.arange(256, dtype="uint8").view(small_type(kind))
    compare(converting(x, "float32", "float16"), {"x": x}, peer=read_types, within=0)


def read_types(proto: Any, feeds: Feeds) -> list[Array]:
    return [*by_reference(proto, feeds)]


@pytest.mark.each_value
@pytest.mark.parametrize("saturate", [0, 1])
@pytest.mark.parametrize("mode", ["up", "down", "nearest"])
def test_scales_are_rounded_by_mode(mode: str, saturate: int) -> None:
    x = np.array([0, 0.124, 0.25, 1.1, 1.5, 3, 3.1, 3e38, np.nan, np.inf], "float32")
    proto = converting(x, small_type("float8_e8m0fnu"), round_mode=mode, saturate=saturate)
    again = helper.make_node("Cast", ["y0"], ["z"], to=TensorProto.FLOAT)
    proto.graph.node.append(again)
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("z", 1, x.shape))
    numbers = numpy_helper.to_float8e8m0(x, bool(saturate), mode).astype("float32")
    compare(proto, {"x": x}, peer=lambda *_: [numbers], within=0)


def test_what_is_no_number_stays_so_in_bfloat16() -> None:
    x = np.array([np.nan, np.inf, 1.00390625, 1.01171875, -3.4e38], "float32")
    x = np.append(x, np.array([0x7F800001, 0xFFFFFFFF], "uint32").view("float32"))
    proto = converting(x, small_type("bfloat16"))
    proto.graph.node.append(helper.make_node("Cast", ["y0"], ["z"], to=TensorProto.FLOAT))
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("z", 1, x.shape))
    compare(proto, {"x": x}, peer=by_reference, within=0)


@pytest.mark.parametrize("kind", ["int4", "uint4", "int2", "uint2", "float4_e2m1fn"])
def test_types_of_less_than_a_byte_are_constants_and_steps_between(kind: str) -> None:
    narrow = small_type(kind)
    held = np.array([0, 1, 2, 3, -1, -2, 5, 7], "float32").astype(narrow)
    x = np.array([-9, -2, -0.3, 0.25, 1, 3, 7, 15], "float32")
    to = helper.np_dtype_to_tensor_dtype(narrow)
    nodes = [
        helper.make_node("Cast", ["x"], ["a"], to=to),
        helper.make_node("Cast", ["a"], ["y"], to=TensorProto.FLOAT),
        helper.make_node("Identity", ["w"], ["b"]),
        helper.make_node("Cast", ["b"], ["z"], to=TensorProto.FLOAT),
        helper.make_node("CastLike", ["x", "b"], ["c"]),
        helper.make_node("Cast", ["c"], ["v"], to=TensorProto.FLOAT16),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", 1, [8])],
        [helper.make_tensor_value_info(n, t, [8]) for n, t in (("y", 1), ("z", 1), ("v", 10))],
        [numpy_helper.from_array(held, "w")],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)])
    compare(proto, {"x": x}, peer=by_reference, within=0)


@pytest.mark.parametrize(
    ("nodes", "why"),
    [
        ("y = Cast <to = 22> (x)", "output y is of int4"),
        ("a = Cast <to = 22> (x) b = Abs(a) y = Cast <to = 1> (b)", "operator Abs"),
        ("y = Cast <to = 8> (x)", "STRING"),
    ],
)
def test_what_is_not_taken_is_named(nodes: str, why: str) -> None:
    proto = parsed(
        f'<ir_version: 10, opset_import: ["": 23]> g (float[4] x) => (float[4] y) {{ {nodes} }}'
    )
    proto.graph.output[0].type.tensor_type.elem_type = 0
    assert why in refusal(proto)


def test_inputs_of_less_than_a_byte_are_refused() -> None:
    x = np.zeros(4, small_type("int4"))
    assert "input x is of int4" in refusal(converting(x, "float32"))


def test_bits_are_taken_for_another_type() -> None:
    x = np.array([1.5, -0.0, np.inf, 3], "float32")
    proto = parsed(
        '<ir_version: 13, opset_import: ["": 26]> g (float[4] x) => (int32[4] y, float[4] z) '
        "{ y = BitCast <to = 6> (x) z = BitCast <to = 1> (y) }"
    )
    compare(proto, {"x": x}, peer=lambda *_: [x.view("int32"), x])


def test_constants_are_converted_when_read() -> None:
    proto = parsed(
        '<ir_version: 8, opset_import: ["": 17]> g (float[6] x) => (float[2, 3] y) '
        "{ s = Cast <to = 7> (w) y = Reshape(x, s) }",
        w=np.array([2.0, 3.0], "float32"),
    )
    compare(proto, {"x": np.arange(6, dtype="float32")})
