"""How an operand of a product reaches shared memory, and from there a thread's registers."""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd
from typing import Any

from spaces.templates.products.layout import UNIT
from spaces.templates.products.source import Source
from spaces.templates.thread_products.knobs import ITEM, VECTOR
from spaces.templates.thread_products.places import Tile
from spaces.templates.thread_program import keep, narrow

_KIND = "float32"


class Operand:
    """The tiles of one operand in shared memory, and what a thread has read of them.

    The last tile of so many rows that are known ends with them, and shares some with the one before
    it. Else rows beyond the tensor are copies of its last one: what they give is not stored. Terms
    beyond it are zeros, in stages behind the last one too, so that no step is special.

    Args:
        T: TVM's script.
        dense: the dimension along which copies take several elements.
        threads: of a block.
        ahead: whether copies reach shared memory by themselves, or through registers.
        late: whether a thread reads factors into the registers of those that it has just used.
    """

    def __init__(
        self,
        T: Any,
        source: Source,
        dense: int | None,
        tile: Tile,
        *,
        threads: int,
        ahead: bool,
        late: bool,
    ) -> None:
        self._t, self.source, self._dense, self.tile = T, source, dense, tile
        self._threads, self._ahead = threads, ahead
        self._size, self._terms = narrow(T, source.size), narrow(T, source.terms)
        self._span = 1 if tile.turned else VECTOR
        self._buffers = 1 if late else 2
        self._of_buffer = tile.vectors * VECTOR * self._span
        self._turns = -(-tile.copies // threads)

    def allocate(self, pool: Any, stages: int) -> None:
        """Make room for tiles, and for what a thread has of them."""
        T, tile = self._t, self.tile
        self._stages = pool.alloc((stages, tile.rows * tile.depth), _KIND, align=UNIT)
        self._factors = T.alloc_buffer((self._buffers * self._of_buffer,), _KIND, scope="local")
        if not self._ahead:
            shape = (self._turns * tile.width,)
            self._held = T.alloc_buffer(shape, self.source.kind, scope="local")

    @property
    def is_whole(self) -> bool:
        """Whether all rows of each tile are within the tensor."""
        return isinstance(self._size, int) and self._size >= self.tile.rows

    def has(self, row: Any) -> Any:
        """Whether there is a row."""
        return row < self._size

    def begin_at(self, thread: Any, number: Any, batch: Mapping[int, Any]) -> Any:
        """Say which thread copies, and which tile; the tile's first row."""
        T, tile = self._t, self.tile
        self._batch = batch
        # Whoever reads or stores vectors has to see that they begin at multiples of their size.
        unit = gcd(self._size, VECTOR) if self.is_whole else VECTOR
        row = number * (tile.rows // unit)
        if self.is_whole:
            row = T.min(row, (self._size - tile.rows) // unit)
        (row,) = (own * unit for own in keep(T, [row]))
        self._copies = None if tile.copies >= self._threads else thread < tile.copies
        slot, term = tile.copy(thread)
        self._slot, self._term = slot, term
        first = row + tile.row(slot)
        self._rows = []
        for turn in range(self._turns):
            place = first + tile.row(tile.copy(turn * self._threads)[0])
            if not self.is_whole:
                place = T.min(place, self._size - (tile.width if tile.turned else 1))
            self._rows.append(place)
        return row

    def read_at(self, slot: Any) -> None:
        """Say which slot is that of the thread's first row."""
        self._first = self._t.Bind(slot)

    def copy(self, stage: Any, step: Any) -> None:
        """Begin to fill a stage (PTX ISA, "cp.async")."""
        for turn in range(self._turns):
            term = self._find_term(turn, step)
            if self._ahead:
                self._copy(turn, stage, term)
            else:
                with self._where_it_copies():
                    self._load(turn, term)

    def finish(self, stage: Any) -> None:
        """Store what registers hold."""
        T, tile = self._t, self.tile
        if self._ahead:
            return
        for turn in range(self._turns):
            first = turn * tile.width
            with self._where_it_copies():
                if tile.width == 1 or self.source.kind != _KIND:
                    for part in range(tile.width):
                        value = T.Cast(_KIND, self._held[first + part])
                        T.buffer_store(self._stages, value, [stage, self._place(turn) + part])
                else:
                    along = T.ramp(0, 1, tile.width)
                    value = self._held[first + along]
                    T.buffer_store(self._stages, value, [stage, self._place(turn) + along])

    def read(self, stage: Any, term: int) -> None:
        """Read a thread's factors of a term, and of those that lie beside it."""
        if self.begins_at(term):
            for number in range(0, self.tile.vectors * VECTOR, VECTOR // self._span):
                self.read_vector(stage, term, number)

    def begins_at(self, term: int) -> bool:
        """Whether the factors of a term are not read with those of the term before it."""
        return term % self._span == 0

    def read_vector(self, stage: Any, term: int, number: int) -> None:
        """Read what lies beside the factor of a row."""
        T, tile = self._t, self.tile
        where = tile.offset(self._first + tile.own_slot(number), term)
        own = self._first_of(term) + number * self._span
        value = self._stages[stage, T.ramp(where, 1, VECTOR)]
        T.buffer_store(self._factors, value, [T.ramp(own, 1, VECTOR)])

    def factor(self, term: int, number: Any) -> Any:
        """A factor of a term that was read: of one of a thread's rows."""
        return self._factors[self._first_of(term) + number * self._span + term % self._span]

    def _first_of(self, term: int) -> int:
        return term // self._span % self._buffers * self._of_buffer

    def _find_term(self, turn: int, step: Any) -> Any:
        """The term of a copy of a step."""
        own = self._term + self.tile.copy(turn * self._threads)[1]
        return self._t.Bind(step * self.tile.depth + own)

    def _place(self, turn: int) -> Any:
        """Where a copy goes in a stage."""
        slot, term = self.tile.copy(turn * self._threads)
        return self.tile.offset(self._slot + slot, self._term + term)

    def _where_it_copies(self) -> Any:
        """A frame of what threads do that copy."""
        from contextlib import ExitStack

        stack = ExitStack()
        if self._copies is not None:
            stack.enter_context(self._t.If(self._copies))
            stack.enter_context(self._t.Then())
        return stack

    def _copy(self, turn: int, stage: Any, term: Any) -> None:
        T, count = self._t, self.tile.width * ITEM
        there = T.if_then_else(term < self._terms, count, 0)
        term = T.if_then_else(term < self._terms, term, 0)
        source = self.source.tensor.ptr_to(self.source.index(self._rows[turn], term, self._batch))
        way = T.ptx[f"cp.async.{'cg' if count == UNIT else 'ca'}.shared.global"]
        where = self._stages.ptr_to([stage, self._place(turn)])
        with self._where_it_copies():
            T.evaluate(way(where, source, count, T.Cast("uint32", there)))

    def _load(self, turn: int, term: Any) -> None:
        T, width = self._t, self.tile.width
        index = self.source.index(self._rows[turn], term, self._batch)
        with T.If(term < self._terms):
            with T.Then():
                if width > 1 and self._dense is not None:
                    index[self._dense] = T.ramp(index[self._dense], 1, width)
                    own = T.ramp(turn * width, 1, width)
                    T.buffer_store(self._held, self.source.tensor[tuple(index)], [own])
                else:
                    T.buffer_store(self._held, self.source.tensor[tuple(index)], [turn])
            with T.Else():
                for part in range(width):
                    zero = T.Cast(self.source.kind, T.float32(0))
                    T.buffer_store(self._held, zero, [turn * width + part])
