"""Operators that sizes tell what to do: `Reshape`, `Expand`, `Slice` and the like.

TVM's importer takes their sizes as constants. Each here gives a Relax expression, or None where it
is for TVM's importer: of what is not known, or of numbers alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

from spaces.frontends.onnx.node import Convert, Node
from spaces.frontends.onnx.size_operators import constant_of, is_end, slices
from spaces.frontends.onnx.sizes import Arithmetic, Size, shape_expression

_KEEP, _INFER = 0, -1
"""In the shape that a `Reshape` asks for."""


def _data(node: Node, builder: Any) -> Any:
    value = node.input(0)
    assert value is not None, f"{node.operator} without an operand"
    return value.tensor(builder)


def _reshape(node: Node, builder: Any) -> Any:
    from tvm import relax

    wanted, dims = node.sizes(1), node.dims(0)
    if wanted is None or dims is None:
        return None
    shape = wanted.flat()
    if not node.attributes.get("allowzero", 0):
        shape = [dims[i] if _is(size, _KEEP) else size for i, size in enumerate(shape)]
    if any(_is(size, _INFER) for size in shape):
        known = [size for size in shape if not _is(size, _INFER)]
        left = _quotient(node.arithmetic, dims, known)
        if left is None:
            return None
        shape = [left if _is(size, _INFER) else size for size in shape]
    node.require_equal(*map(node.arithmetic.product, (dims, shape)))
    return relax.op.reshape(_data(node, builder), shape_expression(shape))


def _is(size: Size, number: int) -> bool:
    return isinstance(size, int) and size == number


def _quotient(arithmetic: Arithmetic, dims: Sequence[Size], known: Sequence[Size]) -> Size | None:
    """What one dimension is, so that all have as many elements as these; None where unknown."""
    from tvm import tirx

    over = list(dims)
    under = []
    for size in known:  # what stands on both sides needs no division
        same = next((i for i, d in enumerate(over) if arithmetic.equal(d, size)), None)
        if same is None:
            under.append(size)
        else:
            del over[same]
    above, below = arithmetic.product(over), arithmetic.product(under)
    if _is(below, 0):
        return None
    if isinstance(above, int) and isinstance(below, int):
        return above // below
    return arithmetic.simple(tirx.floordiv(above, below)) if not _is(below, 1) else above


def _expand(node: Node, builder: Any) -> Any:
    from tvm import relax

    wanted, dims = node.sizes(1), node.dims(0)
    if wanted is None or dims is None:
        return None
    shape = wanted.flat()
    rank = max(len(shape), len(dims))
    pairs = zip([1] * (rank - len(dims)) + dims, [1] * (rank - len(shape)) + shape, strict=True)
    found = [_broadcast(node.arithmetic, mine, asked) for mine, asked in pairs]
    if any(size is None for size in found):
        return None
    return relax.op.broadcast_to(_data(node, builder), shape_expression(found))


def _broadcast(arithmetic: Arithmetic, a: Size, b: Size) -> Size | None:
    """The size that both become; None where that depends on the symbols."""
    if _is(a, 1):
        return b
    if _is(b, 1) or arithmetic.equal(a, b):
        return a
    return b if isinstance(a, int) and isinstance(b, int) else None


def _filled(node: Node, _: Any) -> Any:
    from tvm import relax

    shape, value = node.sizes(0), constant_of(node.attributes)
    if shape is None:
        return None
    number, dtype = (0.0, "float32") if value is None else (value.item(), str(value.dtype))
    constant = relax.const(number, dtype)
    return relax.op.full(shape_expression(shape.flat()), constant, dtype)


def _range(node: Node, _: Any) -> Any:
    from tvm import relax

    bounds = [node.sizes(number) for number in range(3)]
    known = [bound for bound in bounds if bound is not None]
    if len(known) < len(bounds):
        return None
    start, end, step = (bound.flat()[0] for bound in known)
    return relax.op.arange(start, end, step, dtype=known[0].dtype)


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of one axis of a `Slice`, its ends counted from the front.

    Attributes:
        size: of the axis.
    """

    axis: int
    begin: Size
    end: Size
    step: int
    size: Size

    def is_all(self, arithmetic: Arithmetic) -> bool:
        """Whether it is the whole axis."""
        return _is(self.begin, 0) and self.step == 1 and arithmetic.equal(self.end, self.size)


def _slice(node: Node, builder: Any) -> Any:
    """ONNX cuts a part off where an axis ends. Where it is not sure that a part lies within, its
    length would depend on that; the graph requires it instead."""
    from tvm import relax

    dims = node.dims(0)
    asked = None if dims is None else slices(node, len(dims))
    if dims is None or asked is None or any(step < 1 for *_, step in asked):
        return None
    place = partial(_from_front, node.arithmetic)
    parts = [
        _Part(axis, place(begin, dims[axis]), place(end, dims[axis]), step, dims[axis])
        for axis, begin, end, step in asked
    ]
    parts = [part for part in parts if not part.is_all(node.arithmetic)]
    if not parts:
        return _data(node, builder)
    for part in parts:
        node.require(part.begin, part.end)
        node.require(part.end, part.size)
    return relax.op.strided_slice(
        _data(node, builder),
        [part.axis for part in parts],
        [relax.prim_value(part.begin) for part in parts],
        [relax.prim_value(part.end) for part in parts],
        [relax.prim_value(part.step) for part in parts],
        assume_inbound=True,
    )


def _from_front(arithmetic: Arithmetic, place: Size, size: Size) -> Size:
    """An end of a `Slice`, counted from the front of an axis."""
    if is_end(place):
        return size
    if isinstance(place, int):
        if place < 0:
            return max(0, size + place) if isinstance(size, int) else size + place
        return min(place, size) if isinstance(size, int) else place
    backwards = arithmetic.always(place <= 0)
    return arithmetic.simple(size + place) if backwards else place


def _tile(node: Node, builder: Any) -> Any:
    """Each axis that is repeated is given one before it, which is then part of it."""
    from tvm import relax

    times, dims = node.sizes(1), node.dims(0)
    if times is None or times.numbers or dims is None:
        return None
    pairs = list(zip(times.flat(), dims, strict=True))
    apart = builder.emit(
        relax.op.reshape(
            _data(node, builder), shape_expression(x for _, size in pairs for x in (1, size))
        )
    )
    repeated = relax.op.broadcast_to(apart, shape_expression(x for pair in pairs for x in pair))
    whole = shape_expression(node.arithmetic.simple(n * size) for n, size in pairs)
    return relax.op.reshape(builder.emit(repeated), whole)


SHAPE_OPERATORS: Mapping[str, Convert] = MappingProxyType(
    {
        "Reshape": _reshape,
        "Expand": _expand,
        "ConstantOfShape": _filled,
        "Range": _range,
        "Slice": _slice,
        "Tile": _tile,
    }
)
