"""How an operand of a product reaches shared memory, and from there a thread's registers."""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd
from typing import Any

from spaces.templates.products.layout import UNIT
from spaces.templates.products.source import Source, keep_apart
from spaces.templates.products.vectors import allocate_vectors
from spaces.templates.thread_products.knobs import ITEM, VECTOR
from spaces.templates.thread_products.places import Tile
from spaces.templates.thread_program import keep, narrow

_KIND = "float32"


class Operand:
    """The tiles of one operand in shared memory, and what a thread has read of them.

    The last tile of so many rows that are known ends with them, and shares some with the one before
    it. Else rows beyond the last one are copies of it: what they give is not stored. Terms beyond
    the last one are zeros, in stages behind that too, so that no step is special; so is what rows
    that are windows have beyond the tensor. Where steps divide the terms one question answers for
    all copies of a step whether there is something.

    Stages are told by where they begin in shared memory, in vectors.

    Args:
        T: TVM's script.
        threads: of a block.
        ahead: whether copies reach shared memory by themselves, or through registers, as those of
            packed operands always do.
        late: whether a thread reads factors into the registers of those that it has just used.
    """

    def __init__(
        self,
        T: Any,
        source: Source,
        tile: Tile,
        *,
        threads: int,
        ahead: bool,
        late: bool,
    ) -> None:
        self._t, self.source, self.tile = T, source, tile
        self._threads, self._ahead = threads, ahead and source.packed is None
        self._size, self._terms = narrow(T, source.size), narrow(T, source.terms)
        self._are_whole = isinstance(self._terms, int) and self._terms % tile.depth == 0
        self._span = 1 if tile.turned else VECTOR
        self._buffers = 1 if late else 2
        self._of_buffer = tile.vectors * VECTOR * self._span
        self._turns = -(-tile.copies // threads)

    def allocate(self, shared: Any, begin: int) -> None:
        """Make room for what a thread has of tiles.

        Args:
            shared: memory of all stages.
            begin: where in a stage the tile of this operand begins, in vectors.
        """
        T, tile = self._t, self.tile
        self._shared, self._begin = shared, begin
        self._factors = T.alloc_buffer((self._buffers * self._of_buffer,), _KIND, scope="local")
        if not self._ahead:
            self._held = allocate_vectors(T, self.source, tile.width, self._turns)

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
        self._rows = self._find_rows(row + tile.row(slot))
        return row

    def _find_rows(self, first: Any) -> Mapping[int, Any]:
        """The rows that a thread copies from, or the places that are known of one, by how far they
        are behind the first."""
        T, tile = self._t, self.tile
        behind = [*dict.fromkeys(self._row_of(turn) for turn in range(self._turns))]
        rows = [first + more for more in behind]
        if not self.is_whole:
            last = self._size - (tile.width if tile.turned else 1)
            rows = [T.min(row, last) for row in rows]
        if self.source.take_apart is not None:
            rows = [*keep_apart(T, [self.source.take_apart(row) for row in rows])]
        return dict(zip(behind, rows, strict=True))

    def _find_terms(self, step: Any) -> Mapping[int, Any]:
        """The terms that a thread copies in a step: whether there is each, and what is known of its
        place, by how far they are behind the first."""
        T = self._t
        behind = [*dict.fromkeys(self._term_of(turn) for turn in range(self._turns))]
        begin = step * self.tile.depth
        terms = [T.Bind(begin + (self._term + more)) for more in behind]
        there = [begin < self._terms if self._are_whole else term < self._terms for term in terms]
        places = terms
        if self.source.take_term_apart is not None:
            places = [*keep_apart(T, [self.source.take_term_apart(term) for term in terms])]
        elif self._ahead:
            # Addresses of copies stay near the tensor, and are as far apart as in any other step.
            begin = T.Bind(T.if_then_else(begin < self._terms, begin, 0))
            places = [begin + (self._term + more) for more in behind]
        return dict(zip(behind, zip(there, places, strict=True), strict=True))

    def _term_of(self, turn: int) -> int:
        """How far the term of a copy is behind the thread's first."""
        behind: int = self.tile.copy(turn * self._threads)[1]
        return behind

    def _row_of(self, turn: int) -> int:
        """How far the row of a copy is behind the thread's first."""
        behind: int = self.tile.row(self.tile.copy(turn * self._threads)[0])
        return behind

    def end_at(self, term: Any) -> None:
        """Say which term is none of the block's any more, if there is one."""
        (self._terms,) = keep(self._t, [self._t.min(term, self._terms)])

    def read_at(self, slot: Any) -> None:
        """Say which slot is that of the thread's first row."""
        self._first = self._t.Bind(slot)

    def copy(self, stage: Any, step: Any) -> None:
        """Begin to fill a stage (PTX ISA, "cp.async")."""
        terms = self._find_terms(step)
        for turn in range(self._turns):
            there, place = terms[self._term_of(turn)]
            if self._ahead:
                self._copy(turn, stage, there, place)
            else:
                with self._where_it_copies():
                    self._load(turn, there, place)

    def finish(self, stage: Any) -> None:
        """Store what registers hold."""
        T, tile = self._t, self.tile
        if self._ahead:
            return
        is_vector = tile.width > 1 and self.source.kind == _KIND and self.source.packed is None
        parts = [T.ramp(0, 1, tile.width)] if is_vector else range(tile.width)
        read = self._held.read if is_vector else self._held.widen
        for turn in range(self._turns):
            with self._where_it_copies():
                for part in parts:
                    place = self._place(stage, turn) + part
                    T.buffer_store(self._shared, read(turn, part), [place])

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
        where = tile.read(stage + self._begin, self._first, tile.own_slot(number), term)
        own = self._first_of(term) + number * self._span
        value = self._shared[T.ramp(where, 1, VECTOR)]
        T.buffer_store(self._factors, value, [T.ramp(own, 1, VECTOR)])

    def factor(self, term: int, number: Any) -> Any:
        """A factor of a term that was read: of one of a thread's rows."""
        return self._factors[self._first_of(term) + number * self._span + term % self._span]

    def _first_of(self, term: int) -> int:
        return term // self._span % self._buffers * self._of_buffer

    def _place(self, stage: Any, turn: int) -> Any:
        """Where a copy goes."""
        slot, term = self.tile.copy(turn * self._threads)
        begin = (stage + self._begin) * VECTOR
        return begin + self.tile.offset(self._slot + slot, self._term + term)

    def _where_it_copies(self) -> Any:
        """A frame of what threads do that copy."""
        from contextlib import ExitStack

        stack = ExitStack()
        if self._copies is not None:
            stack.enter_context(self._t.If(self._copies))
            stack.enter_context(self._t.Then())
        return stack

    def _copy(self, turn: int, stage: Any, there: Any, place: Any) -> None:
        T, count, row = self._t, self.tile.width * ITEM, self._rows[self._row_of(turn)]
        # Where nothing is there nothing is read, and the address may be any.
        filled = T.if_then_else(self._is_inside(row, there, place), count, 0)
        source = self.source.point(T, row, place, self._batch)
        way = T.ptx[f"cp.async.{'cg' if count == UNIT else 'ca'}.shared.global"]
        where = self._shared.ptr_to([self._place(stage, turn)])
        with self._where_it_copies():
            T.evaluate(way(where, source, count, T.Cast("uint32", filled)))

    def _is_inside(self, row: Any, there: Any, place: Any) -> Any:
        """Whether a term is there, and its element is in the tensor."""
        if self.source.inside is None:
            return there
        return self._t.And(there, self.source.inside(row, place, self._batch))

    def _load(self, turn: int, there: Any, place: Any) -> None:
        T, row = self._t, self._rows[self._row_of(turn)]
        with T.If(self._is_inside(row, there, place)):
            with T.Then():
                self._held.load(turn, row, place, self._batch)
            with T.Else():
                self._held.clear(turn)
