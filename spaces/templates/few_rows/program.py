"""The program of a product with few rows.

Each block goes through the terms of its columns in steps. A thread first begins all loads of
weights of its step, then multiplies them by each row. At the end threads that have terms of the
same sums add these up, in an order that does not change. Where blocks share the terms of a sum, a
second kernel adds what each of them has left in a workspace.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spaces.targets.gpu import Gpu
from spaces.templates.contraction.match import Match
from spaces.templates.few_rows.grid import Grid
from spaces.templates.few_rows.knobs import FewTile
from spaces.templates.few_rows.sums import Sums
from spaces.templates.products.epilogue import Epilogue
from spaces.templates.products.places import count_tiles
from spaces.templates.products.product import Product
from spaces.templates.products.program import write_product
from spaces.templates.products.source import read_source
from spaces.templates.products.totals import Totals
from spaces.templates.products.vectors import Vectors, allocate_vectors


def write_few_rows(match: Match, product: Product, tile: FewTile, gpu: Gpu) -> Any:
    """The PrimFunc of a setting.

    Args:
        match: the program, tidied up.
        gpu: the device; the grid is as large as the product.
    """
    return write_product(
        match, product, lambda T, epilogue: _Writer(T, product, tile, epilogue, match.main)
    )


class _Writer:
    """Writes the kernel that multiplies."""

    def __init__(
        self, T: Any, product: Product, tile: FewTile, epilogue: Epilogue, main: Any
    ) -> None:
        self._t, self._tile = T, tile
        extents = [axis.dom.extent for axis in main.iter_vars]
        roles = tile.roles
        self._few, self._weights = (
            read_source(product, number, epilogue, extents) for number in (roles.few, roles.weights)
        )
        self._grid = Grid(T, product, tile, self._few, self._weights, extents)
        sides = (roles.few, roles.weights)
        self.totals = Totals(T, product, sides, epilogue, extents, tile.splits)

    def write(self) -> None:
        """Write what the threads do."""
        T, tile = self._t, self._tile
        block = T.cta_id([self._grid.blocks])
        thread = T.thread_id([tile.threads])
        self._share = self._grid.share(block, thread)
        loads = tile.rows * tile.each // tile.few_vector
        self._of_weights = allocate_vectors(T, self._weights, tile.vector, tile.loads)
        self._of_few = allocate_vectors(T, self._few, tile.few_vector, loads)
        self._wide = T.alloc_buffer((tile.columns * tile.width,), "float32", scope="local")
        self._factor = T.alloc_buffer((1,), "float32", scope="local")
        sums = T.alloc_buffer((tile.sums,), "float32", scope="local")
        with T.unroll(tile.sums) as i:
            T.buffer_store(sums, T.float32(0), [i])
        self._go_through(sums)
        Sums(T, tile, self.totals).store(self._share, thread, sums)

    def _go_through(self, sums: Any) -> None:
        """Go through a block's share of the steps."""
        T, tile, terms = self._t, self._tile, self._grid.terms
        steps = count_tiles(terms, tile.step_terms)
        own = count_tiles(steps - self._share.split, tile.splits)
        with T.serial(own) as turn:
            self._step((turn * tile.splits + self._share.split) * tile.step_terms, sums)

    def _step(self, first: Any, sums: Any) -> None:
        """Load and multiply the terms of a step, which begin at one."""
        T, tile, share = self._t, self._tile, self._share

        def place(group: Any) -> Any:
            return first + (group * tile.term_threads + share.along) * tile.each

        if tile.roles.turned:
            with T.unroll(tile.each) as term:
                self._load_weights(term, place(0) + term)
        else:
            with T.unroll(tile.groups) as group:
                self._load_weights(group, place(group))
        with T.unroll(tile.groups) as group:
            self._load_few(place(group))
            if tile.roles.turned or self._of_weights.read_scale(0) is None:
                for term in range(tile.each):
                    self._multiply(group, term, sums)
            else:
                self._multiply_unscaled(group, sums)

    def _load_weights(self, number: Any, term: Any) -> None:
        """Load from all columns of a thread what begins at a term."""
        T, tile, share = self._t, self._tile, self._share
        with T.unroll(tile.columns) as c:
            column = share.column + (c * tile.column_threads + share.across) * tile.width
            column = self._keep_inside(column, self._grid.columns, tile.block_columns, tile.width)
            load = number * tile.columns + c
            self._load(self._of_weights, load, column, term, share.batch)

    def _load_few(self, term: Any) -> None:
        """Load from each row the terms of a group."""
        T, tile, share = self._t, self._tile, self._share
        pieces = tile.each // tile.few_vector
        with T.unroll(tile.rows) as r, T.unroll(pieces) as piece:
            row = self._keep_inside(share.row + r, self._grid.rows, tile.rows, 1)
            at, load = term + piece * tile.few_vector, r * pieces + piece
            self._load(self._of_few, load, row, at, share.batch)

    def _keep_inside(self, place: Any, size: Any, tile: int, width: int) -> Any:
        """A row or column that there is: what others are multiplied by is not stored."""
        if isinstance(size, int) and size % tile == 0:
            return place
        return self._t.min(place, size - width)

    def _load(
        self, vectors: Vectors, number: Any, row: Any, term: Any, batch: Mapping[int, Any]
    ) -> None:
        """Load a vector where there are terms."""
        T, terms = self._t, self._grid.terms
        if isinstance(terms, int) and terms % self._tile.step_terms == 0:
            vectors.load(number, row, term, batch)
            return
        with T.If(term < terms):
            with T.Then():
                vectors.load(number, row, term, batch)
            with T.Else():
                vectors.clear(number)

    def _multiply_unscaled(self, group: Any, sums: Any) -> None:
        """Multiply a group's terms, of whose weights those of a column have one scale: it is the
        sums that are multiplied by it."""
        T, tile = self._t, self._tile
        parts = T.alloc_buffer((tile.sums,), "float32", scope="local")
        with T.unroll(tile.sums) as i:
            T.buffer_store(parts, T.float32(0), [i])
        for term in range(tile.each):
            self._multiply(group, term, parts)
        with T.unroll(tile.rows) as r, T.unroll(tile.columns) as c:
            own, scale = r * tile.columns + c, self._of_weights.read_scale(group * tile.columns + c)
            T.buffer_store(sums, sums[own] + parts[own] * scale, [own])

    def _multiply(self, group: Any, term: int, sums: Any) -> None:
        """Multiply a term of a thread's columns by all rows."""
        T, tile = self._t, self._tile
        read = self._of_weights.widen if tile.roles.turned else self._of_weights.read_unscaled
        with T.unroll(tile.columns) as c:
            for w in range(tile.width):
                load, place = (term, w) if tile.roles.turned else (group, term)
                value = read(load * tile.columns + c, place)
                T.buffer_store(self._wide, value, [c * tile.width + w])
        own = tile.columns * tile.width
        pieces = tile.each // tile.few_vector
        with T.unroll(tile.rows) as r:
            load = r * pieces + term // tile.few_vector
            value = self._of_few.widen(load, term % tile.few_vector)
            T.buffer_store(self._factor, value, [0])
            with T.unroll(own) as i:
                total = sums[r * own + i] + self._factor[0] * self._wide[i]
                T.buffer_store(sums, total, [r * own + i])
