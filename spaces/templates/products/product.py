"""A contraction as rows by columns, and how its tensors lie in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd, prod
from typing import Any

import numpy as np

from spaces.ir import rewrite
from spaces.ir.symbolic import NO_VALUES
from spaces.templates.contraction.match import Match, factors
from spaces.templates.contraction.shape import Contraction
from spaces.templates.products.layout import UNIT, Layout, result_window
from spaces.templates.products.packed import Packed, find_width
from spaces.templates.products.roles import find_ways, split_extents
from spaces.templates.products.windows import LookUp, Reading, Window, read_windows

_ITEMS = (16, 32)
_BYTES = ("int8", "uint8")
BYTE_FLOATS = ("float8_e4m3fn", "float8_e5m2")
FLOATS = ("float16", "bfloat16", "float32")
"""Types of factors, and of sums that may as well be in float32."""
KINDS = frozenset({*_BYTES, *BYTE_FLOATS, *FLOATS})
"""Types of elements that may be multiplied."""


@dataclass(frozen=True, slots=True)
class Product:
    """Sums of products of rows and columns.

    Attributes:
        c: the contraction; its operands are taken in the order in which the program reads them.
        terms: the axes that are summed over, fused, outer to inner.
        windows: how each operand is indexed.
        turned: for each operand whether its rows, or columns, are what lies next to one another, in
            place of the terms of a sum.
        in_units: for each operand whether what lies next to one another begins at multiples of 16
            bytes.
        mapped: for each operand whether a tensor map describes it.
        packed: for each operand what it is made of where it is packed; then it is neither of both.
        packed_widths: elements of the widest vectors of such operands; 0 of others.
        kind: type of both operands' elements; of bytes, of which one may have signs and the other
            none, or another float's form, the first one's.
        sums: type that the program sums in.
        out_bits: size of an element of what is stored.
        out_dense: the axis along which the result is dense; None where no tensor map describes it.
        look_up: what says for each row which of a stack of matrices it is multiplied by, if
            anything does. The operand of columns is that stack.
    """

    c: Contraction
    terms: tuple[int, ...]
    windows: tuple[Window, Window]
    turned: tuple[bool, bool]
    in_units: tuple[bool, bool]
    mapped: tuple[bool, bool]
    packed: tuple[Packed | None, Packed | None]
    packed_widths: tuple[int, int]
    kind: str
    sums: str
    out_bits: int
    out_dense: int | None
    look_up: LookUp | None = None

    def of(self, extents: Sequence[Any]) -> Product:
        """The same product, its axes in the same roles, of other extents of the block's axes."""
        return replace(self, c=self.c.of_extents(split_extents(self.c, extents)))

    def axes_of(self, operand: int) -> tuple[int, ...]:
        """The axes, fused, of an operand's rows or columns; none where it has one row."""
        return self.c.rows if operand == self.c.rows_of else (self.c.column,)

    def extent(self, operand: int) -> Any:
        """The number of rows, or of columns, of an operand."""
        return prod((self.c.axes[axis].extent for axis in self.axes_of(operand)), start=1)

    def elements(self, operand: int) -> Any:
        """The number of elements that an operand is read from: of windows that share them, fewer
        than rows by terms."""
        found: Any = self.count_read(operand)
        spans: Any = 1.0
        for index in self.windows[operand]:
            steps = [abs(s) * (self.c.axes[axis].extent - 1) for axis, s in index.steps]
            spans = spans * np.maximum(sum(steps) + 1 + 2 * min(index.first, 0), 1)
        return np.minimum(spans, found)

    def count_read(self, operand: int) -> Any:
        """The number of elements of an operand's rows by terms."""
        found = self.extent(operand) * self.depth * self.batch_extent
        return found * self.matrices if operand == self.c.columns_of else found

    @property
    def looked_up(self) -> tuple[int, ...]:
        """The axis of an index that is looked up, if there is one."""
        return () if self.look_up is None else (self.look_up.axis,)

    @property
    def matrices(self) -> Any:
        """Of those that rows look up, as many as they may have looked up: one where they do not."""
        rows = self.extent(self.c.rows_of)
        return 1 if self.look_up is None else np.minimum(self.look_up.size, np.maximum(rows, 1))

    def slides(self, operand: int) -> bool:
        """Whether rows of an operand are windows, each with an index of more than one axis or
        beyond the tensor."""
        return any(index.steps and index.axis is None for index in self.windows[operand])

    @property
    def plain(self) -> bool:
        """Whether both operands are matrices, or stacks of them: each index is an axis, and of the
        terms and the last axis of rows one lies next to one another."""
        alone = self.c.plain and len(self.terms) == 1
        staged = [operand.staged for operand in self.c.operands]
        if not alone or any(o for o, p in zip(staged, self.packed, strict=True) if p is None):
            return False
        dense = [[index.axis for index in window if index.steps] for window in self.windows]
        return all(axes[-1] == self.dense_axis(o) for o, axes in enumerate(dense))

    def sides(self, swap: Any) -> tuple[int, int]:
        """The operand that is A of a setting, and the one that is B."""
        c = self.c
        return (c.columns_of, c.rows_of) if swap else (c.rows_of, c.columns_of)

    def dense_axis(self, operand: int) -> int | None:
        """The axis along which an operand's terms, or its rows where it is turned, lie."""
        return (self.axes_of(operand) or (None,))[-1] if self.turned[operand] else self.terms[-1]

    def widest(self, operand: int) -> int:
        """Elements of the widest load with which an operand is read in whole loads along what lies
        next to one another, each of which begins at a multiple of its size."""
        dense = [self.dense_axis(operand)]
        if not self.plain:
            dense = [*(self.axes_of(operand) if self.turned[operand] else self.terms)]
            if not self.in_units[operand]:
                return 1
        known = [self.c.axes[axis] for axis in dense if axis is not None]
        # Of several shapes that are estimated together a known extent is that of each.
        extent = prod(int(np.max(axis.extent)) for axis in known if not axis.symbolic)
        widest = self.packed_widths[operand] or UNIT * 8 // self.c.operands[operand].bits
        return gcd(extent, widest)

    def item_bytes(self, operand: int) -> float:
        """Bytes that memory has for each element of an operand."""
        packed = self.packed[operand]
        return (self.c.operands[operand].bits if packed is None else packed.bits) / 8

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
        return prod(self.c.axes[axis].extent for axis in self.terms)


