"""How the sums of a product reach the result: each thread stores its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spaces.templates.products.grid import Part
from spaces.templates.products.totals import Place, Totals


class Results:
    """Stores sums as instructions leave them: a thread has row `lane / 4` and that plus 8 of 16, of
    each eight columns a pair (PTX ISA, "Matrix Fragments for mma.m16n8k16", "Register Fragments"
    of `wgmma`).

    Args:
        T: TVM's script.
        totals: where they go: rows are those of A, columns the rows of B.
        paired: whether rows of A are dealt otherwise, and a thread has two neighbours of 16; and
            whether columns of B are, and it has four neighbours of 16.
    """

    def __init__(self, T: Any, totals: Totals, paired: tuple[bool, bool] = (False, False)) -> None:
        self._t, self._totals, self._paired = T, totals, paired

    def store(
        self,
        sums: Any,
        first: int,
        columns: int,
        inside: Place,
        at: Place,
        part: Part,
        room: Sequence[Any] = (),
    ) -> None:
        """Store what a thread has of 16 rows, or of 64 by a warpgroup.

        Args:
            first: number of its first sum.
            inside: its first place in the tile; `at` that in the whole product.
            room: what else a tile is found by, see `spaces.templates.tensor_cores.bulk_results`.
        """
        T = self._t
        with T.unroll(columns // 8) as eight, T.unroll(2) as lower, T.unroll(2) as turn:
            right, total = self._choose(sums, first + eight * 4 + lower * 2, turn, inside)
            near, far = (self._spread(*place, eight, lower, right) for place in (inside, at))
            with T.If(self._totals.is_inside(far, part.rows)), T.Then():
                self._put(total, near, far, part, room)

    def place_lane(self, lane: Any) -> Place:
        """The first row and column of a thread, of its number in a warp."""
        rows, columns = self._paired
        return lane // 4 * 2 if rows else lane // 4, lane % 4 * (4 if columns else 2)

    def _choose(self, sums: Any, first: Any, turn: Any, inside: Place) -> tuple[Any, Any]:
        """Which column of a pair is stored in a turn, and its sum.

        Args:
            first: number of the pair's first sum.
        """
        return turn, sums[first + turn]

    def _spread(self, row: Any, column: Any, eight: Any, lower: Any, right: Any) -> Place:
        """The place of a sum, by that of a thread's first."""
        rows, columns = self._paired
        row = row + lower if rows else row + lower * 8
        if columns:
            return row, column + eight // 2 * 16 + right * 2 + eight % 2
        return row, column + eight * 8 + right

    def _put(self, total: Any, inside: Place, at: Place, part: Part, room: Sequence[Any]) -> None:
        """Store one element."""
        self._totals.put(total, at, part.batch, part.number, part.split)
