"""Parts of tensors: `Slice` and `Split`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from types import MappingProxyType
from typing import Any

from spaces.frontends.onnx.node import Convert, Node, empty_tensor
from spaces.frontends.onnx.run_time_sizes import (
    Read,
    choose_value,
    compute_sizes,
    length_of,
    reader,
    stage,
)
from spaces.frontends.onnx.size_operators import is_end, slices
from spaces.frontends.onnx.sizes import Arithmetic, Size


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
        at_front = isinstance(self.begin, int) and self.begin == 0
        return at_front and self.step == 1 and arithmetic.equal(self.end, self.size)

    @property
    def length(self) -> int | None:
        """How many elements it has; None where a symbol is in it."""
        if isinstance(self.begin, int) and isinstance(self.end, int):
            return len(range(self.begin, self.end, self.step))
        return None


def _slice(node: Node, builder: Any) -> Any:
    """ONNX cuts a part off where an axis ends. Where it is not sure that a part lies within, its
    length would depend on that; the graph requires it instead."""
    dims = node.shape(0)
    asked = slices(node, len(dims))
    if asked is None:
        return _slice_at_run(node, builder, dims)
    if any(step == 0 for *_, step in asked):
        raise node.refused("a step is 0")
    place = partial(_from_front, node.arithmetic)
    parts = []
    for axis, begin, end, step in asked:
        size = dims[axis]
        if step < 0:
            parts.append(_backwards(node, axis, begin, end, step, size))
        else:
            parts.append(_Part(axis, place(begin, size), place(end, size), step, size))
    parts = [part for part in parts if not part.is_all(node.arithmetic)]
    if any(part.length == 0 for part in parts):
        nothing = {part.axis for part in parts if part.length == 0}
        shape = [0 if axis in nothing else size for axis, size in enumerate(dims)]
        for part in parts:
            shape[part.axis] = part.length
        if any(size is None for size in shape):
            raise node.refused("a part of symbolic length beside one of length 0")
        return empty_tensor(builder, shape, str(node.tensor(0, builder).ty.dtype))
    return _cut(node, builder, parts)


def _cut(node: Node, builder: Any, parts: Sequence[_Part]) -> Any:
    from tvm import relax

    if not parts:
        return node.tensor(0, builder)
    for part in parts:
        if part.step > 0:
            node.require(part.begin, part.end)
            node.require(part.end, part.size)
    return relax.op.strided_slice(
        node.tensor(0, builder),
        [part.axis for part in parts],
        [relax.prim_value(part.begin) for part in parts],
        [relax.prim_value(_as_said(part)) for part in parts],
        [relax.prim_value(part.step) for part in parts],
        assume_inbound=all(part.step > 0 for part in parts),
    )


def _as_said(part: _Part) -> Size:
    """An end as the operator of TVM has it, which counts negative ones from the back."""
    return part.end if part.step > 0 or part.end >= 0 else -part.size - 1


def _backwards(node: Node, axis: int, begin: Size, end: Size, step: int, size: Size) -> _Part:
    """A part that goes back from its begin."""
    if not isinstance(size, int):
        raise node.refused("a negative step along an axis of symbolic size")
    if not isinstance(begin, int) or not isinstance(end, int):
        raise node.refused("a negative step between symbolic ends")
    first, last, _ = slice(begin, end if end >= -size else None, step).indices(size)
    return _Part(axis, first, last, step, size)


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


def _slice_at_run(node: Node, builder: Any, dims: Sequence[Size]) -> Any:
    """A `Slice` whose ends are computed by the model."""
    from tvm import te, tirx

    operands = [place for place in (1, 2, 3, 4) if node.input(place) is not None]
    number, rank = length_of(node, 1), len(dims)
    if any(length_of(node, place) != number for place in operands):
        raise node.refused("its operands say ends of unlike numbers of axes")

    def parts(*tensors: Any) -> Any:
        return _parts_at_run(dict(zip(operands, tensors, strict=True)), number, dims)

    tensors = [node.tensor(place, builder) for place in operands]
    vector = builder.emit_te(parts, *tensors, primfunc_name_hint="parts")

    def lengths(read: Read) -> tuple[Read, Any]:
        steps = [read(rank + axis) != 0 for axis in range(rank)]
        return lambda axis: read(2 * rank + axis), tirx.all(*steps)

    found = compute_sizes(node, builder, [vector], rank, lengths)
    axes = node.numbers(3) if 3 in operands else [*range(number)]
    sliced = range(rank) if axes is None else {axis % rank for axis in axes}
    shape = [found[axis] if axis in sliced else size for axis, size in enumerate(dims)]

    def program(data: Any, ends: Any) -> Any:
        def element(*index: Any) -> Any:
            where = [
                ends[axis] + place * ends[rank + axis] if axis in sliced else place
                for axis, place in enumerate(index)
            ]
            return data(*where)

        return te.compute(shape, element, name="slice")

    data = node.tensor(0, builder)
    return builder.emit_te(program, data, vector, primfunc_name_hint="slice_at_run")


def _parts_at_run(operands: Mapping[int, Any], number: int, dims: Sequence[Size]) -> Any:
    """Begin, step and length of each axis, one after the other.

    Args:
        operands: begins, ends, axes and steps, as far as they are there, by number.
        number: of axes that are sliced.
    """
    from tvm import te, tirx

    rank = len(dims)
    reads = {place: reader(tensor) for place, tensor in operands.items()}
    one = tirx.const(1, "int64")

    def asked(operand: int, usual: Read) -> Read:
        def calculate(axis: Any) -> Any:
            found = usual(axis)
            for place in range(number) if operand in reads else ():
                said = reads[3](place) if 3 in reads else place * one
                here = tirx.any(said == axis, said == axis - rank)
                found = tirx.Select(here, reads[operand](place), found)
            return found

        return stage(rank, calculate)

    size = stage(rank, lambda axis: choose_value(axis, [size * one for size in dims]))
    step = asked(4, lambda _: one)

    def inside(ends: Read) -> Read:
        """Ends counted from the front, none beyond the axis."""

        def calculate(axis: Any) -> Any:
            back, end = step(axis) < 0, ends(axis)
            front = tirx.Select(end < 0, end + size(axis), end)
            low = tirx.Select(back, -one, 0 * one)
            high = tirx.Select(back, size(axis) - 1, size(axis))
            return tirx.min(tirx.max(front, low), high)

        return stage(rank, calculate)

    begin, end = inside(asked(1, lambda _: 0 * one)), inside(asked(2, size))

    def length(axis: Any) -> Any:
        far = tirx.Select(step(axis) < 0, begin(axis) - end(axis), end(axis) - begin(axis))
        stride = tirx.max(tirx.Select(step(axis) < 0, -step(axis), step(axis)), one)
        return tirx.max(tirx.floordiv(far + stride - 1, stride), 0 * one)

    lengths = stage(rank, length)
    return te.compute(
        (3 * rank,),
        lambda place: tirx.if_then_else(
            place < rank,
            begin(place),
            tirx.if_then_else(place < 2 * rank, step(place - rank), lengths(place - 2 * rank)),
        ),
        name="parts",
    )


def _split(node: Node, builder: Any) -> Any:
    from tvm import relax

    dims = node.shape(0)
    axis, number = node.axis(len(dims), 0), len(node.outputs)
    size, sizes = dims[axis], node.listed("split", 1)
    if sizes is None and node.input(1) is not None:
        return _split_at_run(node, builder, dims, axis)
    if sizes is None:
        if not isinstance(size, int):
            return None
        step = -(-size // number)
        sizes = [max(0, min(step, size - begin)) for begin in range(0, step * number, step or 1)]
        sizes = sizes or [0] * number
        if "num_outputs" not in node.attributes and size % number:
            raise node.refused(f"{size} elements are no {number} equal parts")
    if len(sizes) != number or min(sizes, default=0) < 0:
        raise node.refused(f"{number} results cannot have the sizes {sizes}")
    node.require_equal(sum(sizes), size)
    data = node.tensor(0, builder)
    filled = [part for part in sizes if part]
    if len(filled) > 1:
        ends = list(accumulate(filled))[:-1]
        whole = builder.emit(relax.op.split(data, ends, axis))
        items = (relax.TupleGetItem(whole, place) for place in range(len(filled)))
        parts = iter([builder.emit(item) for item in items])
    else:
        parts = iter([data])
    empty = [*dims[:axis], 0, *dims[axis + 1 :]]
    dtype = str(data.ty.dtype)
    return [next(parts) if part else empty_tensor(builder, empty, dtype) for part in sizes]


def _split_at_run(node: Node, builder: Any, dims: Sequence[Size], axis: int) -> list[Any]:
    """A `Split` into parts whose sizes are computed by the model."""
    from tvm import te

    number = len(node.outputs)
    if length_of(node, 1) != number:
        raise node.refused(f"{number} results cannot have {length_of(node, 1)} sizes")

    def read_all(read: Read) -> tuple[Read, Any]:
        from tvm import tirx

        found = [read(place) for place in range(number)]
        return read, tirx.all(sum(found) == dims[axis], *[size >= 0 for size in found])

    sizes = compute_sizes(node, builder, [node.tensor(1, builder)], number, read_all)
    data = node.tensor(0, builder)

    def part(place: int) -> Any:
        shape = [*dims[:axis], sizes[place], *dims[axis + 1 :]]

        def program(tensor: Any, asked: Any) -> Any:
            before = sum((reader(asked)(other) for other in range(place)), 0)
            return te.compute(
                shape,
                lambda *index: tensor(*index[:axis], index[axis] + before, *index[axis + 1 :]),
                name="split",
            )

        return builder.emit_te(
            program, data, node.tensor(1, builder), primfunc_name_hint="split_at_run"
        )

    return [part(place) for place in range(number)]


def _center_crop_pad(node: Node, _builder: Any) -> None:
    """What ONNX says that it is made of would spread one size over all axes."""
    axes, dims = node.attributes.get("axes"), node.dims(0)
    number = len(axes) if axes is not None else None if dims is None else len(dims)
    if (length := length_of(node, 1)) != number:
        raise node.refused(f"{length} sizes are none for {number} axes")


SLICING: Mapping[str, Convert] = MappingProxyType(
    {"CenterCropPad": _center_crop_pad, "Slice": _slice, "Split": _split}
)
"""By operator."""
