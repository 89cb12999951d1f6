"""The program of a product that threads multiply.

Each step of a block begins to fill the stage of shared memory that was used last, and multiplies.
Threads read the factors of a term before they multiply those of the term before it. Where blocks
share the terms of a sum, a second kernel adds what each of them has left in a workspace.
"""

from __future__ import annotations

from typing import Any

from spaces.targets.gpu import WARP, Gpu
from spaces.templates.contraction.match import Match
from spaces.templates.products.epilogue import Epilogue
from spaces.templates.products.grid import Grid
from spaces.templates.products.layout import UNIT
from spaces.templates.products.places import read_extents
from spaces.templates.products.product import Product
from spaces.templates.products.program import write_product
from spaces.templates.products.source import read_source
from spaces.templates.products.totals import Totals
from spaces.templates.thread_products import knobs as k
from spaces.templates.thread_products.operand import Operand
from spaces.templates.thread_products.places import place_lane, tile_of_operand
from spaces.templates.thread_products.results import Results
from spaces.templates.thread_program import keep


def write_thread_product(match: Match, product: Product, tile: k.ThreadTile, gpu: Gpu) -> Any:
    """The PrimFunc of a setting.

    Args:
        match: the program, tidied up.
        gpu: the device: whether it copies ahead; its grid is as large as the product.
    """
    ahead = k.copies_ahead(gpu)
    return write_product(
        match,
        product,
        lambda T, epilogue: _Writer(T, product, tile, epilogue, match.main, ahead=ahead),
    )


class _Writer:
    """Writes one program."""

    def __init__(
        self,
        T: Any,
        product: Product,
        tile: k.ThreadTile,
        epilogue: Epilogue,
        main: Any,
        *,
        ahead: bool,
    ) -> None:
        self._t, self._tile, self._ahead = T, tile, ahead
        extents = read_extents(product, main)
        numbers = product.sides(0)
        self._sides: list[Operand] = []
        self._late: Operand | None = None
        for number in numbers:
            source = read_source(product, number, epilogue, extents)
            own = tile_of_operand(product, tile, number)
            late = number == k.late_of(product)
            way = Operand(T, source, own, threads=tile.threads, ahead=ahead, late=late)
            self._sides.append(way)
            self._late = way if late else self._late
        sides = [(side.source, side.tile.rows) for side in self._sides]
        self._grid = Grid(T, product, sides, extents, tile.depth, tile.group, tile.splits)
        self.totals = Totals(T, product, numbers, epilogue, extents, tile.splits)
        self._results = Results(T, product, self.totals, self._sides)

    def write(self) -> None:
        """Write what the threads do."""
        T, tile = self._t, self._tile
        block = T.cta_id([self._grid.parts])
        thread = T.thread_id([tile.threads])
        self._allocate()
        part = self._grid.place(block)
        batch = dict(zip(part.batch, keep(T, [*part.batch.values()]), strict=True))
        warp, lanes = thread // WARP, place_lane(thread % WARP, tile.row_lanes)
        warps = (warp // tile.column_warps, warp % tile.column_warps)
        self._begin_terms(part.split)
        first = []
        for side, number, *own in zip(self._sides, (part.a, part.b), warps, lanes, strict=True):
            row = side.begin_at(thread, number, batch)
            side.read_at(side.tile.first_slot(*own))
            first.append(row + side.tile.first_row(*own))
        sums = T.alloc_buffer((tile.sums,), "float32", scope="local")
        with T.unroll(tile.sums) as i:
            T.buffer_store(sums, T.float32(0), [i])
        self._multiply(sums)
        self._results.store(sums, first, batch, part)

    def _allocate(self) -> None:
        """Make room for tiles: of a stage they lie behind one another, so that one offset is that
        of both."""
        T, tile = self._t, self._tile
        rows, columns = self._sides
        pool = T.SMEMPool()
        shared = pool.alloc((tile.stages * self._apart * k.VECTOR,), "float32", align=UNIT)
        pool.commit()
        rows.allocate(shared, 0)
        columns.allocate(shared, tile.rows * tile.depth // k.VECTOR)

    @property
    def _apart(self) -> int:
        """How far stages are apart, in vectors."""
        apart: int = (self._tile.rows + self._tile.columns) * self._tile.depth // k.VECTOR
        return apart

    def _begin_terms(self, split: Any) -> None:
        """Say which terms are those of a block."""
        self._begin: Any = 0
        if self._tile.splits > 1:
            (self._begin,) = keep(self._t, [split * self._grid.steps])
            for side in self._sides:
                side.end_at((self._begin + self._grid.steps) * self._tile.depth)

    def _multiply(self, sums: Any) -> None:
        """Go through all terms."""
        T, tile = self._t, self._tile
        for step in range(tile.stages - 1):
            self._copy(step * self._apart, step)
            self._finish(step * self._apart)
        self._wait()
        for side in self._sides:
            side.read(0, 0)
        last = tile.stages - 1
        before, now, after = range(3)
        stages = T.alloc_buffer((3,), "int32", scope="local")
        T.buffer_store(stages, last * self._apart, [before])
        T.buffer_store(stages, 0, [now])
        with T.serial(self._grid.steps) as step:
            self._copy(stages[before], step + last)
            for term in range(tile.depth - 1):
                self._add(sums, term, stages[now], term + 1)
            self._finish(stages[before])
            T.buffer_store(stages, stages[now], [before])
            is_last = stages[now] == last * self._apart
            T.buffer_store(stages, T.Select(is_last, 0, stages[now] + self._apart), [after])
            self._wait()
            self._add(sums, tile.depth - 1, stages[after], 0)
            T.buffer_store(stages, stages[after], [now])

    def _copy(self, stage: Any, step: Any) -> None:
        """Begin to fill a stage."""
        for side in self._sides:
            side.copy(stage, self._begin + step)
        if self._ahead:
            self._t.evaluate(self._t.ptx["cp.async.commit_group"]())

    def _finish(self, stage: Any) -> None:
        """Fill a stage with what threads have in registers."""
        for side in self._sides:
            side.finish(stage)

    def _wait(self) -> None:
        """Wait until the next stage is there, and no thread reads the one before it."""
        T = self._t
        if self._ahead:
            T.evaluate(T.ptx["cp.async.wait_group"](self._tile.stages - 2))
        T.evaluate(T.cuda.cta_sync())

    def _add(self, sums: Any, term: int, stage: Any, following: int) -> None:
        """Add the products of a term, and read the factors of the one that follows.

        Args:
            stage: of the term that follows.
        """
        T, late = self._t, self._late
        for side in self._sides:
            if side is not late:
                side.read(stage, following)
        rows, columns = self._sides
        if late is None or not late.begins_at(following):
            with T.unroll(self._count(rows)) as i, T.unroll(self._count(columns)) as j:
                self._add_one(sums, term, i, j)
            return
        other = rows if late is columns else columns
        for number in range(self._count(late)):
            with T.unroll(self._count(other)) as i:
                self._add_one(sums, term, *((i, number) if late is columns else (number, i)))
            late.read_vector(stage, following, number)

    def _count(self, side: Operand) -> int:
        """Rows, or columns, of a thread."""
        return k.VECTOR * side.tile.vectors

    def _add_one(self, sums: Any, term: int, row: Any, column: Any) -> None:
        rows, columns = self._sides
        own = row * self._count(columns) + column
        more = rows.factor(term, row) * columns.factor(term, column)
        self._t.buffer_store(sums, sums[own] + more, [own])
