"""The blocks of a product with few rows, and what each thread of one has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from spaces.templates.few_rows.knobs import FewTile
from spaces.templates.products.places import count_tiles, multiply, spread
from spaces.templates.products.product import Product
from spaces.templates.products.source import Source
from spaces.templates.thread_program import narrow


@dataclass(frozen=True, slots=True)
class Share:
    """What is a thread's.

    Attributes:
        row: the first row of its block's tile; `column` the first column.
        split: which share of the terms its block has.
        batch: the place on each axis of the batch; `number` that on all of them.
        along: its number along the terms; `across` that along the columns.
    """

    row: Any
    column: Any
    split: Any
    batch: dict[int, Any]
    number: Any
    along: Any
    across: Any


class Grid:
    """Tiles of rows by tiles of columns by shares of the terms, for each of a batch.

    Args:
        T: TVM's script.
        few: the operand with few rows; `weights` the other one.
        extents: of the axes of the contraction.
    """

    def __init__(
        self,
        T: Any,
        product: Product,
        tile: FewTile,
        few: Source,
        weights: Source,
        extents: Sequence[Any],
    ) -> None:
        self._t, self._product, self._tile, self._extents = T, product, tile, extents
        self.rows, self.columns = narrow(T, few.size), narrow(T, weights.size)
        self.terms = narrow(T, few.terms)
        self.batches = narrow(T, multiply([extents[axis] for axis in product.batch]))
        self._row_tiles = count_tiles(self.rows, tile.rows)
        self._column_tiles = count_tiles(self.columns, tile.block_columns)

    @property
    def blocks(self) -> Any:
        """The number of blocks."""
        return self._row_tiles * self._column_tiles * self._tile.splits * self.batches

    def share(self, block: Any, thread: Any) -> Share:
        """What a thread has. Blocks that read the same weights follow one another, and threads that
        read what lies next to it."""
        T, tile = self._t, self._tile
        rest = T.Bind(block // self._row_tiles)
        shares = T.Bind(rest // self._column_tiles)
        number = T.Bind(shares // tile.splits)
        if tile.roles.turned:
            along, across = thread // tile.column_threads, thread % tile.column_threads
        else:
            along, across = thread % tile.term_threads, thread // tile.term_threads
        return Share(
            row=T.Bind(block % self._row_tiles * tile.rows),
            column=T.Bind(rest % self._column_tiles * tile.block_columns),
            split=T.Bind(shares % tile.splits),
            batch=self.place_batch(number),
            number=number,
            along=T.Bind(along),
            across=T.Bind(across),
        )

    def place_batch(self, number: Any) -> dict[int, Any]:
        """The place on each axis of the batch."""
        places = spread(self._extents, self._product.batch, number)
        return {axis: self._t.Bind(place) for axis, place in places.items()}
