"""How an operand of a product reaches shared memory: by a tensor map, or by threads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd
from typing import Any

from spaces.templates.products.layout import UNIT
from spaces.templates.products.product import Product
from spaces.templates.products.source import Source, keep_apart
from spaces.templates.tensor_cores.cluster import Share
from spaces.templates.tensor_cores.tensor_map import encode_map, read_dimensions
from spaces.templates.tensor_cores.tile import (
    HELD,
    HELD_OF_WINDOWS,
    LINE_BYTES,
    PATTERN_BYTES,
    SINGLES,
    WORD_BYTES,
    element_of,
)

_LOAD = "cp.async.bulk.tensor.{}d.shared::cluster.global.mbarrier::complete_tx::bytes"
_TO_ALL = ".multicast::cluster"


class Operand:
    """The tiles of one operand.

    A tile lies in pieces, one behind the other, of lines of 128 bytes. Where the terms of a sum are
    dense a line has those of one row; else rows of one term, in 64 bytes where there are so few.

    Args:
        T: TVM's script.
        rows: of a block's tile, or columns; `lines` those of a piece, where terms are dense.
        threads: that copy.
    """

    def __init__(
        self, T: Any, source: Source, *, rows: int, lines: int, depth: int, threads: int
    ) -> None:
        self._t, self.source, self._threads = T, source, threads
        self.rows, self.depth = rows, depth
        self._element = element_of(source.kind)
        self._line = gcd(rows, self._element.line) if source.turned else self._element.line
        self._lines = depth if source.turned else lines
        self._aimed: list[Mapping[int, Any]] = []

    def allocate(self, pool: Any, stages: int) -> None:
        """Make room for tiles."""
        shape = (stages, self.rows * self.depth)
        self.stages = pool.alloc(shape, self.source.kind, align=PATTERN_BYTES)

    @property
    def is_ahead(self) -> bool:
        """Whether threads begin copies of it and need not wait: 16 bytes each time, or 4."""
        return self.source.in_units or self._element.bytes >= WORD_BYTES

    def aim(self, thread: Any, row: Any) -> None:
        """Find out for the tiles from a row on where that is which a thread copies from, if it
        takes work to know."""
        if self.source.take_apart is None or not self.source.in_units:
            return
        each = UNIT // self._element.bytes
        turns = range(-(-self.rows * self.depth // (each * self._threads)))
        rows = (self._find_piece(thread + turn * self._threads, each)[0] for turn in turns)
        self._aimed = keep_apart(self._t, [self.source.take_apart(row + r) for r in rows])

    def move(
        self,
        thread: Any,
        stage: Any,
        row: Any,
        term: Any,
        batch: Mapping[int, Any],
        own: Mapping[str, Any],
    ) -> None:
        """Begin to copy a tile by threads, or have it copied, as it lies in memory.

        Args:
            own: see `allocate_held`.
        """
        if self.is_ahead:
            self.copy(thread, stage, row, term, batch)
        else:
            self.fill(thread, stage, row, term, batch, own[self.source.kind])

    def copy(self, thread: Any, stage: Any, row: Any, term: Any, batch: Mapping[int, Any]) -> None:
        """Have a tile copied by threads (PTX ISA, "cp.async")."""
        T = self._t
        first = (stage, row, term, batch)
        if not self.source.in_units:
            turns = self.rows * self.depth // self._threads
            with T.serial(turns) as turn:
                T.evaluate(self._copy_piece(thread + turn * self._threads, 1, *first))
            return
        each = UNIT // self._element.bytes
        total = self.rows * self.depth // each
        for turn in range(-(-total // self._threads)):
            number = thread + turn * self._threads
            aimed = self._aimed[turn] if self._aimed else None
            copy = self._copy_piece(number, each, *first, aimed)
            if total % self._threads and turn == total // self._threads:
                with T.If(number < total), T.Then():
                    T.evaluate(copy)
            else:
                T.evaluate(copy)

    def _copy_piece(
        self,
        number: Any,
        each: int,
        stage: Any,
        row: Any,
        term: Any,
        batch: Mapping[int, Any],
        aimed: Mapping[int, Any] | None = None,
    ) -> Any:
        """The copy of so many elements next to one another, by their number in a tile; zeros where
        they lie beyond the tensor.

        Args:
            aimed: what `aim` has found.
        """
        T, item = self._t, self._element.bytes
        r, t = self._find_piece(number, each)
        place = (row + r, term + t)
        near, far = place if aimed is None else (aimed, place[1])
        beyond = (self.source.size - place[0], self.source.terms - place[1])
        left, other = beyond if self.source.turned else beyond[::-1]
        inside = T.And(left > 0, other > 0)
        if self.source.inside is not None:
            inside = T.And(inside, self.source.inside(near, far, batch))
        whole = T.max(T.min(T.Cast("int32", left), each), 0) * item
        size = T.Cast("uint32", T.if_then_else(inside, whole, 0))
        if aimed is None:  # else at any place: where the size is 0, nothing is read
            near, far = (T.if_then_else(inside, T.Cast("int32", x), 0) for x in place)
        source = self.source.point(T, near, far, batch)
        where = self.stages.ptr_to([stage, self.offset(r, t)])
        kept = "cg" if each * item == UNIT else "ca"
        return T.ptx[f"cp.async.{kept}.shared.global"](where, source, each * item, size)

    def _find_piece(self, number: Any, each: int) -> tuple[Any, Any]:
        """The row and the term in a tile at which so many elements begin, by their number."""
        along = (self.rows if self.source.turned else self.depth) // each
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
        with T.serial(self.rows * self.depth // (self._threads * held)) as turn:

            def place(i: Any) -> tuple[Any, Any]:
                return self._find_piece((turn * held + i) * self._threads + thread, 1)

            with T.unroll(held) as i:
                r, t = place(i)
                T.buffer_store(own, self._read(row + r, term + t, batch), [i])
            with T.unroll(held) as i:
                T.buffer_store(self.stages, own[i], [stage, self.offset(*place(i))])

    def count_held(self) -> int:
        """Elements that a thread has under way in registers; none where it may copy ahead."""
        if self.is_ahead:
            return 0
        most = HELD if self.source.take_apart is None else HELD_OF_WINDOWS
        return gcd(self.rows * self.depth // self._threads, most)

    def describe(self, row: int, term: int) -> int:
        """Units of 16 bytes from the start of a warpgroup's rows to what an instruction reads."""
        line = self._line
        if self.source.turned:
            lines = row // line * self.depth + term
            return lines * LINE_BYTES // UNIT
        lines = term // line * self._lines + row
        return (lines * LINE_BYTES + term % line * self._element.bytes) // UNIT

    def _read(self, row: Any, term: Any, batch: Mapping[int, Any]) -> Any:
        """An element; zero beyond the tensor."""
        T = self._t
        inside = T.And(row < self.source.size, term < self.source.terms)
        if self.source.inside is not None:
            inside = T.And(inside, self.source.inside(row, term, batch))
        element = self.source.read(row, term, batch)
        return T.if_then_else(inside, element, T.Cast(self.source.kind, 0.0))

    def offset(self, row: Any, term: Any) -> Any:
        """Where an element of a tile lies, by the swizzle of its line."""
        along, line = (row, term) if self.source.turned else (term, row)
        size, each = self._line, UNIT // self._element.bytes
        if self.source.turned:
            first = along // size * self._lines + line
        else:
            first = (line // self._lines * (self.depth // size) + along // size) * self._lines
            first = first + line % self._lines
        unit = along % size // each ^ self._turn_units(first, size // each)
        return first * size + unit * each + along % each

    def _turn_units(self, line: Any, units: int) -> Any:
        """What the numbers of a line's units are changed by, so that what a warp reads at once lies
        in other banks: as tensor maps do, for eight lines that follow one another. Of turned lines
        it reads two units of each of four by words, of bytes each other pair of 16
        (`spaces.templates.tensor_cores.elements.byte_fragments`).
        """
        if self.source.turned and self._element is SINGLES:
            return line % 4 * 2
        if self.source.turned and self._element.bytes == 1:
            pair = line // 4 % 4
            return pair if units == LINE_BYTES // UNIT // 2 else pair * 2 + line % 2
        return line % (LINE_BYTES // UNIT)


def allocate_held(T: Any, sides: Sequence[Operand]) -> dict[str, Any]:
    """Registers of a thread for what it copies by itself, by the type of elements."""
    found: dict[str, int] = {}
    for side in sides:
        if held := side.count_held():
            found[side.source.kind] = max(held, found.get(side.source.kind, 0))
    return {kind: T.alloc_buffer((held,), kind, scope="local") for kind, held in found.items()}


class MappedOperand(Operand):
    """Tiles that tensor maps copy, where one describes the operand.

    Args:
        number: of the product's operands.
        blocks: of a cluster, which share the copies of a tile.
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
        blocks: int,
    ) -> None:
        super().__init__(T, source, rows=rows, lines=lines, depth=depth, threads=threads)
        self._own = self._lines // blocks
        dims = [axis.dims[number] for axis in product.c.axes]
        batch = (*product.batch, *product.looked_up)
        self._batch = tuple(a for a in batch if dims[a] is not None)
        self.is_mapped = product.mapped[number]
        if self.is_mapped:
            tiled, terms = product.axes_of(number), product.terms
            first = [tiled, terms] if source.turned else [terms, tiled]
            apart = ((axis,) for axis in self._batch)
            found = read_dimensions(source.tensor, dims, [*first, *apart])
            self._rank = len(found)
            # Warpgroups multiply float32 as TF32 alone, and cut off what it does not hold.
            rounds = self._element is SINGLES
            box = [self._line, self._own]
            self._map = encode_map(T, source.tensor, found, box, rounds=rounds)

    def load(
        self, stage: Any, row: Any, term: Any, batch: Mapping[int, Any], barrier: Any, share: Share
    ) -> None:
        """Have a block's share copied of a tile that begins at a row and a term: lines of each
        piece. A barrier, at the same place in each block that gets them, counts their bytes."""
        T, lines, size = self._t, self._lines, self._line
        others = [batch[axis] for axis in self._batch]
        if self.source.turned:
            pieces = [[row + at, term] for at in range(0, self.rows, size)]
        else:
            pieces = [
                [term + line, row + at]
                for at in range(0, self.rows, lines)
                for line in range(0, self.depth, size)
            ]
        load, masks = _LOAD.format(self._rank), []
        if share.blocks > 1:
            load, masks = load + _TO_ALL, [share.mask]
        first = share.number * self._own
        for number, (dense, line) in enumerate(pieces):
            where = self.stages.ptr_to([stage, (number * lines + first) * size])
            T.evaluate(T.ptx[load](where, self._map, dense, line + first, *others, barrier, *masks))
