"""Operators on weights of 2, 4 and 8 bits, several of them in a byte, with a scale for each block.

One program makes floats of them where they are needed (`packed_codes`). A product has them in the
type of its other operand and sums in float32. What lowers it is told whether `accuracy_level`
allows rows of 8 bits (`spaces.lowering.weights.byte_rows`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from spaces.frontends.onnx.contributed.text import has, read_attribute
from spaces.frontends.onnx.converters.elementwise.packed_codes import (
    FIRST,
    Matrix,
    count_bits,
    emit_matrix,
    emit_unpacked,
    pack,
    within,
)
from spaces.frontends.onnx.node import Convert, Node, Value
from spaces.frontends.precision import in_type
from spaces.ir import tvm_compat
from spaces.ir.element_types import WIDE, is_float
from spaces.lowering.weights.codes import Codes

_BITS = (2, 4, 8)
IN_BYTES = 4
"""Of `accuracy_level`: rows may be rounded to 8 bits."""


def _shaped(builder: Any, value: Value, shape: Sequence[int]) -> Any:
    """An operand in another shape; a constant stays one, over the same memory, so that it can stay
    packed."""
    from tvm import relax

    tensor = value.tensor(builder)
    if [tvm_compat.as_int(size) for size in value.dims or ()] == [*shape]:
        return tensor
    if tvm_compat.is_constant(tensor):
        return relax.const(tensor.value._create_view(shape))
    return builder.emit(relax.op.reshape(tensor, shape))


def _elements(node: Node, number: int) -> int:
    sizes = [tvm_compat.as_int(size) for size in node.shape(number)]
    if None in sizes:
        raise node.refused(f"the shape of its operand {number} is not known")
    return math.prod(size or 0 for size in sizes)


def _check(node: Node, number: int, shape: Sequence[int]) -> None:
    if _elements(node, number) != math.prod(shape):
        listed = "x".join(map(str, shape))
        raise node.refused(f"its operand {number} has not the {listed} elements that it should")


def _read_bits(node: Node) -> int:
    bits = int(read_attribute(node, "bits", 4))
    if bits not in _BITS:
        raise node.refused(f"its weights have {bits} bits, and have to have 2, 4 or 8")
    return bits


def _read_block(node: Node, usual: int) -> int:
    block = int(read_attribute(node, "block_size", usual))
    if block < 16 or block & (block - 1):
        raise node.refused(f"its blocks have {block} numbers: no power of two from 16 on")
    return block


def _product(node: Node, builder: Any) -> Any:
    """`MatMulNBits`."""
    from tvm import relax

    emit, x = builder.emit, node.operand(0)
    if read_attribute(node, "weight_prepacked", 0):
        raise node.refused("its weights are packed for one kind of device")
    columns, depth = (int(read_attribute(node, name, 0)) for name in ("N", "K"))
    if not x.dims or not node.arithmetic.equal(x.dims[-1], depth):
        raise node.refused(f"its rows are not of {depth} numbers")
    weights = _unpacked(node, builder, x.dtype, columns, depth)
    found = emit(relax.op.matmul(x.tensor(builder), weights, out_dtype=WIDE))
    if has(node, 5):
        found = emit(relax.op.add(found, in_type(builder, node.tensor(5, builder), WIDE)))
    return in_type(builder, found, x.dtype)


def _unpacked(node: Node, builder: Any, dtype: str, columns: int, depth: int) -> Any:
    """The weights of a product, of (depth, columns)."""
    bits, block = _read_bits(node), _read_block(node, 0)
    blocks, blob = -(-depth // block), block * bits // 8
    _check(node, 1, (columns, blocks, blob))
    _check(node, 2, (columns, blocks))
    codes = Codes(_shaped(builder, node.operand(1), (columns, blocks * blob)), bits)
    scales = _shaped(builder, node.operand(2), (columns, blocks))
    zeros = _read_zeros(node, builder, bits, (columns, blocks))
    groups = node.operand(4).tensor(builder) if has(node, 4) else None
    if groups is not None and _elements(node, 4) < depth:
        raise node.refused("its g_idx has too few numbers")
    may_round = int(read_attribute(node, "accuracy_level", 0)) == IN_BYTES
    matrix = Matrix(codes, scales, depth, columns, block, zeros, groups)
    return emit_matrix(builder, matrix, dtype, rounds_rows=may_round)


def _read_zeros(node: Node, builder: Any, bits: int, shape: Sequence[int]) -> Codes | None:
    """What stands for zero in each block: packed, or floats; None where it is the middle one.

    Args:
        shape: of the scales.
    """
    if not has(node, 3):
        return None
    zeros = node.operand(3)
    if not is_float(zeros.dtype) and zeros.dtype != "uint8":
        raise node.refused(f"its zero points are of {zeros.kind}")
    packed = zeros.dtype == "uint8"
    whole = (*shape[:-1], -(-shape[-1] * bits // 8)) if packed else (*shape,)
    _check(node, 3, whole)
    return Codes(_shaped(builder, zeros, whole), bits)


def _pack(node: Node, number: int) -> Codes:
    """An operand of a type of less than a byte, packed."""
    value, array = node.operand(number), node.array(number)
    if value.narrow not in FIRST or array is None:
        raise node.refused(f"its operand {number} is of {value.kind}, or is not known")
    return pack(array, value.narrow)


def _rows(node: Node, builder: Any) -> Any:
    """`GatherBlockQuantized`."""
    data, scale = node.operand(0), node.operand(2)
    shape = [tvm_compat.as_int(size) for size in node.shape(0)]
    if None in shape or not is_float(scale.dtype):
        raise node.refused("its table has a shape that is not known, or no scales")
    sizes = [size or 0 for size in shape]
    if data.kind == "uint8":
        bits = _read_bits(node)
        codes, zero = Codes(data.tensor(builder), bits), 2.0 ** (bits - 1)
        sizes[-1] *= 8 // bits
    elif data.narrow in FIRST:
        bits = count_bits(data.narrow)
        codes, zero = _pack(node, 0), float(-FIRST[data.narrow])
    else:
        raise node.refused(f"its table is of {data.kind}")
    rank = len(sizes)
    gathered = node.axis_within(int(read_attribute(node, "gather_axis", 0)), rank)
    along = node.axis_within(int(read_attribute(node, "quantize_axis", 1)), rank)
    block = _read_block(node, 128)
    scaled = [*sizes]
    scaled[along] = -(-sizes[along] // block)
    _check(node, 2, scaled)
    zeros: Codes | None = None
    if has(node, 3):
        narrow = node.operand(3).narrow
        zeros = _pack(node, 3) if narrow else _read_zeros(node, builder, bits, scaled)
    axes = _Axes(gathered, along, block, sizes)
    return _gather(node, builder, codes, zeros if zeros is not None else zero, axes)


@dataclass(frozen=True, slots=True)
class _Axes:
    """Of a table of blocks: which axis is read by number, which is in blocks of how many numbers,
    and how long all are."""

    gathered: int
    along: int
    block: int
    sizes: Sequence[int]


def _gather(node: Node, builder: Any, codes: Codes, zeros: Codes | float, axes: _Axes) -> Any:
    from tvm import te, tirx

    scale, rank = node.operand(2), len(node.shape(1))
    most = axes.sizes[axes.gathered]
    front, back = axes.sizes[: axes.gathered], axes.sizes[axes.gathered + 1 :]

    def read(table: Any, scales: Any, indices: Any, *rest: Any) -> Any:
        def number(*place: Any) -> Any:
            before, after = len(front), len(front) + rank
            index = indices[place[before:after]].astype("int64")
            index = tirx.Select(index < 0, index + most, index)
            whole = [*place[:before], within(index, most), *place[after:]]
            group = [*whole]
            group[axes.along] = whole[axes.along] // axes.block
            zero = zeros if isinstance(zeros, float) else zeros.read(rest[0], group)
            real = (codes.read(table, whole) - zero) * scales[tuple(group)].astype(WIDE)
            inside = tirx.all(index >= 0, index < most)
            return tirx.Select(inside, real, tirx.const(0, WIDE)).astype(scale.dtype)

        # Sizes of a program are its own, and not those of the graph.
        return te.compute([*front, *indices.shape, *back], number, name="unpacked")

    more = [] if isinstance(zeros, float) else [zeros.tensor]
    operands = [codes.tensor, scale.tensor(builder), node.tensor(1, builder), *more]
    return emit_unpacked(builder, read, *operands)


PACKED: Mapping[str, Convert] = MappingProxyType(
    {"GatherBlockQuantized": _rows, "MatMulNBits": _product}
)
