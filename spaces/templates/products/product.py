"""A contraction as rows by columns, and how its tensors lie in memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd, prod
from typing import Any

import numpy as np

from spaces.ir import rewrite, tvm_compat
from spaces.ir.symbolic import NO_VALUES
from spaces.templates.contraction.match import Match, describe, factors
from spaces.templates.contraction.shape import Contraction

UNIT = 16
"""Bytes of the widest load, and of what swizzles keep together; strides in tensor maps are
multiples of it."""
_MOST_DIMENSIONS = 5
"""Of a tensor map (CUDA driver API, "Tensor Map Object Managment")."""
_ITEMS = (16, 32)
_BYTES = ("int8", "uint8")
_FLOAT_SUMS = ("float16", "bfloat16", "float32")
"""Types of sums that may as well be in float32."""


@dataclass(frozen=True, slots=True)
class Product:
    """Sums of products of rows and columns.

    Attributes:
        c: the contraction; its operands are taken in the order in which the program reads them.
        reduction: the axis that is summed over.
        turned: for each operand whether its rows, or columns, are what lies next to one another, in
            place of the terms of a sum.
        mapped: for each operand whether a tensor map describes it.
        kind: type of both operands' elements; of bytes, of which one may have signs and the other
            none, the first one's.
        out_bits: size of an element of what is stored.
        out_dense: the axis along which the result is dense; None where no tensor map describes it.
    """

    c: Contraction
    reduction: int
    turned: tuple[bool, bool]
    mapped: tuple[bool, bool]
    kind: str
    out_bits: int
    out_dense: int | None

    def of(self, c: Contraction) -> Product:
        """The same product, its axes in the same roles, of other extents."""
        return replace(self, c=c)

    def axes_of(self, operand: int) -> tuple[int, ...]:
        """The axes, fused, of an operand's rows or columns; none where it has one row."""
        return self.c.rows if operand == self.c.rows_of else (self.c.column,)

    def extent(self, operand: int) -> Any:
        """The number of rows, or of columns, of an operand."""
        return prod((self.c.axes[axis].extent for axis in self.axes_of(operand)), start=1)

    def sides(self, swap: Any) -> tuple[int, int]:
        """The operand that is A of a setting, and the one that is B."""
        c = self.c
        return (c.columns_of, c.rows_of) if swap else (c.rows_of, c.columns_of)

    def dense_axis(self, operand: int) -> int | None:
        """The axis along which an operand's terms, or its rows where it is turned, lie."""
        return (self.axes_of(operand) or (None,))[-1] if self.turned[operand] else self.reduction

    def widest(self, operand: int) -> int:
        """Elements of the widest load with which the dense axis of an operand is read in whole
        loads, each of which begins at a multiple of its size."""
        axis = self.dense_axis(operand)
        if axis is None or self.c.axes[axis].symbolic:
            return 1
        # Of several shapes that are estimated together a known extent is that of each.
        extent = int(np.max(self.c.axes[axis].extent))
        return gcd(extent, UNIT * 8 // self.c.operands[operand].bits)

    @property
    def batch(self) -> tuple[int, ...]:
        """The axes of which no tile takes a part."""
        return tuple(axis for axis in self.c.outer if not self.c.axes[axis].single)

    @property
    def batch_extent(self) -> Any:
        """The number of products."""
        return prod((self.c.axes[axis].extent for axis in self.batch), start=1)

    @property
    def depth(self) -> Any:
        """The number of terms of a sum."""
        return self.c.axes[self.reduction].extent


def find_product(
    match: Match, kinds: Collection[str], values: Mapping[str, int] = NO_VALUES
) -> Product | None:
    """A program's contraction as a product of matrices; None where it is none.

    Args:
        kinds: types of elements that may be multiplied.
        values: sizes of symbolic dimensions, the shape for which it is estimated.
    """
    loads = factors(match.main)
    parameters = list(match.schedule.mod["main"].params)
    if loads is None or not all(rewrite.is_among(load.source, parameters) for load in loads):
        return None
    buffers = [loads[0].source, loads[1].source, _result(match)]
    kind, other = (str(buffer.dtype) for buffer in buffers[:2])
    if not {kind, other} <= {*kinds} or not _sums_in_full(match.main, kind, other):
        return None
    ways = (_read(c, kind, buffers) for c in describe(match, values))
    return next((way for way in ways if way is not None), None)


def _sums_in_full(block: Any, kind: str, other: str) -> bool:
    """Whether sums begin at zero, and not with a bias, and their products may be as exact as those
    of tensor cores: of floats of one type, or of bytes that are widened to int32 each."""
    from tvm.tirx import Cast, FloatImm, IntImm

    first, sums = getattr(block.init, "value", None), str(block.body.buffer.dtype)
    if not isinstance(first, (FloatImm, IntImm)) or float(first.value) != 0.0:
        return False
    if kind not in _BYTES or other not in _BYTES:
        return kind == other and sums in _FLOAT_SUMS
    product = rewrite.find_product(block.body)
    widened = [f for f in (product.a, product.b) if isinstance(f, Cast)]
    alone = [f for f in widened if rewrite.uncast(f).same_as(f.value)]
    return sums == str(product.ty.dtype) == "int32" and len(alone) == 2


def _result(match: Match) -> Any:
    last = match.stages.last
    block = match.main if last is None else match.schedule.get(last)
    return block.writes[0].source


def _read(c: Contraction, kind: str, buffers: Sequence[Any]) -> Product | None:
    reductions = [axis for axis in c.reduce_axes if not c.axes[axis].single]
    if not (c.plain and c.broadcasts and c.epilogue_keeps_shape) or len(reductions) != 1:
        return None
    if any(operand.staged for operand in c.operands):
        return None
    outs = [axis.out_dim for axis in c.axes]
    out_bits = tvm_compat.element_bits(buffers[2].dtype)
    out_dense = _dense_axis(c, outs)
    is_stored = out_bits in _ITEMS and out_dense in (c.column, *c.rows[-1:])
    if not (is_stored and _is_mapped(c, outs, buffers[2])):
        out_dense = None
    turned, mapped = [], []
    for operand in range(2):
        dims = [axis.dims[operand] for axis in c.axes]
        dense = _dense_axis(c, dims)
        tiled = c.rows[-1:] if operand == c.rows_of else (c.column,)
        if dense not in (reductions[0], *tiled):
            return None
        turned.append(dense != reductions[0])
        mapped.append(_is_mapped(c, dims, buffers[operand]))
    both = (turned[0], turned[1]), (mapped[0], mapped[1])
    return Product(c, reductions[0], *both, kind, out_bits, out_dense)


def _several(c: Contraction, dims: Sequence[int | None]) -> dict[int, int]:
    """The axis of each dimension of a buffer that has more than one element."""
    return {dim: a for a, dim in enumerate(dims) if dim is not None and not c.axes[a].single}


def _dense_axis(c: Contraction, dims: Sequence[int | None]) -> int | None:
    """The axis along which a buffer's elements follow one another."""
    several = _several(c, dims)
    return several[max(several)] if several else None


def _is_mapped(c: Contraction, dims: Sequence[int | None], buffer: Any) -> bool:
    """Whether a tensor map describes a buffer: the strides of all dimensions but the dense one are
    multiples of 16 bytes, for every size of those that are open."""
    sizes = [tvm_compat.as_int(size) or 1 for size in buffer.shape]
    bits = tvm_compat.element_bits(buffer.dtype)
    several = _several(c, dims)
    own = {dim: axis for dim, axis in several.items() if axis not in c.rows[:-1]}
    strides = [prod(sizes[dim + 1 :]) * bits for dim in own if dim != max(several)]
    return len(own) <= _MOST_DIMENSIONS and not any(stride % (UNIT * 8) for stride in strides)
