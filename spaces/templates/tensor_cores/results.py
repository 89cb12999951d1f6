"""How the sums of a product for Hopper reach the result: by each thread, or as tiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd
from typing import Any

from spaces.templates.tensor_cores import knob_model as k
from spaces.templates.tensor_cores.epilogue import Epilogue
from spaces.templates.tensor_cores.operand import spread
from spaces.templates.tensor_cores.product import Product
from spaces.templates.tensor_cores.tensor_map import UNIT, encode_map, multiply, read_dimensions

_STORE = "cp.async.bulk.tensor.{}d.global.shared::cta.bulk_group"


class Results:
    """Stores the sums of a tile.

    Threads have them as the instruction leaves them (PTX ISA, "Register Fragments": row `lane / 4`
    and that plus 8 of a warp's 16, pairs of columns).

    Args:
        T: TVM's script.
        extents: of the axes of the contraction.
    """

    def __init__(
        self,
        T: Any,
        product: Product,
        tile: k.Tile,
        epilogue: Epilogue,
        extents: Sequence[Any],
    ) -> None:
        self._t, self._product, self._tile, self._epilogue = T, product, tile, epilogue
        self._extents = extents
        c = product.c
        self._sides = (c.columns_of, c.rows_of) if tile.swap else (c.rows_of, c.columns_of)
        if tile.staged:
            self._plan_tiles()

    def _plan_tiles(self) -> None:
        """Lines of shared memory along what is dense in the result, and the map of it."""
        product, tile = self._product, self._tile
        self._item = product.out_bits // 8
        groups = [product.tiled(side) for side in self._sides]
        self._by_rows = product.out_dense in groups[0]
        self._lines: int
        dense, self._lines = (k.ROWS, tile.columns) if self._by_rows else (tile.columns, k.ROWS)
        self._line_bytes = gcd(dense * self._item, k.LINE_BYTES)
        self._line = self._line_bytes // self._item
        order = groups if self._by_rows else groups[::-1]
        dims = [axis.out_dim for axis in product.c.axes]
        tensor = self._epilogue.result
        found = read_dimensions(tensor, dims, [*order, *((axis,) for axis in product.batch)])
        self._rank = len(found)
        self._map = encode_map(self._t, tensor, found, [self._line, self._lines])

    def allocate(self, pool: Any) -> None:
        """Make room for the tiles of all consumers."""
        if self._tile.staged:
            size = self._tile.parts * k.ROWS * self._tile.columns
            shape = (self._tile.consumers, size)
            kind = str(self._epilogue.result.dtype)
            self._room = pool.alloc(shape, kind, align=k.PATTERN_BYTES)

    def store(
        self,
        thread: Any,
        consumer: Any,
        row: Any,
        column: Any,
        batch: Mapping[int, Any],
        sums: Any,
    ) -> None:
        """Store a tile whose first row of A and column of B are these."""
        T, tile = self._t, self._tile
        own = k.ROWS * tile.parts
        if tile.staged:
            with T.If(thread % k.WARPGROUP == 0), T.Then():
                T.evaluate(T.ptx["cp.async.bulk.wait_group.read"](0))
            self._meet(consumer)
        lane = thread % k.WARPGROUP
        first = T.Bind(lane // 32 * 16 + lane % 32 // 4)
        pair = T.Bind(lane % 4 * 2)
        for part in range(tile.parts):
            with T.unroll(tile.columns // 8) as eight, T.unroll(2) as lower, T.unroll(2) as right:
                total = sums[part * tile.columns // 2 + eight * 4 + lower * 2 + right]
                inside = (first + lower * 8, pair + eight * 8 + right)
                at = (row + consumer * own + part * k.ROWS + inside[0], column + inside[1])
                with T.If(self._is_inside(at)), T.Then():
                    self._put(total, consumer, part, inside, at, batch)
        if tile.staged:
            T.evaluate(T.ptx["fence.proxy.async.shared::cta"]())
            self._meet(consumer)
            with T.If(thread % k.WARPGROUP == 0), T.Then():
                self._copy(consumer, row + consumer * own, column, batch)

    def finish(self, thread: Any) -> None:
        """Wait until what was stored is out of shared memory."""
        T = self._t
        if self._tile.staged:
            with T.If(thread % k.WARPGROUP == 0), T.Then():
                T.evaluate(T.ptx["cp.async.bulk.wait_group.read"](0))

    def _meet(self, consumer: Any) -> None:
        """Wait for the threads of a consumer."""
        T = self._t
        T.evaluate(T.ptx["bar.sync"](T.Cast("uint32", consumer + 1), T.uint32(k.WARPGROUP)))

    def _is_inside(self, at: Sequence[Any]) -> Any:
        T = self._t
        sizes = [multiply([self._extents[a] for a in self._product.tiled(o)]) for o in self._sides]
        return T.And(*(place < size for place, size in zip(at, sizes, strict=True)))

    def _put(
        self,
        total: Any,
        consumer: Any,
        part: int,
        inside: tuple[Any, Any],
        at: tuple[Any, Any],
        batch: Mapping[int, Any],
    ) -> None:
        """Store one element, where it belongs or in the consumer's tile."""
        T, tile = self._t, self._tile
        places = self._places(at, batch)
        value = self._epilogue.value(total, places)
        if not tile.staged:
            T.buffer_store(self._epilogue.result, value, self._epilogue.index(places))
            return
        dense, line = inside if self._by_rows else inside[::-1]
        # Lines of a piece, one piece behind the other; units change places by the line's number.
        units = self._line_bytes // UNIT
        each = UNIT // self._item
        place = dense % self._line
        unit = (place // each) ^ (line * units // 8 % units)
        piece = dense // self._line * self._lines + line
        first = part * k.ROWS * tile.columns
        T.buffer_store(
            self._room, value, [consumer, first + piece * self._line + unit * each + place % each]
        )

    def _places(self, at: Sequence[Any], batch: Mapping[int, Any]) -> list[Any]:
        """A value for each axis of the contraction."""
        found = dict(batch)
        for side, place in zip(self._sides, at, strict=True):
            found |= spread(self._extents, self._product.tiled(side), place)
        return [found.get(axis, 0) for axis in range(len(self._extents))]

    def _copy(self, consumer: Any, row: Any, column: Any, batch: Mapping[int, Any]) -> None:
        """Have a consumer's tile copied to the result."""
        T, tile = self._t, self._tile
        store = T.ptx[_STORE.format(self._rank)]
        others = [batch[axis] for axis in self._product.batch]
        size = k.ROWS * tile.columns
        for part in range(tile.parts):
            first = (row + part * k.ROWS, column)
            for piece in range(size // (self._line * self._lines)):
                dense, line = first if self._by_rows else first[::-1]
                place = (dense + piece * self._line, line)
                where = self._room.ptr_to(
                    [consumer, part * size + piece * self._line * self._lines]
                )
                T.evaluate(store(self._map, *place, *others, where))
        T.evaluate(T.ptx["cp.async.bulk.commit_group"]())
