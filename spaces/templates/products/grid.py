"""The blocks of a product: how many tiles there are, and which tile has which number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spaces.templates.products.places import count_tiles, multiply
from spaces.templates.products.product import Product
from spaces.templates.products.source import Source
from spaces.templates.thread_program import keep, narrow


class Grid:
    """Tiles of A by tiles of B, for each of a batch.

    Args:
        T: TVM's script.
        sides: A and B, each with the rows of a tile.
        extents: of the axes of the contraction.
        depth: terms of a step.
        group: tiles of A whose blocks follow one another.
    """

    def __init__(
        self,
        T: Any,
        product: Product,
        sides: Sequence[tuple[Source, int]],
        extents: Sequence[Any],
        depth: int,
        group: int,
    ) -> None:
        self._t, self._batch, self._extents, self._group = T, product.batch, extents, group
        self._rows = tuple(rows for _, rows in sides)
        self._keeps = product.c.symbolic and not product.plain
        self._a_tiles, self._b_tiles = (
            count_tiles(narrow(T, source.size), rows) for source, rows in sides
        )
        self.steps = count_tiles(
            narrow(T, multiply([extents[axis] for axis in product.terms])), depth
        )
        batches = narrow(T, multiply([extents[axis] for axis in product.batch]))
        self.tiles = self._a_tiles * self._b_tiles * batches

    def first(self, tile: tuple[Any, Any]) -> tuple[Any, Any]:
        """The first row of A and of B in their tiles."""
        found = tuple(number * rows for number, rows in zip(tile, self._rows, strict=True))
        # Windows are found by many divisions, each of which would repeat those of an open grid.
        a, b = keep(self._t, found) if self._keeps else found
        return a, b

    def place(self, number: Any) -> tuple[Any, Any, dict[int, Any]]:
        """The tile of a number: that of A, that of B, and the place on each axis of the batch.

        Some tiles of A follow one another, so that blocks that run together share tiles of B.
        """
        T, group = self._t, self._group
        rest = T.Bind(number % (self._a_tiles * self._b_tiles))
        first = T.Bind(rest // (group * self._b_tiles) * group)
        size = T.Bind(T.min(self._a_tiles - first, group))
        inside = T.Bind(rest % (group * self._b_tiles))
        batch, places = number // (self._a_tiles * self._b_tiles), {}
        for axis in reversed(self._batch):
            extent = narrow(T, multiply([self._extents[axis]]))
            places[axis] = T.Bind(batch % extent)
            batch = batch // extent
        return T.Bind(first + inside % size), T.Bind(inside // size), places
