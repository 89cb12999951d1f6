"""How an operand of codes reaches shared memory: a thread loads vectors of these, makes numbers of
them in registers, and stores them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spaces.ir.element_types import WIDE
from spaces.templates.products.layout import UNIT
from spaces.templates.products.source import Source
from spaces.templates.products.totals import Place
from spaces.templates.products.vectors import allocate_vectors
from spaces.templates.tensor_cores.fragments import round_pair
from spaces.templates.tensor_cores.operand import Operand
from spaces.templates.tensor_cores.tile import (
    WORD_BYTES,
    choose_held,
    choose_width,
    element_of,
)

_STORE = "store_4_words"
_STORE_CODE = f"""
static __device__ __forceinline__ void {_STORE}(
    void* to, unsigned first, unsigned second, unsigned third, unsigned fourth) {{
  *reinterpret_cast<uint4*>(to) = make_uint4(first, second, third, fourth);
}}
"""


class PackedOperand(Operand):
    """See `Operand`: one that threads unpack.

    Args:
        widest: elements of its widest vectors.
    """

    def __init__(
        self,
        T: Any,
        source: Source,
        widest: int,
        *,
        rows: int,
        lines: int,
        depth: int,
        threads: int,
    ) -> None:
        super().__init__(T, source, rows=rows, lines=lines, depth=depth, threads=threads)
        assert source.packed is not None
        self._elements = rows * depth
        along = rows if source.turned else depth
        self._width = int(choose_width(widest, self._elements, along, threads))
        turns = -(-self._elements // (self._width * threads))
        self._held = int(choose_held(turns, self._width * source.packed.bits / 8))
        self._groups = -(-turns // self._held)

    @property
    def is_ahead(self) -> bool:
        """See `Operand`: no."""
        return False

    def hold(self) -> None:
        """Make room for codes in the registers of a thread."""
        self._vectors = allocate_vectors(self._t, self.source, self._width, self._held)

    def count_held(self) -> int:
        """See `Operand`: none, since `hold` makes room for codes."""
        return 0

    def move(
        self,
        thread: Any,
        stage: Any,
        row: Any,
        term: Any,
        batch: Mapping[int, Any],
        own: Mapping[str, Any],
    ) -> None:
        """See `Operand`: `store` ends what this begins."""
        self.load(thread, (row, term), batch)

    def load(self, thread: Any, at: Place, batch: Mapping[int, Any], group: Any = 0) -> None:
        """Load the codes of a group of vectors of a tile that begins at a row and a term."""
        T, source, (row, term) = self._t, self.source, at
        with T.unroll(self._held) as turn:
            number = (group * self._held + turn) * self._threads + thread
            r, t = self._find_piece(number, self._width)
            inside = T.And(row + r < source.size, term + t < source.terms)
            with T.If(self._where(number, inside)):
                with T.Then():
                    self._vectors.load(turn, row + r, term + t, batch)
                with T.Else():
                    self._vectors.clear(turn)

    def store(self, thread: Any, stage: Any, at: Place, batch: Mapping[int, Any]) -> None:
        """Store a tile, whose first group was loaded, in a stage of shared memory."""
        self._store_group(thread, stage, 0)
        if self._groups > 1:
            with self._t.serial(self._groups - 1) as before:
                self.load(thread, at, batch, before + 1)
                self._store_group(thread, stage, before + 1)

    def _store_group(self, thread: Any, stage: Any, group: Any) -> None:
        T = self._t
        with T.unroll(self._held) as turn:
            number = (group * self._held + turn) * self._threads + thread
            place = self._find_piece(number, self._width)
            if self._is_even:
                self._store_vector(turn, stage, place)
            else:
                with T.If(self._where(number, True)), T.Then():
                    self._store_vector(turn, stage, place)

    @property
    def _is_even(self) -> bool:
        """Whether each thread has a vector in each turn."""
        return self._elements == self._width * self._threads * self._held * self._groups

    def _where(self, number: Any, inside: Any) -> Any:
        """Whether a vector is within the tile, and within the tensor."""
        if self._is_even:
            return inside
        return self._t.And(number < self._elements // self._width, inside)

    def _store_vector(self, turn: Any, stage: Any, place: tuple[Any, Any]) -> None:
        T, kind = self._t, self.source.kind
        each = UNIT // element_of(kind).bytes
        if self._width % each:
            for i in range(self._width):
                where = self.offset(*self._find_place(place, i))
                T.buffer_store(self.stages, self._vectors.read(turn, i), [stage, where])
            return
        for first in range(0, self._width, each):
            words = [
                self._read_word(turn, first + i) for i in range(0, each, each * WORD_BYTES // UNIT)
            ]
            where = self.stages.ptr_to([stage, self.offset(*self._find_place(place, first))])
            T.evaluate(T.cuda.func_call(_STORE, where, *words, source_code=_STORE_CODE))

    def _find_place(self, place: tuple[Any, Any], more: int) -> tuple[Any, Any]:
        row, term = place
        return (row + more, term) if self.source.turned else (row, term + more)

    def _read_word(self, turn: Any, place: int) -> Any:
        """The elements of a word."""
        T, kind = self._t, self.source.kind
        if kind == WIDE:
            return T.reinterpret("uint32", self._vectors.widen(turn, place))
        pair = [self._vectors.widen(turn, place + i) for i in range(2)]
        return round_pair(T, kind, *pair)
