"""The blocks of a product: how many tiles there are, and which tile has which number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from spaces.templates.products.places import count_tiles, multiply
from spaces.templates.products.product import Product
from spaces.templates.products.source import Source
from spaces.templates.thread_program import keep, narrow


@dataclass(frozen=True, slots=True)
class Part:
    """What a block computes at a time.

    Attributes:
        a: number of the tile of A; `b` that of the tile of B.
        batch: the place on each axis of the batch; `number` that on all of them.
        split: which share of the terms.
        share: which share of the runs of its rows, see `spaces.templates.products.runs`.
        rows: the first of those rows that it stores, and the one after the last; None is all.
    """

    a: Any
    b: Any
    batch: dict[int, Any]
    number: Any
    split: Any
    share: Any = 0
    rows: tuple[Any, Any] | None = None


class Grid:
    """Tiles of A by tiles of B by shares of the terms, for each of a batch.

    Args:
        T: TVM's script.
        sides: A and B, each with the rows of a tile.
        extents: of the axes of the contraction.
        depth: terms of a step.
        group: tiles of A whose blocks follow one another.
        splits: shares of the terms; `shares` those of the runs of rows.

    Attributes:
        steps: of each share; the last ones' may lie beyond the terms.
    """

    def __init__(
        self,
        T: Any,
        product: Product,
        sides: Sequence[tuple[Source, int]],
        extents: Sequence[Any],
        depth: int,
        group: int,
        splits: int,
        shares: int = 1,
    ) -> None:
        self._t, self._batch, self._extents, self._group = T, product.batch, extents, group
        self._splits, self._shares = splits, shares
        self._rows = tuple(rows for _, rows in sides)
        self._keeps = product.c.symbolic and not product.plain
        self._a_tiles, self._b_tiles = (
            count_tiles(narrow(T, source.size), rows) for source, rows in sides
        )
        terms = narrow(T, multiply([extents[axis] for axis in product.terms]))
        self.steps = count_tiles(terms, depth * splits)
        batches = narrow(T, multiply([extents[axis] for axis in product.batch]))
        self.parts = self._a_tiles * self._b_tiles * splits * shares * batches

    def first(self, part: Part) -> tuple[Any, Any]:
        """The first row of A and of B in a part's tiles."""
        found = [number * rows for number, rows in zip((part.a, part.b), self._rows, strict=True)]
        # Windows are found by many divisions, each of which would repeat those of an open grid.
        a, b = keep(self._t, found) if self._keeps else found
        return a, b

    def place(self, number: Any) -> Part:
        """The part of a number.

        Some tiles of A follow one another, so that blocks that run together share tiles of B.
        """
        T, group = self._t, self._group
        batch, rest = self._divide(number, self._a_tiles * self._b_tiles)
        of_group, inside = self._divide(rest, group * self._b_tiles)
        first = T.Bind(of_group * group)
        size = T.Bind(T.min(self._a_tiles - first, group))
        number, split = self._divide(batch, self._splits)
        number, share = self._divide(number, self._shares)
        batch, places = number, {}
        for axis in reversed(self._batch):
            extent = narrow(T, multiply([self._extents[axis]]))
            batch, places[axis] = self._divide(batch, extent)
        b, a = self._divide(inside, size)
        return Part(T.Bind(first + a), b, places, number, split, share)

    def _divide(self, number: Any, by: Any) -> tuple[Any, Any]:
        """A quotient and what is left, of numbers that are not negative: TVM does not know that of
        open sizes, and would write a case for each sign."""
        T = self._t
        if isinstance(self.parts, int):
            return T.Bind(number // by), T.Bind(number % by)
        return T.Bind(T.truncdiv(number, by)), T.Bind(T.truncmod(number, by))
