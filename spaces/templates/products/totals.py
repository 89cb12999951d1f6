"""Where the sums of a product go: to the result, or, where blocks share out the terms of each, to a
workspace, whose sums a second kernel adds up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spaces.ir import rewrite
from spaces.templates import gpu_rates as rates
from spaces.templates.products.epilogue import Epilogue
from spaces.templates.products.places import count_tiles, multiply, place_axes, spread
from spaces.templates.products.product import Product
from spaces.templates.thread_program import DEVICE_ENTRY, keep, narrow, widen

Place = tuple[Any, Any]
"""A row and a column."""
SPLITS, SPLIT_COUNTS = "splits", (1, 2, 4, 8)
"""The knob for the blocks that share the terms of a sum, and its values."""
SUM_BYTES = 4
"""Of a sum in the workspace."""
_THREADS = 256
"""Of a block that adds up."""


def count_left_bytes(product: Product, splits: Any) -> Any:
    """The size of the workspace of a product, by the shares of its terms."""
    results = product.extent(0) * product.extent(1) * product.batch_extent
    return rates.count_left_bytes(splits, results * SUM_BYTES)


class Totals:
    """Stores sums, or leaves them in the workspace: one for each result and each share.

    Args:
        T: TVM's script.
        sides: the operand that gives rows, and the one that gives columns.
        extents: of the axes of the contraction.
        splits: shares of the terms.
        kind: type of sums.
    """

    def __init__(
        self,
        T: Any,
        product: Product,
        sides: tuple[int, int],
        epilogue: Epilogue,
        extents: Sequence[Any],
        splits: int,
        kind: str = "float32",
    ) -> None:
        self._t, self._product, self._sides = T, product, sides
        self._epilogue, self._extents, self._splits = epilogue, extents, splits
        self._kind = kind
        self.rows, self.columns = (
            narrow(T, multiply([extents[axis] for axis in product.axes_of(side)])) for side in sides
        )
        self.batches = narrow(T, multiply([extents[axis] for axis in product.batch]))

    def allocate(self) -> None:
        """Make room for sums that blocks leave."""
        if self.are_left:
            sizes = widen(self._splits, self.batches, self.rows, self.columns)
            self._left = self._t.alloc_buffer(sizes, self._kind, scope="global")

    def is_inside(self, at: Place, stored: tuple[Any, Any] | None = None) -> Any:
        """Whether there is such a row and column.

        Args:
            stored: see `spaces.templates.products.grid.Part.rows`.
        """
        T = self._t
        inside = T.And(at[0] < self.rows, at[1] < self.columns)
        if stored is None:
            return inside
        row = at[self._sides.index(self._product.c.rows_of)]
        return T.And(inside, T.And(row >= stored[0], row < stored[1]))

    def put(self, total: Any, at: Place, batch: Mapping[int, Any], number: Any, split: Any) -> None:
        """Store a sum, or leave it.

        Args:
            batch: the place on each axis of the batch; `number` that on all of them.
            split: number of the block's share of the terms.
        """
        if self.are_left:
            self._t.buffer_store(self._left, total, self.find(at, batch, number, split))
        else:
            self._finish(total, at, batch)

    def write_adding(self) -> None:
        """Write the kernel that adds up what blocks have left, in the order of the terms."""
        if self.are_left:
            with self._t.attr({DEVICE_ENTRY: True}):
                self._add()

    @property
    def are_left(self) -> bool:
        """Whether blocks leave sums in the workspace."""
        return self._splits > 1

    @property
    def target(self) -> Any:
        """The tensor that blocks store to: the result, or the workspace."""
        return self._left if self.are_left else self._epilogue.result

    def stored(self, total: Any, at: Place, batch: Mapping[int, Any]) -> Any:
        """What a block stores of a sum."""
        return total if self.are_left else self.value(total, at, batch)

    def find(self, at: Place, batch: Mapping[int, Any], number: Any, split: Any) -> list[Any]:
        """The index of what a block stores; arguments are those of `put`."""
        return [*widen(split, number, *at)] if self.are_left else self.index(at, batch)

    def value(self, total: Any, at: Place, batch: Mapping[int, Any]) -> Any:
        """What the program makes of a sum."""
        return self._epilogue.value(total, self._find_places(at, batch))

    def index(self, at: Place, batch: Mapping[int, Any]) -> list[Any]:
        """The index of what it makes of it."""
        return self._epilogue.index(self._find_places(at, batch))

    def _add(self) -> None:
        T = self._t
        batches, rows, columns = widen(self.batches, self.rows, self.columns)
        results = batches * rows * columns
        block = T.cta_id([T.Cast("int32", count_tiles(results, _THREADS))])
        thread = T.thread_id([_THREADS])
        place = T.Bind(widen(block)[0] * _THREADS + thread)
        with T.If(place < results), T.Then():
            total = T.alloc_buffer((1,), self._kind, scope="local")
            T.buffer_store(total, rewrite.cast(self._kind, 0), [0])
            at = (place // columns % rows, place % columns)
            number = place // columns // rows
            with T.unroll(self._splits) as split:
                more = self._left[(*widen(split), number, *at)]
                T.buffer_store(total, total[0] + more, [0])
            batch = spread(self._extents, self._product.batch, number)
            self._finish(total[0], at, {axis: T.Bind(own) for axis, own in batch.items()})

    def _finish(self, total: Any, at: Place, batch: Mapping[int, Any]) -> None:
        places = self._find_places(at, batch)
        value = self._epilogue.value(total, places)
        self._t.buffer_store(self._epilogue.result, value, self._epilogue.index(places))

    def _find_places(self, at: Place, batch: Mapping[int, Any]) -> list[Any]:
        """A value for each axis of the contraction."""
        sides = dict(zip(self._sides, at, strict=True))
        places = place_axes(self._product, self._extents, sides, batch)
        if self._product.plain or not self._product.c.symbolic:
            return places
        # Each is read for the bias, the residual and the result, and takes divisions to find.
        return keep(self._t, places)
