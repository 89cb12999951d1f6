"""Operators that choose or move elements, beside onnxruntime: in every form and of nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.spaces.frontends.onnx.beside_onnxruntime import (
    by_onnxruntime,
    by_reference,
    compare,
    lowered,
    parsed,
    refusal,
)

pytestmark = pytest.mark.tvm

X = np.random.default_rng(0).standard_normal((3, 4, 5)).astype("float32")
TIES = np.array([[3, 1, 2, 2, 9, -1], [5, 5, 5, 1, 1, 0]], "float32")
NANS = np.array([[3, np.nan, 2, np.nan, 9, -1], [5, -np.inf, np.inf, 1, np.nan, 0]], "float32")
CLASSES = np.array([[0, 2], [-1, 5]])


def ints(*values: int) -> Any:
    return np.array(values, "int64")


def model(
    operator: str, fed: Any, known: Any, results: int = 1, opset: int = 18, **said: Any
) -> Any:
    """A graph of one node, whose operands are what is fed, then what is known."""
    outs = [f"y{place}" for place in range(results)]
    node = helper.make_node(operator, [*fed, *known], outs, **said)
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for name, a in fed.items()
    ]
    empty = [helper.make_empty_tensor_value_info(out) for out in outs]
    weights = [numpy_helper.from_array(array, name) for name, array in known.items()]
    graph = helper.make_graph([node], "g", inputs, empty, weights)
    opsets = [helper.make_opsetid("", opset)]
    return onnx.shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=opsets, ir_version=8)
    )


@pytest.mark.each_value
@pytest.mark.parametrize(
    ("data", "said"),
    [
        pytest.param(TIES, {"k": 3}, id="ties"),
        pytest.param(TIES, {"k": 2, "largest": 0}, id="least"),
        pytest.param(TIES, {"k": 1, "axis": 0}, id="another axis"),
        pytest.param(TIES, {"k": 0}, id="none"),
        pytest.param(NANS, {"k": 3}, id="NaN"),
        pytest.param(NANS, {"k": 4, "largest": 0}, id="least with NaN"),
        pytest.param(np.abs(TIES).astype("uint64") << 61, {"k": 4}, id="large integers"),
        pytest.param(TIES.astype("int16"), {"k": 4}, id="short integers"),
    ],
)
@pytest.mark.parametrize("at_run", [False, True])
def test_top_k(data: Any, said: dict[str, int], at_run: bool) -> None:
    k = {"k": ints(said["k"])}
    more = {name: value for name, value in said.items() if name != "k"}
    fed, known = ({"x": data, **k}, {}) if at_run else ({"x": data}, k)
    peer = by_reference if data.dtype in ("uint64", "int16") else by_onnxruntime
    compare(model("TopK", fed, known, 2, **more), fed, peer=peer)


def test_top_k_of_no_row() -> None:
    compare(model("TopK", {"x": TIES[:0]}, {"k": ints(2)}, 2), {"x": TIES[:0]})


def test_top_k_of_opset_10_has_an_operand() -> None:
    compare(model("TopK", {"x": TIES}, {"k": ints(4)}, 2, 10), {"x": TIES})
    said = refusal(
        parsed(f"{HEADER} g (float[2, 6] x) => (float[2, k] v) {{ v, i = TopK(x, k) }}", k=ints(7))
    )
    assert "TopK" in said
    assert "1 elements more than there are" in said


@pytest.mark.each_value
@pytest.mark.parametrize("at_run", [False, True])
@pytest.mark.parametrize(
    ("begins", "ends", "axes", "steps"),
    [
        ([3, -1], [0, -6], [1, 2], [-1, -2]),
        ([-1], [-(2**63)], [1], [-1]),
        ([1, -100], [1000, 2], [0, 2], [1, 1]),
        ([3], [1], [1], [1]),
        ([0], [3], [1], [-1]),
        ([0], [2**63 - 1], [-1], [7]),
    ],
)
def test_slice(begins: Any, ends: Any, axes: Any, steps: Any, at_run: bool) -> None:
    parts = {"b": ints(*begins), "e": ints(*ends), "a": ints(*axes), "s": ints(*steps)}
    fed, known = ({"x": X, **parts}, {}) if at_run else ({"x": X}, parts)
    compare(model("Slice", fed, known), fed)


@pytest.mark.parametrize(
    ("operator", "data", "operand", "said"),
    [
        pytest.param("Reshape", X, ints(0, 2, -1), {}, id="reshape"),
        pytest.param("Reshape", X[:0], ints(3, 4, 0), {"allowzero": 1}, id="reshape of nothing"),
        pytest.param("Expand", X[:, :1], ints(2, 1, 4, 1), {}, id="expand"),
        pytest.param("Tile", X, ints(2, 1, 3), {}, id="tile"),
    ],
)
def test_shapes_that_a_run_computes(operator: str, data: Any, operand: Any, said: Any) -> None:
    fed = {"x": data, "s": operand}
    compare(model(operator, fed, {}, **said), fed)
    compare(model(operator, {"x": data}, {"s": operand}, **said), {"x": data})


def test_a_reshape_to_another_number_of_elements_ends_with_an_error() -> None:
    fed = {"x": X, "s": ints(7, 9)}
    with pytest.raises(Exception, match="match_cast"):
        compare(model("Reshape", fed, {}), fed, peer=lambda *_: [X])


@pytest.mark.parametrize("at_run", [False, True])
def test_split_into_parts_that_may_be_empty(at_run: bool) -> None:
    parts = {"s": ints(1, 0, 4)}
    fed, known = ({"x": X, **parts}, {}) if at_run else ({"x": X}, parts)
    graph = model("Split", fed, known, 3, axis=2)
    for out in graph.graph.output:
        out.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
        out.type.tensor_type.shape.CopyFrom(onnx.TensorShapeProto())
        out.type.tensor_type.shape.dim.extend(onnx.TensorShapeProto.Dimension() for _ in range(3))
    compare(graph, fed)


def test_split_into_uneven_parts() -> None:
    compare(model("Split", {"x": X}, {}, 3, axis=2, num_outputs=3), {"x": X})


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64", "int32", "uint8"])
def test_one_hot_has_the_type_of_its_values(dtype: str) -> None:
    known = {"d": np.array(3), "v": np.array([2, 5]).astype(dtype)}
    compare(model("OneHot", {"i": CLASSES}, known, axis=1), {"i": CLASSES}, peer=by_reference)


def test_one_hot_of_operands() -> None:
    fed = {"i": CLASSES, "d": ints(3), "v": np.array([-np.inf, 0.5], "float32")}
    compare(model("OneHot", fed, {}, axis=0), fed)


@pytest.mark.parametrize(
    ("operator", "places", "said"),
    [
        pytest.param("Gather", ints(3, 4), {"axis": 1}, id="Gather"),
        pytest.param("Gather", ints(-5), {"axis": 1}, id="Gather from the back"),
        pytest.param("GatherElements", ints(4).reshape(1, 1, 1), {"axis": 1}, id="GatherElements"),
        pytest.param("GatherND", ints(3, 0).reshape(1, 2), {}, id="GatherND"),
    ],
)
def test_places_out_of_range_are_refused(operator: str, places: Any, said: Any) -> None:
    said = refusal(model(operator, {"x": X}, {"i": places}, **said))
    assert f"operator {operator} " in said
    assert "there is no place" in said


@pytest.mark.each_value
@pytest.mark.parametrize("reduction", ["add", "mul"])
@pytest.mark.parametrize("dtype", ["bool", "int32", "float32"])
def test_scatter(reduction: str, dtype: str) -> None:
    data, updates = (X * 3).astype(dtype), (X[:2, 0] * 3).astype(dtype)
    fed = {"x": data, "i": np.array([[2, -1], [2, 3]]), "u": updates}
    compare(model("ScatterND", fed, {}, reduction=reduction), fed)
    fed = {"x": data[0], "i": np.array([[2, -1, 2, 0, 3]]), "u": updates[:1]}
    compare(model("ScatterElements", fed, {}, reduction=reduction), fed)


def test_scatter_of_old_counts_from_the_back() -> None:
    fed = {"x": X[0], "i": ints(-1, 0, 1, -2, 2).reshape(1, 5), "u": X[1, :1]}
    compare(model("Scatter", fed, {}, opset=9), fed)


@pytest.mark.parametrize("said", [{}, {"sorted": 0}, {"axis": 0}])
def test_unique(said: Any) -> None:
    data = np.array([[3, 1], [1, 3], [3, 1]])
    compare(model("Unique", {"x": data}, {}, 4, **said), {"x": data})


@pytest.mark.parametrize(
    ("operator", "fed", "known", "said"),
    [
        pytest.param("EyeLike", {"x": X[0]}, {}, {"dtype": 11, "k": -1}, id="EyeLike"),
        pytest.param(
            "ReverseSequence",
            {"x": X, "l": ints(1, 4, 3)},
            {},
            {"time_axis": 1, "batch_axis": 0},
            id="ReverseSequence",
        ),
        pytest.param(
            "Compress", {"x": X}, {"c": np.array([0, 1, 1], bool)}, {"axis": 1}, id="rows"
        ),
        pytest.param("Concat", {"a": X[:0], "b": X}, {}, {"axis": 0}, id="Concat with nothing"),
        pytest.param("Concat", {"a": X[:0], "b": X[:0]}, {}, {"axis": 0}, id="Concat of nothing"),
        pytest.param("Flatten", {"x": X[:, :0]}, {}, {"axis": 2}, id="Flatten nothing"),
        pytest.param("Transpose", {"x": X[:0]}, {}, {"perm": [1, 2, 0]}, id="Transpose nothing"),
        pytest.param("Trilu", {"x": X[:, :0], "k": np.array(1)}, {}, {}, id="Trilu of nothing"),
        pytest.param("NonZero", {"x": X[:0]}, {}, {}, id="NonZero of nothing"),
        pytest.param("ScatterND", {"x": X, "i": ints().reshape(0, 1), "u": X[:0]}, {}, {}, id="no"),
    ],
)
def test_as_onnxruntime_does(operator: str, fed: Any, known: Any, said: Any) -> None:
    compare(model(operator, fed, known, **said), fed)


HEADER = '<ir_version: 8, opset_import: ["": 17]>'


@pytest.mark.parametrize(
    "body",
    [
        "s = SequenceConstruct(x, x) i = Constant <value_int = -1> () y = SequenceAt(s, i)",
        "n = Neg(x) s = SequenceConstruct(x, n) y = ConcatFromSequence <axis = -1> (s)",
        "s = SplitToSequence <axis = 1> (x) i = Constant <value_int = 2> () y = SequenceAt(s, i)",
        "o = Optional(x) v = OptionalGetElement(o) y = Neg(v)",
    ],
)
def test_sequences_that_are_known_are_computed(body: str) -> None:
    text = f"{HEADER} g (float[3, 4, 5] x) => (float[a, b, c] y) {{ {body} }}"
    compare(parsed(text), {"x": X})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "(float[3] x) => (seq(float[3]) y) { y = SequenceConstruct(x, x) }",
            "output y is no tensor",
        ),
        ("(seq(float[3]) x) => (float[a] y) { y = ConcatFromSequence(x) }", "input x is no tensor"),
        ("(float[3] x) => (int64 y) { y = SequenceLength(x) }", "SequenceLength"),
        ("(float[3] x) => (float[3] y) { s = SequenceConstruct(x) y = Neg(s) }", "operator Neg"),
        ("(string[3] x) => (string[3] y) { y = Identity(x) }", "input x holds strings"),
    ],
)
def test_what_is_no_tensor_is_refused(text: str, said: str) -> None:
    assert said in refusal(parsed(f"{HEADER} g {text}"))


def test_a_graph_without_nodes() -> None:
    compare(parsed(f"{HEADER} g (float[3, 4, 5] x) => (float[3, 4, 5] x) {{ }}"), {"x": X})


def test_a_constant_within_a_loop_hides_an_outer_one() -> None:
    text = f"""{HEADER} g (float[3] x) => (float[3] y)
    {{ z = Loop <body = b (int64 i, bool c, float[3] a) => (bool d, float[3] o)
    {{ d = Identity(c) o = Add(a, w) }}> (m, , x) y = Add(z, w) }}"""
    weights = {"m": np.array(2), "w": np.array([10, 20, 30], "float32")}
    proto = parsed(text, **weights)
    body = proto.graph.node[0].attribute[0].g
    body.initializer.append(numpy_helper.from_array(np.array([1, 2, 3], "float32"), "w"))
    compare(proto, {"x": X[0, 0, :3]})


def test_an_old_size_of_0_is_what_a_shape_says() -> None:
    from spaces.frontends.declared import resolve
    from spaces.frontends.onnx.model import read_onnx_proto

    proto = parsed(f"{HEADER} g (float[0, 3] x) => (float[a, b] y) {{ y = Neg(x) }}")
    declared = read_onnx_proto(proto, "small").declared
    assert resolve(declared, [("x", (2, 3))])[0].shape == (2, 3)
    assert resolve(declared)[0].shape == (0, 3)
    lowered(proto)


def test_a_sequence_is_reversed_as_far_as_it_goes() -> None:
    text = '<ir_version: 8, opset_import: ["": 10]> g (float[4,3] x, int64[3] n) => (float[4,3] y) '
    x = np.arange(12, dtype="float32").reshape(4, 3)
    proto = parsed(text + "{ y = ReverseSequence(x, n) }")
    compare(proto, {"x": x, "n": np.array([10**12] * 3)}, peer=lambda *_: [x[::-1]])


def test_parts_are_multiplied() -> None:
    """TVM's importer takes what is neither a variable nor a call for a constant."""
    text = '<ir_version: 8, opset_import: ["": 18]> g (float[3, 4] x) => (float[3, 2] y) '
    proto = parsed(text + "{ a, b = Split <axis = 1, num_outputs = 2> (x) y = Mul(a, b) }")
    compare(proto, {"x": np.arange(12, dtype="float32").reshape(3, 4)})
