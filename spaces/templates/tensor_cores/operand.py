"""How an operand of a product reaches shared memory: by a tensor map, or by threads."""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd
from typing import Any

from spaces.templates.products.layout import UNIT
from spaces.templates.products.product import Product
from spaces.templates.products.source import Source
from spaces.templates.tensor_cores.tensor_map import encode_map, read_dimensions
from spaces.templates.tensor_cores.tile import (
    HELD,
    HELD_OF_WINDOWS,
    ITEM,
    LINE,
    LINE_BYTES,
    PATTERN_BYTES,
)
from spaces.templates.thread_program import keep

_LOAD = "cp.async.bulk.tensor.{}d.shared::cluster.global.mbarrier::complete_tx::bytes"


class Operand:
    """The tiles of one operand.

    A tile lies in pieces, one behind the other, of lines of 128 bytes. Where the terms of a sum are
    dense a line has 64 of one row; else 64 rows of one term.

    Args:
        T: TVM's script.
        rows: of a block's tile, or columns; `lines` those of a piece, where terms are dense.
        threads: that copy.
    """

    def __init__(
        self, T: Any, source: Source, *, rows: int, lines: int, depth: int, threads: int
    ) -> None:
        self._t, self.source, self._threads = T, source, threads
        self.rows, self._depth = rows, depth
        self._lines = depth if source.turned else lines
        self._aimed: list[Mapping[int, Any]] = []

    def allocate(self, pool: Any, stages: int) -> None:
        """Make room for tiles."""
        shape = (stages, self.rows * self._depth)
        self.stages = pool.alloc(shape, self.source.kind, align=PATTERN_BYTES)

    def aim(self, thread: Any, row: Any) -> None:
        """Find out for the tiles from a row on where that is which a thread copies from, if it
        takes work to know."""
        if self.source.take_apart is None or not self.source.in_units:
            return
        turns = range(-(-self.rows * self._depth * ITEM // UNIT // self._threads))
        rows = (self._find_unit(thread, turn)[0] for turn in turns)
        apart = [self.source.take_apart(row + r) for r in rows]
        known = iter(keep(self._t, [place for at in apart for place in at.values()]))
        self._aimed = [{axis: next(known) for axis in at} for at in apart]

    def copy(self, thread: Any, stage: Any, row: Any, term: Any, batch: Mapping[int, Any]) -> None:
        """Have a tile copied by threads, 16 bytes each time (PTX ISA, "cp.async")."""
        T, each = self._t, UNIT // ITEM
        total = self.rows * self._depth // each
        for turn in range(-(-total // self._threads)):
            r, t = self._find_unit(thread, turn)
            place = (row + r, term + t)
            at = self._aimed[turn] if self._aimed else place[0]
            beyond = (self.source.size - place[0], self.source.terms - place[1])
            left, other = beyond if self.source.turned else beyond[::-1]
            inside = T.And(left > 0, other > 0)
            if self.source.inside is not None:
                inside = T.And(inside, self.source.inside(at, place[1], batch))
            whole = T.max(T.min(T.Cast("int32", left), each), 0) * ITEM
            size = T.Cast("uint32", T.if_then_else(inside, whole, 0))
            if self._aimed:  # at any place: where the size is 0, nothing is read
                near, far = at, place[1]
            else:
                near, far = (T.if_then_else(inside, T.Cast("int32", x), 0) for x in place)
            source = self.source.tensor.ptr_to(self.source.index(near, far, batch))
            where = self.stages.ptr_to([stage, self.offset(r, t)])
            copy = T.ptx["cp.async.cg.shared.global"](where, source, UNIT, size)
            if total % self._threads and turn == total // self._threads:
                with T.If(thread + turn * self._threads < total), T.Then():
                    T.evaluate(copy)
            else:
                T.evaluate(copy)

    def _find_unit(self, thread: Any, turn: int) -> tuple[Any, Any]:
        """The row and the term in a tile at which begins what a thread copies in a turn."""
        each = UNIT // ITEM
        along = (self.rows if self.source.turned else self._depth) // each
        number = thread + turn * self._threads
        dense, line = number % along * each, number // along
        return (dense, line) if self.source.turned else (line, dense)

    def fill(
        self, thread: Any, stage: Any, row: Any, term: Any, batch: Mapping[int, Any], own: Any
    ) -> None:
        """Copy a tile by threads element by element, neighbours next to each other: its rows begin
        anywhere.

        Args:
            own: registers of a thread, `count_held` of them.
        """
        T = self._t
        held = self.count_held()
        dense = self.rows if self.source.turned else self._depth
        with T.serial(self.rows * self._depth // (self._threads * held)) as turn:

            def place(i: Any) -> tuple[Any, Any]:
                number = (turn * held + i) * self._threads + thread
                along, across = number % dense, number // dense
                return (along, across) if self.source.turned else (across, along)

            with T.unroll(held) as i:
                r, t = place(i)
                T.buffer_store(own, self._read(row + r, term + t, batch), [i])
            with T.unroll(held) as i:
                T.buffer_store(self.stages, own[i], [stage, self.offset(*place(i))])

    def count_held(self) -> int:
        """Elements that a thread has under way; none where a map describes the operand."""
        if self.source.in_units:
            return 0
        most = HELD if self.source.take_apart is None else HELD_OF_WINDOWS
        return gcd(self.rows * self._depth // self._threads, most)

    def describe(self, row: int, term: int) -> int:
        """Units of 16 bytes from the start of a warpgroup's rows to what an instruction reads."""
        if self.source.turned:
            lines = row // LINE * self._depth + term
            return lines * LINE_BYTES // UNIT
        lines = term // LINE * self._lines + row
        return (lines * LINE_BYTES + term % LINE * ITEM) // UNIT

    def _read(self, row: Any, term: Any, batch: Mapping[int, Any]) -> Any:
        """An element; zero beyond the tensor."""
        T = self._t
        inside = T.And(row < self.source.size, term < self.source.terms)
        if self.source.inside is not None:
            inside = T.And(inside, self.source.inside(row, term, batch))
        element = self.source.tensor[tuple(self.source.index(row, term, batch))]
        return T.if_then_else(inside, element, T.Cast(self.source.kind, 0.0))

    def offset(self, row: Any, term: Any) -> Any:
        """Where an element of a tile lies, by the swizzle of its line."""
        along, line = (row, term) if self.source.turned else (term, row)
        if self.source.turned:
            first = along // LINE * self._lines + line
        else:
            first = (line // self._lines * (self._depth // LINE) + along // LINE) * self._lines
            first = first + line % self._lines
        each = UNIT // ITEM
        unit = along % LINE // each ^ first % (LINE_BYTES // UNIT)
        return first * LINE + unit * each + along % each


class MappedOperand(Operand):
    """Tiles that tensor maps copy, where one describes the operand.

    Args:
        number: of the product's operands.
    """

    def __init__(
        self,
        T: Any,
        product: Product,
        number: int,
        source: Source,
        *,
        rows: int,
        lines: int,
        depth: int,
        threads: int,
    ) -> None:
        super().__init__(T, source, rows=rows, lines=lines, depth=depth, threads=threads)
        dims = [axis.dims[number] for axis in product.c.axes]
        self._batch = tuple(a for a in product.batch if dims[a] is not None)
        self.is_mapped = product.mapped[number]
        if self.is_mapped:
            tiled, terms = product.axes_of(number), product.terms
            first = [tiled, terms] if source.turned else [terms, tiled]
            batch = ((axis,) for axis in self._batch)
            found = read_dimensions(source.tensor, dims, [*first, *batch])
            self._rank = len(found)
            self._map = encode_map(T, source.tensor, found, [LINE, self._lines])

    def load(self, stage: Any, row: Any, term: Any, batch: Mapping[int, Any], barrier: Any) -> None:
        """Have a tile copied that begins at a row and a term; a barrier counts its bytes."""
        T, lines = self._t, self._lines
        others = [batch[axis] for axis in self._batch]
        if self.source.turned:
            pieces = [[row + at, term] for at in range(0, self.rows, LINE)]
        else:
            pieces = [
                [term + line, row + at]
                for at in range(0, self.rows, lines)
                for line in range(0, self._depth, LINE)
            ]
        load = T.ptx[_LOAD.format(self._rank)]
        for number, place in enumerate(pieces):
            where = self.stages.ptr_to([stage, number * lines * LINE])
            T.evaluate(load(where, self._map, *place, *others, barrier))
