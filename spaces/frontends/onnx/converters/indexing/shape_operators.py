"""Operators that sizes tell what to do: `Reshape`, `Expand`, `Slice` and the like.

TVM's importer takes their sizes as constants. Each here gives a Relax expression, or None where it
is for TVM's importer: of what is not known, or of numbers alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from spaces.frontends.onnx.node import Convert, Node, empty_tensor, require_shapes
from spaces.frontends.onnx.run_time_sizes import Read, choose_value, compute_sizes, length_of, stage
from spaces.frontends.onnx.size_operators import constant_of
from spaces.frontends.onnx.sizes import Arithmetic, Size, shape_expression

_KEEP, _INFER = 0, -1
"""In the shape that a `Reshape` asks for."""


def _data(node: Node, builder: Any) -> Any:
    value = node.input(0)
    assert value is not None, f"{node.operator} without an operand"
    return value.tensor(builder)


def _reshape(node: Node, builder: Any) -> Any:
    from tvm import relax

    dims = node.shape(0)
    if "shape" in node.attributes:  # before opset 5
        shape = [int(size) for size in node.attributes["shape"]]
    elif (wanted := node.sizes(1)) is not None:
        shape = wanted.flat()
    else:
        return _reshape_at_run(node, builder, dims)
    if not node.attributes.get("allowzero", 0):
        if any(_is(size, _KEEP) for size in shape[len(dims) :]):
            raise node.refused(f"it keeps a dimension that is none of {len(dims)}")
        shape = [dims[i] if _is(size, _KEEP) else size for i, size in enumerate(shape)]
    if any(_is(size, _INFER) for size in shape):
        known = [size for size in shape if not _is(size, _INFER)]
        left = _quotient(node.arithmetic, dims, known)
        if left is None:
            return None
        shape = [left if _is(size, _INFER) else size for size in shape]
    elements = node.arithmetic.product(dims)
    node.require_equal(elements, node.arithmetic.product(shape))
    data = _data(node, builder)
    if _is(elements, 0):  # TVM would take a 0 for a dimension that is kept
        return empty_tensor(builder, shape, str(data.ty.dtype))
    return relax.op.reshape(data, shape_expression(shape))


def _reshape_at_run(node: Node, builder: Any, dims: Sequence[Size]) -> Any:
    """A `Reshape` to what the model computes."""
    from tvm import relax, tirx

    number = length_of(node, 1)
    keeps = not node.attributes.get("allowzero", 0)
    total = node.arithmetic.product(dims)
    places = range(number)
    own = [size * tirx.const(1, "int64") for size in dims]

    def calculate(read: Read) -> tuple[Read, Any]:
        one = tirx.const(1, "int64")
        kept = stage(number, lambda place: choose_value(place, [*own, 0 * one][:number] or [one]))
        said = stage(
            number,
            lambda place: tirx.Select(
                tirx.all(tirx.const(keeps, "bool"), place < len(dims), read(place) == _KEEP),
                kept(place),
                read(place),
            ),
        )
        others = stage(
            1, lambda _: math.prod(tirx.Select(n == _INFER, one, n) for n in map(said, places))
        )
        found = stage(
            number,
            lambda place: tirx.Select(
                said(place) == _INFER,
                tirx.floordiv(total, tirx.max(others(0), one)),
                said(place),
            ),
        )
        holds = [size >= 0 for size in map(found, places)]
        return found, tirx.all(math.prod(map(found, places)) == total, *holds)

    shape = compute_sizes(node, builder, [node.tensor(1, builder)], number, calculate)
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

    wanted, dims = node.sizes(1), node.shape(0)
    if wanted is None:
        return _expand_at_run(node, builder, dims)
    shape = wanted.flat()
    rank = max(len(shape), len(dims))
    pairs = zip([1] * (rank - len(dims)) + dims, [1] * (rank - len(shape)) + shape, strict=True)
    found = [_broadcast(node.arithmetic, mine, asked) for mine, asked in pairs]
    if any(size is None for size in found):
        return None
    return relax.op.broadcast_to(_data(node, builder), shape_expression(found))


def _expand_at_run(node: Node, builder: Any, dims: Sequence[Size]) -> Any:
    """An `Expand` to what the model computes."""
    from tvm import te, tirx

    number = length_of(node, 1)
    rank = max(number, len(dims))
    mine = [1] * (rank - len(dims)) + [*dims]

    def calculate(read: Read) -> tuple[Read, Any]:
        one = tirx.const(1, "int64")
        own = stage(rank, lambda place: choose_value(place, [size * one for size in mine]))
        said = [one] * (rank - number) + [read(place) for place in range(number)]
        asked = stage(rank, lambda place: choose_value(place, said))
        found = stage(rank, lambda place: tirx.Select(own(place) == one, asked(place), own(place)))
        fits = [
            tirx.any(own(place) == one, asked(place) == one, own(place) == asked(place))
            for place in range(rank)
        ]
        return found, tirx.all(*fits, *[size >= 0 for size in map(found, range(rank))])

    shape = compute_sizes(node, builder, [node.tensor(1, builder)], rank, calculate)

    def program(data: Any) -> Any:
        def element(*index: Any) -> Any:
            own = index[rank - len(dims) :]
            where = [
                tirx.Select(tirx.const(1, "int64") * size == 1, 0 * place, place)
                for size, place in zip(dims, own, strict=True)
            ]
            return data(*where)

        return te.compute(shape, element, name="expand")

    return builder.emit_te(program, _data(node, builder), primfunc_name_hint="expand_at_run")


def _broadcast(arithmetic: Arithmetic, a: Size, b: Size) -> Size | None:
    """The size that both become; None where that depends on the symbols."""
    if _is(a, 1):
        return b
    if _is(b, 1) or arithmetic.equal(a, b):
        return a
    return b if isinstance(a, int) and isinstance(b, int) else None


def _fill(node: Node, _: Any) -> Any:
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


def _tile(node: Node, builder: Any) -> Any:
    """Each axis that is repeated is given one before it, which is then part of it."""
    from tvm import relax

    times, dims = node.sizes(1), node.shape(0)
    if times is None:
        return _tile_at_run(node, builder, dims)
    if times.numbers and len(node.inputs) == 2:
        return None
    if len(node.inputs) == 3:
        raise node.refused("of opset 5 and older")
    pairs = list(zip(times.flat(), dims, strict=True))
    apart = builder.emit(
        relax.op.reshape(
            _data(node, builder), shape_expression(x for _, size in pairs for x in (1, size))
        )
    )
    repeated = relax.op.broadcast_to(apart, shape_expression(x for pair in pairs for x in pair))
    whole = shape_expression(node.arithmetic.simple(n * size) for n, size in pairs)
    return relax.op.reshape(builder.emit(repeated), whole)


def _tile_at_run(node: Node, builder: Any, dims: Sequence[Size]) -> Any:
    """A `Tile` as often as the model computes."""
    from tvm import te, tirx

    if length_of(node, 1) != len(dims):
        raise node.refused(f"{length_of(node, 1)} numbers of repeats for {len(dims)} dimensions")

    def calculate(read: Read) -> tuple[Read, Any]:
        places = range(len(dims))
        holds = [tirx.const(True, "bool"), *[count >= 0 for count in map(read, places)]]
        whole = [read(place) * dims[place] for place in places]
        return lambda place: choose_value(place, whole), tirx.all(*holds)

    shape = compute_sizes(node, builder, [node.tensor(1, builder)], len(dims), calculate)

    def program(data: Any) -> Any:
        def element(*index: Any) -> Any:
            return data(*[tirx.floormod(i, size) for i, size in zip(index, dims, strict=True)])

        return te.compute(shape, element, name="tile")

    return builder.emit_te(program, _data(node, builder), primfunc_name_hint="tile_at_run")


def _concat(node: Node, builder: Any) -> Any:
    """Parts without elements are left out."""
    from tvm import relax

    ranks = [node.shape(place) for place in range(len(node.inputs))]
    axis = node.axis(len(ranks[0]), 1 if node.opset < 4 else 0)
    filled = [place for place, dims in enumerate(ranks) if not _is(dims[axis], 0)]
    if not filled:
        return node.tensor(0, builder)
    parts = [node.tensor(place, builder) for place in filled]
    return relax.op.concat(parts, axis) if len(parts) > 1 else parts[0]


def _flatten(node: Node, builder: Any) -> Any:
    from tvm import relax

    dims = node.shape(0)
    axis = int(node.attributes.get("axis", 1))
    if not -len(dims) <= axis <= len(dims):
        raise node.refused(f"there is no axis {axis} of {len(dims)} dimensions")
    axis = axis + len(dims) if axis < 0 else axis
    shape = [node.arithmetic.product(part) for part in (dims[:axis], dims[axis:])]
    data = _data(node, builder)
    if any(_is(size, 0) for size in shape):
        return empty_tensor(builder, shape, str(data.ty.dtype))
    return relax.op.reshape(data, shape_expression(shape))


def _window(node: Node, _: Any) -> None:
    """See that its size is known: what ONNX says it is made of takes no other."""
    if node.sizes(0) is None:
        raise node.refused("how many elements it has is known only when the model runs")


_WINDOWS = ("BlackmanWindow", "HammingWindow", "HannWindow")
SHAPE_OPERATORS: Mapping[str, Convert] = MappingProxyType(
    require_shapes(
        {
            "Reshape": _reshape,
            "Expand": _expand,
            "ConstantOfShape": _fill,
            "Range": _range,
            "Tile": _tile,
            "Concat": _concat,
            "Flatten": _flatten,
            **dict.fromkeys(_WINDOWS, _window),
        }
    )
)
