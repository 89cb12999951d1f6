"""The program of a product for Hopper's threads (PTX ISA, "Asynchronous Warpgroup Level Matrix
Instructions", "cp.async.bulk.tensor", "mbarrier").

The first warpgroup of a block copies tiles of both operands into stages of shared memory; each of
the others multiplies rows of its own and stores them, with what the program does to its sums.
Copies fill in zeros beyond a tensor: nothing knows the edges of a shape but the stores. So blocks
of a cluster may have tiles beyond a shape's last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spaces.ir import rewrite
from spaces.targets.gpu import Gpu, count_in_clusters
from spaces.templates.contraction.match import Match
from spaces.templates.products.epilogue import Epilogue
from spaces.templates.products.grid import Grid, Part
from spaces.templates.products.places import read_extents
from spaces.templates.products.product import Product
from spaces.templates.products.program import write_product
from spaces.templates.products.runs import begin_runs
from spaces.templates.products.source import read_source
from spaces.templates.products.totals import Totals
from spaces.templates.tensor_cores import hopper_knobs as k
from spaces.templates.tensor_cores.bulk_results import BulkResults
from spaces.templates.tensor_cores.cluster import Cluster
from spaces.templates.tensor_cores.operand import MappedOperand, Operand, allocate_held
from spaces.templates.tensor_cores.packed_operand import PackedOperand
from spaces.templates.tensor_cores.results import Results
from spaces.templates.tensor_cores.tile import BYTES, HALVES
from spaces.templates.tensor_cores.warpgroups import (
    ROWS,
    WARPGROUP,
    allocate_barriers,
    begin_barriers,
    describe_matrix,
    wait_for_sums,
)

_REGISTERS = {1: (40, 232), 2: (40, 232), 3: (40, 152)}
"""Of threads that copy and of those that multiply, by the number of warpgroups of the latter, once
these have taken what the former gave away."""
_COPYING_REGISTERS = {1: (104, 232), 2: (104, 200), 3: (104, 128)}
"""The same where threads copy element by element."""
_MAPPED, _COPIED, _FILLED, _UNPACKED = "mapped", "copied", "filled", "unpacked"
"""The ways in which an operand is copied: by a tensor map, by threads that need not wait, by
threads element by element, and by threads that unpack it."""


def write_hopper_product(match: Match, product: Product, tile: k.HopperTile, gpu: Gpu) -> Any:
    """The PrimFunc of a setting.

    Args:
        match: the program, tidied up.
        gpu: the device: a persistent grid has a block for each multiprocessor that clusters keep
            busy.
    """
    return write_product(
        match, product, lambda T, epilogue: _Writer(T, product, tile, epilogue, match.main, gpu)
    )


def _find_way(side: Operand) -> str:
    if isinstance(side, PackedOperand):
        return _UNPACKED
    if isinstance(side, MappedOperand) and side.is_mapped:
        return _MAPPED
    return _COPIED if side.is_ahead else _FILLED


class _Writer:
    """Writes one program, its host code first.

    A is the operand that gives the rows of instructions, B the one that gives their columns.
    """

    def __init__(
        self, T: Any, product: Product, tile: k.HopperTile, epilogue: Epilogue, main: Any, gpu: Gpu
    ) -> None:
        self._t, self._tile = T, tile
        extents = read_extents(product, main)
        numbers = product.sides(tile.swap)
        rows = (tile.rows, tile.columns)
        lines = (ROWS * tile.parts, tile.columns)
        self._cluster = Cluster(T, tile.a_blocks, tile.b_blocks)
        self._blocks = count_in_clusters(gpu, self._cluster.blocks)
        shared = (tile.b_blocks, tile.a_blocks)

        def read_side(number: int, own: int, each: int, blocks: int) -> Operand:
            source = read_source(product, number, epilogue, extents)
            sizes = {"rows": own, "lines": each, "depth": tile.depth, "threads": WARPGROUP}
            if source.packed is None:
                return MappedOperand(T, product, number, source, **sizes, blocks=blocks)
            return PackedOperand(T, source, product.widest(number), **sizes)

        self._a, self._b = map(read_side, numbers, rows, lines, shared)
        self._sides = (self._a, self._b)
        self._ways = [_find_way(side) for side in self._sides]
        clustered = zip(self._sides, shared[::-1], strict=True)
        sides = [(side.source, side.rows * blocks) for side, blocks in clustered]
        told = (tile.depth, tile.group, tile.splits, tile.run_blocks)
        self._grid = Grid(T, product, sides, extents, *told)
        self._runs = begin_runs(T, product, epilogue, sides, tile.swap, tile.run_blocks)
        self.totals = Totals(T, product, numbers, epilogue, extents, tile.splits, tile.element.sums)
        self._bulk = None
        if tile.bulk_stores:
            self._bulk = BulkResults(T, self.totals, product, numbers, epilogue.result, tile)
        self._results = self._bulk or Results(T, self.totals)
        self._steps, self._is_open = self._grid.steps, product.c.symbolic

    def write(self) -> None:
        """Write what the threads do."""
        T, tile = self._t, self._tile
        parts = clusters = self._grid.parts
        if tile.persistent:
            smaller = min if isinstance(parts, int) else T.min
            clusters = smaller(parts, self._blocks // self._cluster.blocks)
        number = self._cluster.begin(clusters, stores_tiles=self._bulk is not None)
        thread = T.thread_id([tile.threads])
        self._allocate(thread)
        rounds = (parts - number + clusters - 1) // clusters if tile.persistent else 1
        if self._runs is not None:
            rounds = self._runs.find(thread, tile.threads, self._place(number))
            clusters = 0  # each round has another run of the same tile
        with T.If(thread < WARPGROUP):
            with T.Then():
                self._produce_tiles(thread, number, clusters, rounds)
                self._cluster.end()
            with T.Else():
                T.evaluate(T.ptx["setmaxnreg.inc.sync.aligned.u32"](self._registers[1]))
                sums = T.alloc_buffer((tile.sums,), tile.element.sums, scope="local")
                words = [T.alloc_buffer((1,), "uint64", scope="local") for _ in range(2)]
                with T.serial(rounds) as turn:
                    self._consume(thread, turn, number + turn * clusters, sums, words)
                if self._bulk is not None:
                    self._bulk.finish(thread)
                self._cluster.end()

    def _allocate(self, thread: Any) -> None:
        """Stages, what the results go through, and the barriers of each stage."""
        T, tile = self._t, self._tile
        pool = T.SMEMPool()
        for side in self._sides:
            side.allocate(pool, tile.stages)
        if self._bulk is not None:
            self._bulk.allocate(pool)
        if self._runs is not None:
            self._runs.allocate(pool)
        self._full, self._empty = allocate_barriers(pool, tile.stages)
        pool.commit()
        # Whoever copies in one way arrives once, with one tile or with both.
        fillers = sum(1 if way == _MAPPED else WARPGROUP for way in {*self._ways})
        users = tile.consumers * self._cluster.blocks
        barriers = ((self._full, fillers), (self._empty, users))
        begin_barriers(T, thread, barriers, self._cluster)

    def _produce_tiles(self, thread: Any, number: Any, clusters: Any, rounds: Any) -> None:
        """Copy the tiles of a block: by one thread where maps describe both operands."""
        T = self._t
        T.evaluate(T.ptx["setmaxnreg.dec.sync.aligned.u32"](self._registers[0]))
        if {*self._ways} != {_MAPPED}:
            own = allocate_held(T, self._sides)
            for side in self._sides:
                if isinstance(side, PackedOperand):
                    side.hold()
            with T.serial(rounds) as turn:
                self._produce(thread, turn, number + turn * clusters, own)
        else:
            with T.If(thread == 0), T.Then(), T.serial(rounds) as turn:
                self._produce(thread, turn, number + turn * clusters, {})

    @property
    def _registers(self) -> tuple[int, int]:
        """Of threads that copy, and of those that multiply."""
        table = _REGISTERS if {*self._ways} == {_MAPPED} else _COPYING_REGISTERS
        return table[self._tile.consumers]

    def _place(self, number: Any) -> Part:
        """The part of a block, of its cluster's number."""
        return self._cluster.place(self._grid.place(number), self._is_open)

    def _take(self, turn: Any, number: Any) -> Part:
        """What a block computes in one of its rounds."""
        part = self._place(number)
        return part if self._runs is None else self._runs.take(part, turn)

    def _produce(self, thread: Any, turn: Any, number: Any, own: Mapping[str, Any]) -> None:
        """Copy the stages of a tile as they come free.

        Args:
            own: registers for what threads copy, see `allocate_held`.
        """
        T, tile = self._t, self._tile
        part = self._take(turn, number)
        firsts = (part.a * self._a.rows, part.b * self._b.rows)
        tiles = [*zip(self._sides, firsts, strict=True)]
        begin = T.Bind(part.split * self._steps)
        mapped = [(s, row) for s, row in tiles if isinstance(s, MappedOperand) and s.is_mapped]
        packed = [(s, row) for s, row in tiles if isinstance(s, PackedOperand)]
        copied, filled = (
            [tile for tile, its in zip(tiles, self._ways, strict=True) if its == way]
            for way in (_COPIED, _FILLED)
        )
        for side, row in copied:
            side.aim(thread, row)
        for unpacked, row in packed:
            unpacked.load(thread, (row, begin * tile.depth), part.batch)
        with T.serial(self._steps) as step:
            count = T.Bind(turn * self._steps + step)
            stage = T.Bind(count % tile.stages)
            T.evaluate(
                T.cuda.mbarrier_wait(self._empty.ptr_to([stage]), (count // tile.stages % 2) ^ 1)
            )
            full, term = self._full.ptr_to([stage]), (begin + step) * tile.depth
            if mapped:
                rows = sum(side.rows for side, _ in mapped)
                expected = T.uint32(rows * tile.depth * tile.element.bytes)
                with T.If(thread == 0), T.Then():
                    T.evaluate(T.ptx.mbarrier.arrive.expect_tx.shared.b64(full, expected))
                    for side, row in mapped:
                        share = self._cluster.share(self._sides.index(side))
                        side.load(stage, row, term, part.batch, full, share)
            for side, row in copied:
                side.copy(thread, stage, row, term, part.batch)
            if copied:
                T.evaluate(T.ptx["cp.async.mbarrier.arrive.noinc.shared.b64"](full))
            for side, row in filled:
                side.fill(thread, stage, row, term, part.batch, own[side.source.kind])
            for unpacked, row in packed:
                unpacked.store(thread, stage, (row, term), part.batch)
            for _ in {*self._ways} & {_FILLED, _UNPACKED}:
                T.evaluate(T.ptx["fence.proxy.async.shared::cta"]())
                T.evaluate(T.ptx.mbarrier.arrive.shared.b64(full, T.uint32(1)))
            for unpacked, row in packed:  # while others multiply what was stored
                with T.If(step + 1 < self._steps), T.Then():
                    unpacked.load(thread, (row, term + tile.depth), part.batch)

    def _consume(
        self, thread: Any, turn: Any, number: Any, sums: Any, words: Sequence[Any]
    ) -> None:
        """Multiply the stages of a tile as they are filled, and store its sums."""
        T, tile = self._t, self._tile
        consumer = T.Bind(thread // WARPGROUP - 1)
        part = self._take(turn, number)
        with T.unroll(tile.sums) as i:
            T.buffer_store(sums, rewrite.cast(tile.element.sums, 0), [i])
        with T.serial(self._steps) as step:
            count = T.Bind(turn * self._steps + step)
            stage = T.Bind(count % tile.stages)
            T.evaluate(T.cuda.mbarrier_wait(self._full.ptr_to([stage]), count // tile.stages % 2))
            if _COPIED in self._ways:
                # Copies of threads are seen by warpgroups' products behind such a fence alone.
                T.evaluate(T.ptx["fence.proxy.async.shared::cta"]())
            if tile.element.apart:
                self._multiply_apart(consumer, stage, sums, words)
                self._free(thread, count)
            else:
                self._multiply(consumer, stage, sums, words)
                T.evaluate(T.ptx.wgmma.wait_group.sync.aligned(1))
                with T.If(step > 0), T.Then():
                    self._free(thread, count - 1)
        if not tile.element.apart:
            wait_for_sums(T, sums)
            self._free(thread, turn * self._steps + self._steps - 1)
        self._store(thread, consumer, part, sums)

    def _store(self, thread: Any, consumer: Any, own: Part, sums: Any) -> None:
        """Store the tile of a consumer."""
        T, tile, out = self._t, self._tile, self._bulk
        row = own.a * self._a.rows + consumer * ROWS * tile.parts
        at = (row, own.b * self._b.rows)
        if out is not None:
            out.begin(thread, consumer)
        lane = thread % WARPGROUP
        row, column = T.Bind(lane // 32 * 16 + lane % 32 // 4), T.Bind(lane % 4 * 2)
        for part in range(tile.parts):
            self._results.store(
                *(sums, part * tile.columns // 2, tile.columns, (row, column)),
                (at[0] + part * ROWS + row, at[1] + column),
                own,
                (consumer, part),
            )
        if out is not None:
            out.copy(thread, consumer, at, own.batch)

    def _free(self, thread: Any, count: Any) -> None:
        """Let a stage be filled anew, by all blocks that fill it."""
        barrier = self._empty.ptr_to([count % self._tile.stages])
        self._cluster.arrive(thread % WARPGROUP, barrier)

    def _multiply(self, consumer: Any, stage: Any, sums: Any, words: Sequence[Any]) -> None:
        """The instructions of one stage, for all rows of a consumer."""
        self._describe(consumer, stage, words)
        self._begin_products(sums, words, (0, self._tile.depth), adds=True)

    def _multiply_apart(self, consumer: Any, stage: Any, sums: Any, words: Sequence[Any]) -> None:
        """The same where sums leave the tensor cores after some terms."""
        T, tile = self._t, self._tile
        self._describe(consumer, stage, words)
        own = T.alloc_buffer((tile.sums,), tile.element.sums, scope="local")
        for first in range(0, tile.depth, tile.element.apart):
            terms = (first, first + tile.element.apart)
            self._begin_products(own, words, terms, adds=False)
            wait_for_sums(T, own)
            with T.unroll(tile.sums) as i:
                T.buffer_store(sums, sums[i] + own[i], [i])

    def _describe(self, consumer: Any, stage: Any, words: Sequence[Any]) -> None:
        """Matrix descriptors of the rows of a consumer, and of all columns."""
        tile = self._tile
        firsts = (consumer * ROWS * tile.parts * tile.depth, 0)
        for side, word, first in zip(self._sides, words, firsts, strict=True):
            describe_matrix(self._t, side, word, stage, first)

    def _begin_products(
        self, sums: Any, words: Sequence[Any], terms: tuple[int, int], *, adds: bool
    ) -> None:
        """Begin the instructions of some terms of a stage.

        Args:
            adds: whether the first ones add to the sums; else these begin from zero.
        """
        T, tile = self._t, self._tile
        multiply, flags = self._find_instruction()
        each = tile.columns // 2
        T.evaluate(T.ptx.wgmma.fence.sync.aligned())
        for part in range(tile.parts):
            own = [sums[part * each + i] for i in range(each)]
            for term in range(*terms, tile.element.terms):
                a = words[0][0] + T.uint64(self._a.describe(part * ROWS, term))
                b = words[1][0] + T.uint64(self._b.describe(0, term))
                before = T.ptx.pred(int(adds or term > terms[0]))
                T.evaluate(multiply(*own, a, b, before, *flags))
        T.evaluate(T.ptx.wgmma.commit_group.sync.aligned())

    def _find_instruction(self) -> tuple[Any, tuple[int, ...]]:
        """What multiplies, and its last operands: signs, and whether operands are turned, which
        halves alone may be."""
        element, sources = self._tile.element, [side.source for side in self._sides]
        kinds = ".".join(element.names[source.kind] for source in sources)
        shape = f"m64n{self._tile.columns}k{element.terms}"
        name = f"wgmma.mma_async.sync.aligned.{shape}"
        if element is BYTES:
            return self._t.ptx[f"{name}.s32.{kinds}"], ()
        turned = [int(source.turned) for source in sources]
        flags = (1, 1, *(turned if element is HALVES else ()))
        return self._t.ptx[f"{name}.f32.{kinds}"], flags
