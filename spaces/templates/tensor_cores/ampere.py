"""The program of a product for threads from Ampere on (PTX ISA, "mma.sync.m16n8k16", "ldmatrix",
"cp.async").

Each step of a block waits for a stage of shared memory, begins to fill the one that was used last,
and multiplies. Copies fill in zeros beyond a tensor: only they and the stores know a shape's edges.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spaces.targets.gpu import Gpu
from spaces.templates.contraction.match import Match
from spaces.templates.products.epilogue import Epilogue
from spaces.templates.products.grid import Grid
from spaces.templates.products.places import read_extents
from spaces.templates.products.product import Product
from spaces.templates.products.source import read_source
from spaces.templates.tensor_cores import ampere_knobs as k
from spaces.templates.tensor_cores.fragments import Fragments
from spaces.templates.tensor_cores.operand import Operand
from spaces.templates.tensor_cores.results import Place, Results
from spaces.templates.tensor_cores.tile import TERMS
from spaces.templates.thread_program import begin_program


def write_ampere_product(match: Match, product: Product, tile: k.AmpereTile, gpu: Gpu) -> Any:
    """The PrimFunc of a setting.

    Args:
        match: the program, tidied up.
        gpu: the device, whose grid is as large as the product.
    """
    from tvm.script.ir_builder import IRBuilder
    from tvm.script.ir_builder import tirx as T

    with IRBuilder() as builder, T.prim_func():
        tensors = begin_program(T, [*match.schedule.mod["main"].params])
        epilogue = Epilogue(match, product.c, tensors)
        _Writer(T, product, tile, epilogue, match.main).write()
    return builder.get()


class _Writer:
    """Writes one program."""

    def __init__(
        self, T: Any, product: Product, tile: k.AmpereTile, epilogue: Epilogue, main: Any
    ) -> None:
        self._t, self._product, self._tile = T, product, tile
        extents = read_extents(product, main)
        numbers = product.sides(tile.swap)
        self._a, self._b = (
            Operand(
                T,
                read_source(product, number, epilogue.operands[number], extents),
                rows=rows,
                lines=rows,
                depth=tile.depth,
                threads=tile.threads,
            )
            for number, rows in zip(numbers, (tile.rows, tile.columns), strict=True)
        )
        sides = [(side.source, side.rows) for side in (self._a, self._b)]
        self._grid = Grid(T, product, sides, extents, tile.depth, tile.group)
        self._results = Results(T, product, numbers, epilogue, extents)

    def write(self) -> None:
        """Write what the threads do."""
        T, tile = self._t, self._tile
        T.device_entry()
        block = T.cta_id([self._grid.tiles])
        thread = T.thread_id([tile.threads])
        pool = T.SMEMPool()
        for side in (self._a, self._b):
            side.allocate(pool, tile.stages)
        pool.commit()
        held = max(side.count_held() for side in (self._a, self._b))
        self._own = T.alloc_buffer((held,), self._product.kind, scope="local") if held else None
        sums = T.alloc_buffer((tile.sums,), "float32", scope="local")
        with T.unroll(tile.sums) as i:
            T.buffer_store(sums, T.float32(0), [i])
        a, b, batch = self._grid.place(block)
        first = self._grid.first((a, b))
        for side, row in zip((self._a, self._b), first, strict=True):
            side.aim(thread, row)
        for step in range(tile.stages - 1):
            with T.If(step < self._grid.steps), T.Then():
                self._copy(thread, step, first, step, batch)
            T.evaluate(T.ptx["cp.async.commit_group"]())
        with T.serial(self._grid.steps) as step:
            T.evaluate(T.ptx["cp.async.wait_group"](tile.stages - 2))
            T.evaluate(T.cuda.cta_sync())
            ahead = step + tile.stages - 1
            with T.If(ahead < self._grid.steps), T.Then():
                self._copy(thread, ahead % tile.stages, first, ahead, batch)
            T.evaluate(T.ptx["cp.async.commit_group"]())
            self._multiply(thread, step % tile.stages, sums)
        self._store(thread, first, batch, sums)

    def _copy(
        self, thread: Any, stage: Any, first: Place, step: Any, batch: Mapping[int, Any]
    ) -> None:
        """Begin to fill a stage."""
        term = step * self._tile.depth
        for side, row in zip((self._a, self._b), first, strict=True):
            if side.source.in_units:
                side.copy(thread, stage, row, term, batch)
            else:
                side.fill(thread, stage, row, term, batch, self._own)

    def _place_warp(self, thread: Any) -> Place:
        """The first row and column of a thread's warp."""
        tile, warp = self._tile, thread // k.WARP
        row = warp // tile.column_warps * (k.ROWS * tile.row_parts)
        return row, warp % tile.column_warps * tile.warp_columns

    def _multiply(self, thread: Any, stage: Any, sums: Any) -> None:
        """Multiply a stage."""
        T, tile = self._t, self._tile
        row, column = map(T.Bind, self._place_warp(thread))
        fragments = Fragments(T, self._product.kind, T.Bind(thread % k.WARP))
        of_a = T.alloc_buffer((4 * tile.row_parts,), "uint32", scope="local")
        of_b = T.alloc_buffer((4,), "uint32", scope="local")
        for term in range(0, tile.depth, TERMS):
            for part in range(tile.row_parts):
                at = row + part * k.ROWS
                fragments.load_rows(self._a, of_a, 4 * part, stage, at, term)
            for pair in range(tile.column_parts):
                at = column + pair * 2 * k.COLUMNS
                fragments.load_columns(self._b, of_b, stage, at, term)
                for part in range(tile.row_parts):
                    factors = [of_a[4 * part + i] for i in range(4)]
                    place = part * tile.warp_columns // 2 + pair * 8
                    fragments.multiply(sums, place, factors, of_b)

    def _store(self, thread: Any, first: Place, batch: Mapping[int, Any], sums: Any) -> None:
        """Store a thread's sums."""
        T, tile = self._t, self._tile
        row, column = self._place_warp(thread)
        lane = thread % k.WARP
        row, column = T.Bind(row + lane // 4), T.Bind(column + lane % 4 * 2)
        for part in range(tile.row_parts):
            inside = (row + part * k.ROWS, column)
            at = (first[0] + inside[0], first[1] + inside[1])
            place = part * tile.warp_columns // 2
            self._results.store(sums, place, tile.warp_columns, inside, at, batch)
