"""How the sums of threads become those of a block."""

from __future__ import annotations

from typing import Any

from spaces.templates.few_rows.grid import Share
from spaces.templates.few_rows.knobs import FewTile
from spaces.templates.products.places import count_tiles
from spaces.templates.products.totals import Totals
from spaces.templates.thread_program import exchange


class Sums:
    """Adds up and stores.

    Args:
        T: TVM's script.
        totals: where what was added up goes.
    """

    def __init__(self, T: Any, tile: FewTile, totals: Totals) -> None:
        self._t, self._tile, self._totals = T, tile, totals

    def store(self, share: Share, thread: Any, sums: Any) -> None:
        """Add up the sums of a block's threads, and store them, or leave them to be added up."""
        T, tile, totals = self._t, self._tile, self._totals
        together = self._meet(share, sums)
        size = tile.rows * tile.block_columns
        with T.unroll(count_tiles(size, tile.threads)) as turn:
            place = turn * tile.threads + thread
            at = (
                share.row + place // tile.block_columns,
                share.column + place % tile.block_columns,
            )
            with T.If(T.And(place < size, totals.is_inside(at))), T.Then():
                T.buffer_store(self._total, T.float32(0), [0])
                with T.serial(tile.parts) as part:
                    more = together[part * size + place]
                    T.buffer_store(self._total, self._total[0] + more, [0])
                totals.put(self._total[0], at, share.batch, share.number, share.split)

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
