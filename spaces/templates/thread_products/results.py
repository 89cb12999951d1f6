"""How the sums of a product reach the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from spaces.templates.products.grid import Part
from spaces.templates.products.product import Product
from spaces.templates.products.totals import Totals
from spaces.templates.thread_products.knobs import VECTOR
from spaces.templates.thread_products.operand import Operand


class Results:
    """Stores a thread's sums, in vectors where the result's rows begin at multiples of them.

    Args:
        T: TVM's script.
        totals: what blocks store of sums, and where.
        sides: what a thread has of rows, and of columns.
    """

    def __init__(self, T: Any, product: Product, totals: Totals, sides: Sequence[Operand]) -> None:
        self._t, self._product, self._totals, self._sides = T, product, totals, sides
        self._along = self._find_dense()
        self._width = 1 if self._along is None else VECTOR

    def _find_dense(self) -> int | None:
        """The side along which vectors are stored: 0 is that of rows; None where none is."""
        product = self._product
        dense = product.c.column if self._totals.are_left else product.out_dense
        if dense is None or product.c.axes[dense].symbolic:
            return None
        if product.c.axes[dense].extent % VECTOR:
            return None
        return int(dense == product.c.column)

    def store(self, sums: Any, first: Sequence[Any], batch: Mapping[int, Any], part: Part) -> None:
        """Store what a thread has.

        Args:
            first: its first row, and its first column.
            batch: the place on each axis of the batch, computed once.
            part: what its block computes.
        """
        T, width = self._t, self._width
        along = self._along or 0
        counts = [VECTOR * side.tile.vectors for side in self._sides]
        steps = [1, 1]
        steps[along] = width
        self._value = T.alloc_buffer((width,), str(self._totals.target.dtype), scope="local")
        with T.unroll(counts[0] // steps[0]) as i, T.unroll(counts[1] // steps[1]) as j:
            numbers = (i * steps[0], j * steps[1])
            places = [
                row + side.tile.own_row(number)
                for row, side, number in zip(first, self._sides, numbers, strict=True)
            ]
            with self._where_there_is(places):
                for more in range(width):
                    own, at = [*numbers], [*places]
                    own[along] += more
                    at[along] += more
                    total = sums[own[0] * counts[1] + own[1]]
                    value = self._totals.stored(total, (at[0], at[1]), batch)
                    T.buffer_store(self._value, value, [more])
                where = (places[0], places[1])
                self._put(self._totals.find(where, batch, part.number, part.split))

    def _put(self, index: list[Any]) -> None:
        """Store a vector, or a number."""
        T, width = self._t, self._width
        if width == 1:
            T.buffer_store(self._totals.target, self._value[0], index)
            return
        # Dimensions behind the dense one, if any, have one place each.
        index[-1] = T.ramp(index[-1], 1, width)
        T.buffer_store(self._totals.target, self._value[T.ramp(0, 1, width)], index)

    def _where_there_is(self, places: Sequence[Any]) -> ExitStack:
        """A frame of what is done for a row and a column within the result."""
        T, stack = self._t, ExitStack()
        known = [
            side.has(place)
            for side, place in zip(self._sides, places, strict=True)
            if not side.is_whole
        ]
        if known:
            stack.enter_context(T.If(T.And(*known) if len(known) > 1 else known[0]))
            stack.enter_context(T.Then())
        return stack
