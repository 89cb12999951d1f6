"""Results of a product for Hopper that leave as tiles, through shared memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd
from typing import Any

from spaces.templates.products.grid import Part
from spaces.templates.products.layout import UNIT
from spaces.templates.products.product import Product
from spaces.templates.products.totals import Place, Totals
from spaces.templates.tensor_cores import hopper_knobs as k
from spaces.templates.tensor_cores.results import Results
from spaces.templates.tensor_cores.tensor_map import encode_map, read_dimensions
from spaces.templates.tensor_cores.tile import LINE_BYTES, PATTERN_BYTES
from spaces.templates.tensor_cores.warpgroups import ROWS, WARPGROUP

_BANK_BYTES = 4
_STORE = "cp.async.bulk.tensor.{}d.global.shared::cta.bulk_group"


class BulkResults(Results):
    """Stores sums in tiles of shared memory, one for each consumer, which are then copied."""

    def __init__(
        self,
        T: Any,
        totals: Totals,
        product: Product,
        sides: tuple[int, int],
        tensor: Any,
        tile: k.HopperTile,
    ) -> None:
        super().__init__(T, totals)
        self._product, self._sides, self._tensor, self._tile = product, sides, tensor, tile
        self._plan_tiles()

    def _plan_tiles(self) -> None:
        """Lines of shared memory along what is dense in the result, and the map of it."""
        product, tile = self._product, self._tile
        self._item = product.out_bits // 8
        groups = [product.axes_of(side) for side in self._sides]
        self._by_rows = product.out_dense in groups[0]
        self._lines: int
        dense, self._lines = (ROWS, tile.columns) if self._by_rows else (tile.columns, ROWS)
        self._line_bytes = gcd(dense * self._item, LINE_BYTES)
        self._line = self._line_bytes // self._item
        order = groups if self._by_rows else groups[::-1]
        dims = [axis.out_dim for axis in product.c.axes]
        found = read_dimensions(self._tensor, dims, [*order, *((axis,) for axis in product.batch)])
        self._rank = len(found)
        self._map = encode_map(self._t, self._tensor, found, [self._line, self._lines])

    def allocate(self, pool: Any) -> None:
        """Make room for the tiles of all consumers."""
        size = self._tile.parts * ROWS * self._tile.columns
        shape = (self._tile.consumers, size)
        kind = str(self._tensor.dtype)
        self._room = pool.alloc(shape, kind, align=PATTERN_BYTES)

    def begin(self, thread: Any, consumer: Any) -> None:
        """Wait until a consumer's tile is free."""
        self.finish(thread)
        self._meet(consumer)

    def finish(self, thread: Any) -> None:
        """Wait until what was stored is out of shared memory."""
        T = self._t
        with T.If(thread % WARPGROUP == 0), T.Then():
            T.evaluate(T.ptx["cp.async.bulk.wait_group.read"](0))

    def copy(self, thread: Any, consumer: Any, at: Place, batch: Mapping[int, Any]) -> None:
        """Have a consumer's tile copied to the result, once all its threads have filled it."""
        T = self._t
        T.evaluate(T.ptx["fence.proxy.async.shared::cta"]())
        self._meet(consumer)
        with T.If(thread % WARPGROUP == 0), T.Then():
            self._copy(consumer, *at, batch)

    def _meet(self, consumer: Any) -> None:
        """Wait for the threads of a consumer."""
        T = self._t
        T.evaluate(T.ptx["bar.sync"](T.Cast("uint32", consumer + 1), T.uint32(WARPGROUP)))

    def _choose(self, sums: Any, first: Any, turn: Any, inside: Place) -> tuple[Any, Any]:
        """See `Results`. Of what a warp stores at once, words of two rows would lie in one bank
        where their units change places with each other: of one of these the columns do, too."""
        T = self._t
        if self._by_rows or self._item != _BANK_BYTES:
            return super()._choose(sums, first, turn, inside)
        odd = self._turn_units(inside[0]) % 2
        total = T.Select(odd == 0, sums[first + turn], sums[first + 1 - turn])
        return (turn + odd) % 2, total

    def _turn_units(self, line: Any) -> Any:
        """What the numbers of a line's units are changed by."""
        units = self._line_bytes // UNIT
        return line * units // (LINE_BYTES // UNIT) % units

    def _put(self, total: Any, inside: Place, at: Place, part: Part, room: Sequence[Any]) -> None:
        """Store one element in a tile.

        Args:
            room: the consumer, and the number of the instruction along its rows.
        """
        T, tile = self._t, self._tile
        consumer, number = room
        value = self._totals.value(total, at, part.batch)
        dense, line = inside if self._by_rows else inside[::-1]
        # Lines of a piece, one piece behind the other; units change places by the line's number.
        each = UNIT // self._item
        place = dense % self._line
        unit = (place // each) ^ self._turn_units(line)
        piece = dense // self._line * self._lines + line
        first = number * ROWS * tile.columns
        T.buffer_store(
            self._room, value, [consumer, first + piece * self._line + unit * each + place % each]
        )

    def _copy(self, consumer: Any, row: Any, column: Any, batch: Mapping[int, Any]) -> None:
        """Have a consumer's tile copied to the result."""
        T, tile = self._t, self._tile
        store = T.ptx[_STORE.format(self._rank)]
        others = [batch[axis] for axis in self._product.batch]
        size = ROWS * tile.columns
        for part in range(tile.parts):
            first = (row + part * ROWS, column)
            for piece in range(size // (self._line * self._lines)):
                dense, line = first if self._by_rows else first[::-1]
                place = (dense + piece * self._line, line)
                where = self._room.ptr_to(
                    [consumer, part * size + piece * self._line * self._lines]
                )
                T.evaluate(store(self._map, *place, *others, where))
        T.evaluate(T.ptx["cp.async.bulk.commit_group"]())
