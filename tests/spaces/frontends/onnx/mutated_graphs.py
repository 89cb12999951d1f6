"""Graphs of ONNX that nobody wrote: its own node tests, changed, with operators before and after.

A node test shows how an operator is called: how many operands, of which sizes. What is drawn is
what may vary by the operator's schema: attributes and their values, types, sizes, the version of
ONNX, which operands are constants, values at the edges of their types.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from hypothesis import strategies as st

from spaces.import_check.sources import RANDOM
from tests.spaces.frontends.onnx.node_tests import cases, value_of

Array = npt.NDArray[Any]
_FLOATS = ("float16", "float32", "float64")
_INTEGERS = ("int8", "uint8", "int32", "int64", "uint16")
_PADDINGS = {"SAME_LOWER", "SAME_UPPER", "VALID"}
_EDGES = (0.0, -0.0, np.nan, np.inf, -np.inf, 0.5, -1.5, 2.5, 255.5, -300.0)
_AROUND = ("Identity", "Neg", "Abs", "Relu", "Sqrt", "Flatten", "Shape", "Softmax", "Not", "Ceil")
_LARGEST = 6
_MOST_ELEMENTS = 20_000
_FIRST_OPSET, _LAST_OPSET = 7, onnx.defs.onnx_opset_version()


@dataclass(frozen=True)
class Seed:
    """A node test: one operator, and what it is fed with."""

    name: str
    node: Any
    opset: int
    feeds: Mapping[str, Array]


@dataclass(frozen=True)
class Drawn:
    """A graph, and what it is fed with."""

    proto: Any
    feeds: Mapping[str, Array]

    def __repr__(self) -> str:
        fed = {n: f"{a.dtype}{list(a.shape)} {a.ravel()[:8]}" for n, a in self.feeds.items()}
        return f"{onnx.printer.to_text(self.proto)}\nfed {fed}"


@cache
def seeds() -> dict[str, tuple[Seed, ...]]:
    """Node tests of ONNX's own operators on tensors, by operator."""
    found: dict[str, list[Seed]] = {}
    for case in cases().values():
        graph = case.model.graph
        if len(graph.node) != 1 or graph.node[0].domain or graph.node[0].op_type in RANDOM:
            continue
        values = [*map(value_of, case.data_sets[0][0])]
        arrays = [value for value in values if isinstance(value, np.ndarray)]
        if not arrays or len(arrays) < len(values) or any(a.dtype.kind in "OU" for a in arrays):
            continue
        feeds = dict(zip((value.name for value in graph.input), arrays, strict=True))
        seed = Seed(case.name, graph.node[0], case.model.opset_import[0].version, feeds)
        found.setdefault(seed.node.op_type, []).append(seed)
    return {name: tuple(found[name]) for name in sorted(found)}


@st.composite
def graphs(draw: st.DrawFn) -> Drawn:
    """A graph with one to three operators; whether it is valid is for its source to say."""
    known = seeds()
    seed = draw(st.sampled_from(known[draw(st.sampled_from([*known]))]))
    opset = seed.opset
    if draw(st.integers(0, 3)) == 0:
        opset = draw(st.integers(_FIRST_OPSET, _LAST_OPSET))
    node = onnx.NodeProto()
    node.CopyFrom(seed.node)
    feeds = dict(seed.feeds)
    for change in draw(st.lists(st.sampled_from([*_CHANGES]), max_size=3)):
        feeds = _CHANGES[change](draw, node, opset, feeds)
    if sum(array.size for array in feeds.values()) > _MOST_ELEMENTS:
        feeds = dict(seed.feeds)
    nodes = _with_others(draw, node)
    constant = [name for name in feeds if draw(st.integers(0, 2)) == 0]
    constant = constant if len(constant) < len(feeds) else constant[1:]
    return _graph(nodes, opset, feeds, constant)


def _graph(nodes: list[Any], opset: int, feeds: Mapping[str, Array], constant: list[str]) -> Drawn:
    helper = onnx.helper
    used = {name for node in nodes for name in node.input}
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in feeds.items()
        if n not in constant and n in used
    ]
    weights = [onnx.numpy_helper.from_array(a, n) for n, a in feeds.items() if n in constant]
    read = {name for node in nodes for name in node.input}
    outputs = [
        helper.make_empty_tensor_value_info(name)
        for node in nodes
        for name in node.output
        if name and name not in read
    ]
    graph = helper.make_graph(nodes, "drawn", inputs, outputs, weights)
    version = helper.make_opsetid("", opset)
    proto = helper.make_model(graph, opset_imports=[version], ir_version=min(10, onnx.IR_VERSION))
    return Drawn(proto, {value.name: feeds[value.name] for value in inputs})


