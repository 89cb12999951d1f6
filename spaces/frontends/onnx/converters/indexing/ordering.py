"""Operators that choose elements by their order: `TopK`, `Unique`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from spaces.frontends.onnx.node import Convert, Node, empty_tensor, has_nothing
from spaces.frontends.onnx.run_time_sizes import Read, compute_sizes
from spaces.frontends.onnx.sizes import Size

_BITS = MappingProxyType({"float16": "int16", "float32": "int32", "float64": "int64"})
_WIDER = MappingProxyType({"int16": "int32", "uint16": "int32", "uint32": "int64"})
"""Integers that TVM cannot sort."""
_SORTED = frozenset({"int8", "uint8", "int32", "int64"})


def _top_k(node: Node, builder: Any) -> Any:
    """Of equal elements the first ones, NaN above all numbers."""
    from tvm import relax

    dims = node.shape(0)
    axis = node.axis(len(dims), -1)
    asked = node.listed("k", 1) if "k" not in node.attributes else [int(node.attributes["k"])]
    largest = bool(node.attributes.get("largest", 1))
    data = node.tensor(0, builder)
    if asked is not None:
        count = asked[0]
        if count < 0:
            raise node.refused(f"it takes {count} elements")
        node.require(count, dims[axis], "takes {} elements more than there are")
        if count == 0 or has_nothing(dims):
            shape = [*dims[:axis], count, *dims[axis + 1 :]]
            types = (str(data.ty.dtype), "int64")
            return [empty_tensor(builder, shape, dtype) for dtype in types]
    else:
        count = -1  # all of them
    keys = builder.emit(_order(node, builder, data))
    both = "both" if keys is data else "indices"
    found = builder.emit(relax.op.topk(keys, count, axis, both, largest, "int64"))
    if keys is data:
        parts = [builder.emit(relax.TupleGetItem(found, place)) for place in (0, 1)]
    else:
        parts = [builder.emit(relax.op.gather_elements(data, found, axis)), found]
    if asked is None:
        length = _length_at_run(node, builder, dims[axis])
        parts = [_first(builder, part, axis, length) for part in parts]
    return parts


def _order(node: Node, builder: Any, data: Any) -> Any:
    """Integers in the order of some elements; the elements themselves where TVM sorts them so."""
    from tvm import relax, te, tirx

    dtype = str(data.ty.dtype)
    if dtype in _SORTED:
        return data
    if dtype in _WIDER:
        return relax.op.astype(data, _WIDER[dtype])
    if dtype != "uint64" and dtype not in _BITS:
        raise node.refused(f"its elements are of the type {dtype}")

    def key(value: Any) -> Any:
        if dtype == "uint64":
            return tirx.reinterpret("int64", value) ^ tirx.const(-(1 << 63), "int64")
        kind = _BITS[dtype]
        bits = tirx.reinterpret(kind, value)
        magnitude = tirx.const((1 << (int(kind[3:]) - 1)) - 1, kind)
        ordered = tirx.Select(bits < 0, bits ^ magnitude, bits)
        ordered = tirx.Select(value == 0, tirx.const(0, kind), ordered)  # there are two zeros
        ordered = tirx.Select(value != value, magnitude, ordered)
        return ordered.astype("int32") if kind == "int16" else ordered

    def program(tensor: Any) -> Any:
        return te.compute(tensor.shape, lambda *index: key(tensor(*index)), name="order")

    return builder.emit_te(program, data, primfunc_name_hint="order")


def _length_at_run(node: Node, builder: Any, size: Size) -> Size:
    def calculate(read: Read) -> tuple[Read, Any]:
        from tvm import tirx

        return read, tirx.all(read(0) >= 0, read(0) <= size)

    return compute_sizes(node, builder, [node.tensor(1, builder)], 1, calculate)[0]


def _first(builder: Any, data: Any, axis: int, length: Size) -> Any:
    """So many elements of an axis."""
    from tvm import te

    def program(tensor: Any) -> Any:
        shape = [*tensor.shape[:axis], length, *tensor.shape[axis + 1 :]]
        return te.compute(shape, lambda *index: tensor(*index), name="first")

    return builder.emit_te(program, data, primfunc_name_hint="first")


def _unique(node: Node, builder: Any) -> Any:
    """Of a tensor without an axis as of the vector of its elements: TVM gives other indices."""
    from tvm import relax, tirx

    dims, axis = node.shape(0), node.attributes.get("axis")
    axis = None if axis is None else node.axis(len(dims), 0)
    if has_nothing(dims):
        raise node.refused("there is no element")
    data = node.tensor(0, builder)
    if axis is None and len(dims) != 1:
        size = node.arithmetic.product(dims)
        data = builder.emit(relax.op.reshape(data, (size,)))
        dims = [size]
    found = builder.emit(
        relax.op.unique(
            data,
            sorted=bool(node.attributes.get("sorted", 1)),
            return_index=True,
            return_inverse=True,
            return_counts=True,
            axis=axis,
        )
    )
    number = tirx.Var("unique_numbers", "int64")
    shape = [number if place == (axis or 0) else size for place, size in enumerate(dims)]
    shapes = (shape, [number], [dims[axis or 0]], [number])
    types = [str(data.ty.dtype), "int64", "int64", "int64"]
    wanted = [*zip(shapes, types, strict=True)][: len(node.outputs)]
    return [
        builder.match_cast(
            builder.emit(relax.TupleGetItem(found, place)), relax.TensorType(one, dtype)
        )
        for place, (one, dtype) in enumerate(wanted)
    ]


ORDERING: Mapping[str, Convert] = MappingProxyType({"TopK": _top_k, "Unique": _unique})
"""By operator."""
