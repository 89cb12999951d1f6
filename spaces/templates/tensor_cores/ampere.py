"""The program of a product for threads from Ampere on (PTX ISA, "mma.sync", "ldmatrix",
"cp.async").

Each step of a block waits for a stage of shared memory, begins to fill the one that was used last,
and multiplies. Copies fill in zeros beyond a tensor: only they and the stores know a shape's edges.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spaces.ir import rewrite
from spaces.targets.gpu import Gpu
from spaces.templates.contraction.match import Match
from spaces.templates.products.epilogue import Epilogue
from spaces.templates.products.grid import Grid, Part
from spaces.templates.products.places import read_extents
from spaces.templates.products.product import Product
from spaces.templates.products.program import write_product
from spaces.templates.products.runs import begin_runs
from spaces.templates.products.source import read_source
from spaces.templates.products.totals import Place, Totals
from spaces.templates.tensor_cores import ampere_knobs as k
from spaces.templates.tensor_cores.elements.byte_float_fragments import (
    RoughFragments,
    WidenedFragments,
)
from spaces.templates.tensor_cores.elements.byte_fragments import ByteFragments
from spaces.templates.tensor_cores.elements.single_fragments import SingleFragments
from spaces.templates.tensor_cores.elements.single_results import SingleResults
from spaces.templates.tensor_cores.elements.tf32_fragments import Tf32Fragments
from spaces.templates.tensor_cores.fragments import Fragments
from spaces.templates.tensor_cores.operand import Operand, allocate_held
from spaces.templates.tensor_cores.packed_operand import PackedOperand
from spaces.templates.tensor_cores.results import Results
from spaces.templates.tensor_cores.tile import BYTES, SINGLES, TF32, WIDENED


def write_ampere_product(match: Match, product: Product, tile: k.AmpereTile, gpu: Gpu) -> Any:
    """The PrimFunc of a setting.

    Args:
        match: the program, tidied up.
        gpu: the device, whose grid is as large as the product.
    """
    return write_product(
        match, product, lambda T, epilogue: _Writer(T, product, tile, epilogue, match.main)
    )


class _Writer:
    """Writes one program."""

    def __init__(
        self, T: Any, product: Product, tile: k.AmpereTile, epilogue: Epilogue, main: Any
    ) -> None:
        self._t, self._tile = T, tile
        extents = read_extents(product, main)
        numbers = product.sides(tile.swap)

        def read_side(number: int, rows: int) -> Operand:
            source = read_source(product, number, epilogue, extents)
            sizes = {"rows": rows, "lines": rows, "depth": tile.depth, "threads": tile.threads}
            if source.packed is None:
                return Operand(T, source, **sizes)
            return PackedOperand(T, source, product.widest(number), **sizes)

        self._a, self._b = map(read_side, numbers, (tile.rows, tile.columns))
        self._packed = [s for s in (self._a, self._b) if isinstance(s, PackedOperand)]
        sides = [(side.source, side.rows) for side in (self._a, self._b)]
        told = (tile.depth, tile.group, tile.splits, tile.run_blocks)
        self._grid = Grid(T, product, sides, extents, *told)
        self._runs = begin_runs(T, product, epilogue, sides, tile.swap, tile.run_blocks)
        kind = tile.element.sums
        self.totals = Totals(T, product, numbers, epilogue, extents, tile.splits, kind)
        turned = (self._a.source.turned, self._b.source.turned)
        self._singles = SingleResults(T, self.totals) if tile.element is SINGLES else None
        bytes_paired = turned if tile.element.bytes == 1 else (False, False)
        self._results = self._singles or Results(T, self.totals, bytes_paired)

    def write(self) -> None:
        """Write what the threads do."""
        T, tile = self._t, self._tile
        block = T.cta_id([self._grid.parts])
        thread = T.thread_id([tile.threads])
        pool = T.SMEMPool()
        for side in (self._a, self._b):
            side.allocate(pool, tile.stages)
        if self._runs is not None:
            self._runs.allocate(pool)
        pool.commit()
        self._own = allocate_held(T, (self._a, self._b))
        for side in self._packed:
            side.hold()
        sums = T.alloc_buffer((tile.sums,), tile.element.sums, scope="local")
        part = self._grid.place(block)
        if self._runs is None:
            self._compute(thread, part, sums)
            return
        with T.serial(self._runs.find(thread, tile.threads, part)) as turn:
            with T.If(turn > 0), T.Then():  # the stages are still read
                T.evaluate(T.cuda.cta_sync())
            self._compute(thread, self._runs.take(part, turn), sums)

    def _compute(self, thread: Any, part: Part, sums: Any) -> None:
        """Multiply and store a tile."""
        T, tile = self._t, self._tile
        with T.unroll(tile.sums) as i:
            T.buffer_store(sums, rewrite.cast(tile.element.sums, 0), [i])
        if self._singles is not None:
            self._largest = T.alloc_buffer((1,), "uint32", scope="local")
            T.buffer_store(self._largest, T.uint32(0), [0])
        self._begin = T.Bind(part.split * self._grid.steps)
        first = self._grid.first(part)
        for side, row in zip((self._a, self._b), first, strict=True):
            side.aim(thread, row)
        for step in range(tile.stages - 1):
            with T.If(step < self._grid.steps), T.Then():
                self._copy(thread, step, first, step, part.batch)
                self._unpack(thread, step, first, step, part.batch)
            T.evaluate(T.ptx["cp.async.commit_group"]())
        with T.serial(self._grid.steps) as step:
            T.evaluate(T.ptx["cp.async.wait_group"](tile.stages - 2))
            T.evaluate(T.cuda.cta_sync())
            ahead = step + tile.stages - 1
            with T.If(ahead < self._grid.steps), T.Then():
                self._copy(thread, ahead % tile.stages, first, ahead, part.batch)
            T.evaluate(T.ptx["cp.async.commit_group"]())
            self._multiply(thread, step % tile.stages, sums)
            if self._packed:
                with T.If(ahead < self._grid.steps), T.Then():
                    self._unpack(thread, ahead % tile.stages, first, ahead, part.batch)
        self._store(thread, first, part, sums)

    def _copy(
        self, thread: Any, stage: Any, first: Place, step: Any, batch: Mapping[int, Any]
    ) -> None:
        """Begin to fill a stage."""
        term = self._find_term(step)
        for side, row in zip((self._a, self._b), first, strict=True):
            side.move(thread, stage, row, term, batch, self._own)

    def _unpack(
        self, thread: Any, stage: Any, first: Place, step: Any, batch: Mapping[int, Any]
    ) -> None:
        """Fill a stage with what was loaded for it while another was multiplied."""
        for side in self._packed:
            row = first[0] if side is self._a else first[1]
            side.store(thread, stage, (row, self._find_term(step)), batch)

    def _find_term(self, step: Any) -> Any:
        """The first term of a step."""
        return (self._begin + step) * self._tile.depth

    def _place_warp(self, thread: Any) -> Place:
        """The first row and column of a thread's warp."""
        tile, warp = self._tile, thread // k.WARP
        row = warp // tile.column_warps * (k.ROWS * tile.row_parts)
        return row, warp % tile.column_warps * tile.warp_columns

    def _multiply(self, thread: Any, stage: Any, sums: Any) -> None:
        """Multiply a stage."""
        T, tile = self._t, self._tile
        row, column = map(T.Bind, self._place_warp(thread))
        fragments = self._read_fragments(T.Bind(thread % k.WARP))
        each = fragments.registers
        of_a = T.alloc_buffer((each * tile.row_parts,), "uint32", scope="local")
        of_b = T.alloc_buffer((each,), "uint32", scope="local")
        for term in range(0, tile.depth, tile.element.terms):
            for part in range(tile.row_parts):
                at = row + part * k.ROWS
                fragments.load_rows(self._a, of_a, each * part, stage, at, term)
            for pair in range(tile.column_parts):
                at = column + pair * 2 * k.COLUMNS
                fragments.load_columns(self._b, of_b, stage, at, term)
                for part in range(tile.row_parts):
                    factors = [of_a[each * part + i] for i in range(each)]
                    place = part * tile.warp_columns // 2 + pair * 8
                    fragments.multiply(sums, place, factors, of_b)

    def _read_fragments(self, lane: Any) -> Fragments:
        """Loads and products of the tile's elements."""
        if self._singles is not None:
            return SingleFragments(self._t, lane, self._largest)
        kinds = (self._a.source.kind, lane, self._b.source.kind)
        element = self._tile.element
        if element is WIDENED:
            return WidenedFragments(self._t, *kinds)
        if element.apart:
            return RoughFragments(self._t, *kinds)
        if element is BYTES:
            return ByteFragments(self._t, *kinds)
        if element is TF32:
            return Tf32Fragments(self._t, lane)
        return Fragments(self._t, *kinds)

    def _store(self, thread: Any, first: Place, part: Part, sums: Any) -> None:
        """Store a thread's sums."""
        T, tile, singles = self._t, self._tile, self._singles
        if singles is None:
            self._store_sums(thread, first, part, sums)
            return
        with T.If(singles.has_large(self._largest[0])):
            with T.Then():
                row, column = self._place_warp(thread)
                terms = self._grid.steps * tile.depth
                singles.sum_again(
                    thread % k.WARP,
                    (self._a.source, self._b.source),
                    (first[0] + row, first[1] + column),
                    (k.ROWS * tile.row_parts, tile.warp_columns),
                    (part.split * terms, terms),
                    part,
                )
            with T.Else():
                self._store_sums(thread, first, part, sums)

    def _store_sums(self, thread: Any, first: Place, part: Part, sums: Any) -> None:
        """Store a thread's sums as they are."""
        T, tile = self._t, self._tile
        row, column = self._place_warp(thread)
        own = self._results.place_lane(thread % k.WARP)
        row, column = T.Bind(row + own[0]), T.Bind(column + own[1])
        for number in range(tile.row_parts):
            inside = (row + number * k.ROWS, column)
            at = (first[0] + inside[0], first[1] + inside[1])
            place = number * tile.warp_columns // 2
            self._results.store(sums, place, tile.warp_columns, inside, at, part)
