"""How the sums of threads, and of blocks, become results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spaces.templates.few_rows.grid import Grid, Share
from spaces.templates.few_rows.knobs import FewTile
from spaces.templates.products.epilogue import Epilogue
from spaces.templates.products.places import count_tiles, place_axes
from spaces.templates.products.product import Product
from spaces.templates.thread_program import exchange

_THREADS = 256
"""Of a block that adds up what others have left."""


class Sums:
    """Adds up and stores.

    Args:
        T: TVM's script.
        extents: of the axes of the contraction.
    """

    def __init__(
        self,
        T: Any,
        product: Product,
        tile: FewTile,
        grid: Grid,
        epilogue: Epilogue,
        extents: Sequence[Any],
    ) -> None:
        self._t, self._product, self._tile, self._grid = T, product, tile, grid
        self._epilogue, self._extents = epilogue, extents

    def allocate(self) -> None:
        """Make room for sums that blocks leave for others."""
        if self._tile.splits > 1:
            size = self._tile.splits * self._grid.results
            self._left = self._t.alloc_buffer((size,), "float32", scope="global")

    def store(self, share: Share, thread: Any, sums: Any) -> None:
        """Add up the sums of a block's threads, and store them, or leave them to be added up."""
        T, tile, grid = self._t, self._tile, self._grid
        together = self._meet(share, sums)
        size = tile.rows * tile.block_columns
        with T.unroll(count_tiles(size, tile.threads)) as turn:
            place = turn * tile.threads + thread
            row = share.row + place // tile.block_columns
            column = share.column + place % tile.block_columns
            inside = T.And(row < grid.rows, column < grid.columns)
            with T.If(T.And(place < size, inside)), T.Then():
                T.buffer_store(self._total, T.float32(0), [0])
                with T.serial(tile.parts) as part:
                    more = together[part * size + place]
                    T.buffer_store(self._total, self._total[0] + more, [0])
                self._put(share, row, column)

    def _meet(self, share: Share, sums: Any) -> Any:
        """Add up within warps, and gather what they have in shared memory: for each of the block's
        parts the rows, and for each row the columns."""
        T, tile = self._t, self._tile
        apart, lanes = tile.column_threads if tile.roles.turned else 1, tile.lanes
        with T.unroll(tile.sums) as i:
            while lanes > 1:
                lanes //= 2
                other = exchange(T, sums[i], apart * lanes)
                T.buffer_store(sums, sums[i] + other, [i])
        size = tile.rows * tile.block_columns
        together = T.alloc_buffer((tile.parts * size,), "float32", scope="shared")
        self._total = T.alloc_buffer((1,), "float32", scope="local")
        first = share.along // tile.lanes * size
        with (
            T.If(share.along % tile.lanes == 0),
            T.Then(),
            T.unroll(tile.rows) as r,
            T.unroll(tile.columns) as c,
            T.unroll(tile.width) as w,
        ):
            column = (c * tile.column_threads + share.across) * tile.width + w
            own = (r * tile.columns + c) * tile.width + w
            T.buffer_store(together, sums[own], [first + r * tile.block_columns + column])
        T.evaluate(T.cuda.cta_sync())
        return together

    def _put(self, share: Share, row: Any, column: Any) -> None:
        """Store a total, or leave it."""
        T, grid = self._t, self._grid
        if self._tile.splits == 1:
            self._finish(self._total[0], row, column, share.batch)
        else:
            of_split = (share.split * grid.batches + share.number) * grid.rows + row
            T.buffer_store(self._left, self._total[0], [of_split * grid.columns + column])

    def add(self) -> None:
        """Write the kernel that adds up what blocks have left, in the order of their terms."""
        T, grid = self._t, self._grid
        block = T.cta_id([count_tiles(grid.results, _THREADS)])
        thread = T.thread_id([_THREADS])
        place = T.Bind(block * _THREADS + thread)
        with T.If(place < grid.results), T.Then():
            total = T.alloc_buffer((1,), "float32", scope="local")
            T.buffer_store(total, T.float32(0), [0])
            with T.unroll(self._tile.splits) as split:
                more = self._left[split * grid.results + place]
                T.buffer_store(total, total[0] + more, [0])
            row, column = place // grid.columns % grid.rows, place % grid.columns
            batch = grid.place_batch(place // grid.columns // grid.rows)
            self._finish(total[0], row, column, batch)

    def _finish(self, total: Any, row: Any, column: Any, batch: Mapping[int, Any]) -> None:
        """Store what the program makes of a sum."""
        roles = self._tile.roles
        at = {roles.few: row, roles.weights: column}
        places = place_axes(self._product, self._extents, at, batch)
        value = self._epilogue.value(total, places)
        self._t.buffer_store(self._epilogue.result, value, self._epilogue.index(places))