def _with_others(draw: st.DrawFn, node: Any) -> list[Any]:
    """The node with another one before an operand, or behind an output."""
    nodes = [node]
    if draw(st.integers(0, 3)) == 0 and node.output[0]:
        other = draw(st.sampled_from(_AROUND))
        nodes.append(onnx.helper.make_node(other, [node.output[0]], ["behind"]))
    places = [place for place, name in enumerate(node.input) if name]
    if draw(st.integers(0, 3)) == 0 and places:
        place = draw(st.sampled_from(places))
        other = draw(st.sampled_from(_AROUND))
        nodes.insert(0, onnx.helper.make_node(other, [node.input[place]], ["before"]))
        node.input[place] = "before"
    return nodes


def _schema(node: Any, opset: int) -> Any | None:
    try:
        return onnx.defs.get_schema(node.op_type, opset)
    except onnx.defs.SchemaError:
        return None


def _change_attribute(
    draw: st.DrawFn, node: Any, opset: int, feeds: dict[str, Array]
) -> dict[str, Array]:
    """Set or leave out an attribute of the schema."""
    schema = _schema(node, opset)
    if schema is None or not schema.attributes:
        return feeds
    name = draw(st.sampled_from(sorted(schema.attributes)))
    kept = [attribute for attribute in node.attribute if attribute.name != name]
    given = [attribute for attribute in node.attribute if attribute.name == name]
    del node.attribute[:]
    node.attribute.extend(kept)
    value = _attribute_value(draw, node.op_type, name, schema.attributes[name].type, given)
    if value is not None and draw(st.integers(0, 4)):
        node.attribute.append(onnx.helper.make_attribute(name, value))
    return feeds


def _attribute_value(draw: st.DrawFn, operator: str, name: str, kind: Any, given: Any) -> Any:
    small = st.integers(-3, 4)
    if kind == onnx.defs.OpSchema.AttrType.INT:
        return draw(small)
    if kind == onnx.defs.OpSchema.AttrType.FLOAT:
        return draw(st.sampled_from([0.0, 1.0, -1.0, 0.5, 2.0, 1e-5, -0.75]))
    if kind == onnx.defs.OpSchema.AttrType.INTS:
        count = len(given[0].ints) if given and draw(st.booleans()) else draw(st.integers(1, 4))
        return draw(st.lists(st.integers(-2, 3), min_size=count, max_size=count))
    if kind == onnx.defs.OpSchema.AttrType.STRING:
        words = _words(operator, name)
        return draw(st.sampled_from(words)) if words else None
    return None


@cache
def _words(operator: str, name: str) -> tuple[str, ...]:
    """Texts that node tests give an attribute."""
    found = {
        attribute.s.decode()
        for seed in seeds()[operator]
        for attribute in seed.node.attribute
        if attribute.name == name
    }
    return tuple(sorted(found | (_PADDINGS if name == "auto_pad" else set())))


def _change_size(
    draw: st.DrawFn, node: Any, opset: int, feeds: dict[str, Array]
) -> dict[str, Array]:
    """Have an operand, and others of equal shape with it, another size."""
    name = draw(st.sampled_from([*feeds]))
    shape = feeds[name].shape
    if not shape:
        return feeds
    axis = draw(st.integers(0, len(shape) - 1))
    size = draw(st.integers(0, _LARGEST))
    together = draw(st.booleans())
    alike = [n for n, a in feeds.items() if n == name or (together and a.shape == shape)]
    return {n: np.resize(a, _put(shape, axis, size)) if n in alike else a for n, a in feeds.items()}


def _put(shape: tuple[int, ...], axis: int, size: int) -> tuple[int, ...]:
    return (*shape[:axis], size, *shape[axis + 1 :])


def _change_type(
    draw: st.DrawFn, node: Any, opset: int, feeds: dict[str, Array]
) -> dict[str, Array]:
    """Have all operands of one type another."""
    kinds = sorted({str(a.dtype) for a in feeds.values() if str(a.dtype) in _FLOATS + _INTEGERS})
    if not kinds:
        return feeds
    old = draw(st.sampled_from(kinds))
    new = draw(st.sampled_from(_FLOATS if old in _FLOATS else (*_INTEGERS, "float32")))
    with np.errstate(all="ignore"):
        return {n: a.astype(new) if str(a.dtype) == old else a for n, a in feeds.items()}


def _change_values(
    draw: st.DrawFn, node: Any, opset: int, feeds: dict[str, Array]
) -> dict[str, Array]:
    """Put edges into an operand."""
    name = draw(st.sampled_from([*feeds]))
    array = feeds[name].copy()
    if not array.size or array.dtype.kind not in "fiu":
        return feeds
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, array.size - 1))
        if array.dtype.kind == "f":
            array.reshape(-1)[place] = draw(st.sampled_from(_EDGES))
        else:
            limits = np.iinfo(array.dtype)
            most = min(int(limits.max), 300)
            array.reshape(-1)[place] = draw(st.integers(max(int(limits.min), -5), most))
    return {**feeds, name: array}


_CHANGES = {
    "attribute": _change_attribute,
    "size": _change_size,
    "type": _change_type,
    "values": _change_values,
}