def find_product(match: Match, values: Mapping[str, int] = NO_VALUES) -> Product | None:
    """A program's contraction as a product of matrices, of types among `KINDS`; None where it is
    none.

    Args:
        values: sizes of symbolic dimensions, the shape for which it is estimated.
    """
    loads = factors(match.main)
    if loads is None:
        return None
    kinds = tuple(str(load.source.dtype) for load in loads)
    if not KINDS.issuperset(kinds) or not _sums_in_full(match.main, *kinds):
        return None
    reading = read_windows(match)
    if reading is None or tuple(str(source.dtype) for source in reading.sources) != kinds:
        return None
    widths = [0 if packed is None else find_width(packed) for packed in reading.packed]
    ways = [_read(match, c, reading, kinds[0], widths) for c in find_ways(match, reading, values)]
    found = [way for way in ways if way is not None]
    if any(reading.packed):
        found = [way for way in found if way.plain and way.kind in FLOATS]
    return next((way for way in found if way.plain), found[0] if found else None)


def _sums_in_full(block: Any, kind: str, other: str) -> bool:
    """Whether sums begin at zero, and not with a bias, and their products may be as exact as those
    of tensor cores: of floats of one type, or of bytes that are widened to int32 each; floats of 8
    bits to the type of the sums."""
    from tvm.tirx import Cast, FloatImm, IntImm

    first, sums = getattr(block.init, "value", None), str(block.body.buffer.dtype)
    if not isinstance(first, (FloatImm, IntImm)) or float(first.value) != 0.0:
        return False
    if {kind, other}.issubset(_BYTES):
        known: Sequence[str] = ("int32",)
    elif {kind, other}.issubset(BYTE_FLOATS):
        known = FLOATS
    else:
        return kind == other and sums in FLOATS
    product = rewrite.find_product(block.body)
    widened = [f for f in (product.a, product.b) if isinstance(f, Cast)]
    alone = [f for f in widened if rewrite.uncast(f).same_as(f.value)]
    return sums in known and sums == str(product.ty.dtype) and len(alone) == 2


def _result(match: Match) -> Any:
    last = match.stages.last
    block = match.main if last is None else match.schedule.get(last)
    return block.writes[0].source


def _read(
    match: Match, c: Contraction, reading: Reading, kind: str, widths: Sequence[int]
) -> Product | None:
    if not c.epilogue_keeps_shape or not _looks_up_rows(c, reading.look_up):
        return None
    extents = [axis.dom.extent for axis in match.main.iter_vars]
    terms = _order_terms(c, reading.windows[c.rows_of])
    if not terms:
        return None
    result = _result(match)
    out = Layout(c, extents, result, result_window(c))
    is_stored = out.bits in _ITEMS and out.dense & {c.column, *c.rows[-1:]}
    is_mapped = is_stored and out.is_mapped((c.rows, (c.column,)))
    turned, in_units, mapped = [], [], []
    for operand in range(2):
        tiled = c.rows if operand == c.rows_of else (c.column,)
        layout = Layout(c, extents, reading.sources[operand], reading.windows[operand])
        if not layout.dense & {*terms, *tiled}:
            return None
        turned.append(bool(layout.dense & {*tiled[-1:]}))
        dense = tiled if turned[-1] else terms
        in_units.append(reading.packed[operand] is None and layout.in_units(dense))
        mapped.append(in_units[-1] and layout.is_mapped((tiled, terms)))
    return Product(
        c=c,
        terms=terms,
        windows=reading.windows,
        turned=(turned[0], turned[1]),
        in_units=(in_units[0], in_units[1]),
        mapped=(mapped[0], mapped[1]),
        packed=reading.packed,
        packed_widths=(widths[0], widths[1]),
        kind=kind,
        sums=str(match.main.body.buffer.dtype),
        out_bits=out.bits,
        out_dense=next(iter(out.dense)) if is_mapped else None,
        look_up=reading.look_up,
    )


def _looks_up_rows(c: Contraction, look_up: LookUp | None) -> bool:
    """Whether nothing is looked up, or for each of the rows a matrix of columns."""
    if look_up is None:
        return True
    rows = () if c.axes[look_up.row].single else (look_up.row,)
    return look_up.operand == c.columns_of and c.rows == rows


def _order_terms(c: Contraction, windows: Window) -> tuple[int, ...]:
    """The axes that are summed over, in the order of the program's loops; one whose places lie next
    to one another in windows comes last, so that terms do."""
    terms = [axis for axis in c.reduce_axes if not c.axes[axis].single]
    steps = [dict(index.steps) for index in windows if index.steps]
    last = [axis for axis in terms if steps and steps[-1].keys() & {axis, *c.rows} == {axis}]
    return tuple([axis for axis in terms if axis not in last[:1]] + last[:1])
