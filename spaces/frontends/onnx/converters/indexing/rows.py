"""Operators that read and write elements whose places are numbers in a tensor."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from spaces.frontends.onnx.node import Convert, Node, has_nothing
from spaces.frontends.onnx.sizes import Size
from spaces.lowering.relax_rewrite import FUSES, FUSES_FREELY

_AS_BYTES = MappingProxyType({"add": "max", "mul": "min", "max": "max", "min": "min"})
"""What a reduction of truth values is of bytes."""


def _check_places(node: Node, operand: int, size: Size) -> None:
    """Refuse constant places that an axis does not have: TVM would read and write elsewhere."""
    places = node.array(operand)
    if places is None or not places.size or not isinstance(size, int):
        return
    for place in (int(places.min()), int(places.max())):
        if not -size <= place < size:
            raise node.refused(f"there is no place {place} among {size}")


def _gather(node: Node, _: Any) -> Any:
    dims = node.dims(0)
    if dims is not None:
        _check_places(node, 1, dims[node.axis(len(dims), 0)])


def _check_columns(node: Node, first: int) -> None:
    """The same of tuples of places, along axes from this one on."""
    dims, places = node.dims(0), node.array(1)
    if dims is None or places is None or not places.size:
        return
    for column in range(places.shape[-1]):
        size, some = dims[first + column], places[..., column]
        bad = some[(some < -size) | (some >= size)] if isinstance(size, int) else some[:0]
        if bad.size:
            raise node.refused(f"there is no place {bad.flat[0]} among {size}")


def _gather_nd(node: Node, _: Any) -> Any:
    _check_columns(node, int(node.attributes.get("batch_dims", 0)))


def _scatter_elements(node: Node, builder: Any) -> Any:
    from tvm import relax

    dims = node.shape(0)
    axis = node.axis(len(dims), 0)
    _check_places(node, 1, dims[axis])
    data, places, updates = (node.tensor(number, builder) for number in range(3))
    if has_nothing(node.shape(1)):
        return data
    places = builder.emit(from_front(builder, places, dims[axis]))
    reduction = _reduction(node)
    if str(data.ty.dtype) != "bool" or reduction == "update":
        return relax.op.scatter_elements(data, places, updates, axis, reduction)
    data, updates = (builder.emit(relax.op.astype(one, "int8")) for one in (data, updates))
    made = relax.op.scatter_elements(data, places, updates, axis, _AS_BYTES[reduction])
    return relax.op.astype(builder.emit(made), "bool")


def _scatter_nd(node: Node, builder: Any) -> Any:
    from tvm import relax

    _check_columns(node, 0)
    data, places, updates = (node.tensor(number, builder) for number in range(3))
    if has_nothing(node.shape(1)):
        return data
    dims, width = node.shape(0), node.shape(1)[-1]
    if not isinstance(width, int):
        raise node.refused("how many numbers a place has is not known")
    sizes = dims[:width]
    if all(isinstance(size, int) for size in sizes):
        extents = relax.const(np.array(sizes, str(places.ty.dtype)), str(places.ty.dtype))
        below = relax.op.less(places, relax.const(0, str(places.ty.dtype)))
        moved = builder.emit(relax.op.add(places, extents))
        places = builder.emit(relax.op.where(builder.emit(below), moved, places))
    elif (known := node.array(1)) is None or bool(np.any(known < 0)):
        return None
    reduction = _reduction(node)
    if str(data.ty.dtype) != "bool" or reduction == "update":
        return relax.op.scatter_nd(data, places, updates, reduction)
    data, updates = (builder.emit(relax.op.astype(one, "int8")) for one in (data, updates))
    made = relax.op.scatter_nd(data, places, updates, _AS_BYTES[reduction])
    return relax.op.astype(builder.emit(made), "bool")


def _reduction(node: Node) -> str:
    said = node.attributes.get("reduction", b"none").decode()
    known = {11: (), 16: ("add", "mul"), 18: ("add", "mul", "min", "max")}
    allowed = known[max((first for first in known if first <= node.opset), default=11)]
    if said == "none":
        return "update"
    if said not in allowed:
        raise node.refused(f'the reduction "{said}"')
    return str(said)


def from_front(builder: Any, places: Any, size: Size) -> Any:
    """Places counted from the front, negative ones from the back of an axis of a size."""
    from tvm import te

    def program(tensor: Any, whole: Any) -> Any:
        from tvm import tirx

        def element(*index: Any) -> Any:
            place = tensor(*index)
            return tirx.Select(place < 0, place + tirx.Cast(place.ty.dtype, whole), place)

        return te.compute(tensor.shape, element, name="from_front")

    return builder.emit_te(program, places, size, primfunc_name_hint="from_front")


def _compress(node: Node, builder: Any) -> Any:
    """Rows that are known are taken, and their number is known."""
    from tvm import relax

    keep, axis = node.array(1), node.attributes.get("axis")
    dims = node.dims(0)
    if keep is None or dims is None:
        return None
    rows = np.flatnonzero(keep)
    data = node.tensor(0, builder)
    if axis is None:
        size = node.arithmetic.product(dims)
        data = builder.emit(relax.op.reshape(data, (size,)))
        place = 0
    else:
        place = node.axis(len(dims), 0)
        size = dims[place]
    if rows.size:
        node.require(int(rows[-1]) + 1, size)
    return relax.op.take(data, relax.const(rows, "int64"), place)


def _reverse_sequence(node: Node, builder: Any) -> Any:
    from tvm import te, tirx, topi

    time = int(node.attributes.get("time_axis", 0))
    batch = int(node.attributes.get("batch_axis", 1))
    if {time, batch} != {0, 1}:
        raise node.refused(f"time_axis {time} and batch_axis {batch} are not 0 and 1")
    size = node.shape(0)[time]

    def program(data: Any, lengths: Any) -> Any:
        kept = te.compute(lengths.shape, lambda n: tirx.min(lengths[n], size), name="lengths")
        return topi.reverse_sequence(data, kept, time, batch)

    operands = [node.tensor(number, builder) for number in (0, 1)]
    return builder.emit_te(program, *operands, primfunc_name_hint="reverse_sequence")


def _tensor_scatter(node: Node, builder: Any) -> Any:
    """Updates of a cache, each row of a batch from a place of its own on.

    A fourth operand, which ONNX does not have, is how long the cache is afterwards: with zeros
    where neither it nor its update has rows (`spaces.frontends.onnx.contributed`).
    """
    from tvm import te, tirx

    axis = node.axis(node.rank(0), -2)
    around = node.attributes.get("mode", b"linear") == b"circular"
    if axis == 0:
        raise node.refused("its axis is that of the batch")
    operands = [node.tensor(place, builder) for place in range(len(node.inputs)) if place < 2]
    begins = [node.tensor(2, builder)] if node.input(2) is not None else []
    lengths = [] if (longer := node.sizes(3)) is None else longer.flat()

    def program(cache: Any, update: Any, *more: Any) -> Any:
        held, length = cache.shape[axis], update.shape[axis]  # the program's own symbols
        size = more[-1] if lengths else held

        def element(*index: Any) -> Any:
            first = more[0](index[0]).astype("int64") if begins else tirx.const(0, "int64")
            place = index[axis].astype("int64") - first
            place = tirx.floormod(place, size) if around else place
            new = update(*index[:axis], place, *index[axis + 1 :])
            old = cache(*index)
            if lengths:
                old = tirx.if_then_else(index[axis] < held, old, tirx.const(0, cache.dtype))
            return tirx.if_then_else(tirx.all(place >= 0, place < length), new, old)

        shape = [*cache.shape[:axis], size, *cache.shape[axis + 1 :]]
        return te.compute(shape, element, name="tensor_scatter")

    # TVM fuses nothing that reads where another tensor says; what makes the update may be fused.
    said = {"primfunc_name_hint": "tensor_scatter", "primfunc_attrs": {FUSES: FUSES_FREELY}}
    return builder.emit_te(program, *operands, *begins, *lengths, **said)


ROWS: Mapping[str, Convert] = MappingProxyType(
    {
        "Gather": _gather,
        "GatherElements": _gather,
        "GatherND": _gather_nd,
        "Scatter": _scatter_elements,
        "ScatterElements": _scatter_elements,
        "ScatterND": _scatter_nd,
        "Compress": _compress,
        "ReverseSequence": _reverse_sequence,
        "TensorScatter": _tensor_scatter,
    }
)
"""By operator."""
