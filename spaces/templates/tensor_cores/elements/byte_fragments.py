"""What a warp's threads have of a tile of bytes for one instruction (PTX ISA, "Matrix Fragments for
mma.m16n8k32", "ldmatrix", "prmt")."""

from __future__ import annotations

from typing import Any

from spaces.templates.tensor_cores.fragments import EACH, Fragments
from spaces.templates.tensor_cores.operand import Operand

_LOWER, _UPPER = 0x6420, 0x7531
"""Of two registers' pairs of bytes the lower ones, and the upper ones."""


class ByteFragments(Fragments):
    """See `Fragments`. Where rows lie next to one another, `ldmatrix` turns pairs of bytes, two
    rows of a term. Each thread so gets pairs of neighbouring rows, which it takes apart: of each 16
    the instruction's first eight rows are the even ones, see
    `spaces.templates.tensor_cores.results.Results`.
    """

    def load_rows(
        self, side: Operand, to: Any, first: int, stage: Any, row: Any, term: Any
    ) -> None:
        """Rows of A: eight, the other eight, then those of the later terms."""
        if side.source.turned:
            self._load_turned(side, to, stage, row, term, [first, first + 1, first + 2, first + 3])
        else:
            super().load_rows(side, to, first, stage, row, term)

    def load_columns(self, side: Operand, to: Any, stage: Any, column: Any, term: Any) -> None:
        """Columns of B: those of the later terms, then the other eight."""
        if side.source.turned:
            self._load_turned(side, to, stage, column, term, [0, 2, 1, 3])
        else:
            super().load_columns(side, to, stage, column, term)

    def _load_turned(
        self, side: Operand, to: Any, stage: Any, row: Any, term: Any, places: list[int]
    ) -> None:
        """Rows that lie next to one another.

        Args:
            places: of even rows, of odd rows, and of both for the later terms.
        """
        T, lane = self._t, self._lane
        pairs = T.alloc_buffer((4,), "uint32", scope="local")
        # A thread gets of each matrix two rows, which are terms: those of its four of an
        # instruction lie in two matrices.
        matrix = lane // EACH
        own = matrix // 2 * self._later + lane % EACH // 2 * 4 + matrix % 2 * 2 + lane % 2
        self._load_matrices(side, pairs, 0, stage, (row, term + own), turned=True)
        for later in range(2):
            both = pairs[2 * later], pairs[2 * later + 1]
            for odd, chosen in enumerate((_LOWER, _UPPER)):
                place = to[places[2 * later + odd]]
                T.evaluate(T.ptx["prmt.b32"](place, *both, T.uint32(chosen)))
