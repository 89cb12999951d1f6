"""The program of a product for Hopper's threads (PTX ISA, "Asynchronous Warpgroup Level Matrix
Instructions", "cp.async.bulk.tensor", "mbarrier").

The first warpgroup of a block copies tiles of both operands into stages of shared memory; each of
the others multiplies rows of its own and stores them, with what the program does to its sums.
Copies fill in zeros beyond a tensor: nothing knows the edges of a shape but the stores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spaces.targets.gpu import Gpu
from spaces.templates.contraction.match import Match
from spaces.templates.products.epilogue import Epilogue
from spaces.templates.products.grid import Grid
from spaces.templates.products.layout import UNIT
from spaces.templates.products.places import read_extents
from spaces.templates.products.product import Product
from spaces.templates.products.source import read_source
from spaces.templates.tensor_cores import hopper_knobs as k
from spaces.templates.tensor_cores.bulk_results import BulkResults
from spaces.templates.tensor_cores.operand import MappedOperand
from spaces.templates.tensor_cores.results import Place, Results
from spaces.templates.tensor_cores.tensor_map import SWIZZLES
from spaces.templates.tensor_cores.tile import ITEM, KINDS, LINE_BYTES, PATTERN_BYTES, TERMS
from spaces.templates.thread_program import begin_program

_REGISTERS = {1: (40, 232), 2: (40, 232), 3: (40, 152)}
"""Of threads that copy and of those that multiply, by the number of warpgroups of the latter, once
these have taken what the former gave away."""
_COPYING_REGISTERS = {1: (104, 232), 2: (104, 200), 3: (104, 128)}
"""The same where threads copy element by element."""
_KEEP = "keep_below_wait"
_KEEP_CODE = f"""
template <class... Sums> static __device__ __forceinline__ void {_KEEP}(Sums&... sums) {{
  ([&] {{ asm volatile("" : "+f"(sums) :: "memory"); }}(), ...);
}}
"""
"""Code that nvcc cannot read sums above: else it moves reads above the wait for the last products,
and an H100 then lacked these. TVM's own `noop_barrier` takes a copy of a sum."""
_MAPPED, _COPIED, _FILLED = "mapped", "copied", "filled"
"""The ways in which an operand is copied: by a tensor map, by threads 16 bytes each time, and by
threads element by element."""
_SWIZZLE = SWIZZLES[LINE_BYTES]
"""Of an operand's lines; matrix descriptors number it as tensor maps do, and count in units."""
_PATTERN = PATTERN_BYTES // UNIT


def write_hopper_product(match: Match, product: Product, tile: k.HopperTile, gpu: Gpu) -> Any:
    """The PrimFunc of a setting.

    Args:
        match: the program, tidied up.
        gpu: the device: a persistent grid has a block for each multiprocessor.
    """
    from tvm.script.ir_builder import IRBuilder
    from tvm.script.ir_builder import tirx as T

    with IRBuilder() as builder, T.prim_func():
        tensors = begin_program(T, [*match.schedule.mod["main"].params])
        epilogue = Epilogue(match, product.c, tensors)
        _Writer(T, product, tile, epilogue, match.main).write(gpu.multiprocessors)
    return builder.get()


class _Writer:
    """Writes one program. A is the operand that gives the rows of instructions, B their columns."""

    def __init__(
        self, T: Any, product: Product, tile: k.HopperTile, epilogue: Epilogue, main: Any
    ) -> None:
        self._t, self._product, self._tile, self._epilogue = T, product, tile, epilogue
        self._extents = read_extents(product, main)
        numbers = product.sides(tile.swap)
        rows = (tile.rows, tile.columns)
        lines = (k.ROWS * tile.parts, tile.columns)
        self._a, self._b = (
            MappedOperand(
                *(T, product, number),
                read_source(product, number, epilogue.operands[number], self._extents),
                rows=own,
                lines=each,
                depth=tile.depth,
                threads=k.WARPGROUP,
            )
            for number, own, each in zip(numbers, rows, lines, strict=True)
        )
        self._sides = (self._a, self._b)
        self._ways = [
            _MAPPED if side.is_mapped else _COPIED if side.source.in_units else _FILLED
            for side in self._sides
        ]
        sides = [(side.source, side.rows) for side in self._sides]
        self._grid = Grid(T, product, sides, self._extents, tile.depth, tile.group)
        self._steps = self._grid.steps

    def write(self, multiprocessors: int) -> None:
        """Write the program's host code and its threads'."""
        T, tile = self._t, self._tile
        sides = self._product.sides(tile.swap)
        told = (T, self._product, sides, self._epilogue, self._extents)
        self._bulk = BulkResults(*told, tile) if tile.bulk_stores else None
        self._results = self._bulk or Results(*told)
        tiles = blocks = self._grid.tiles
        if tile.persistent:
            few = isinstance(tiles, int)
            blocks = min(tiles, multiprocessors) if few else T.min(tiles, multiprocessors)
        T.device_entry()
        block = T.cta_id([blocks])
        thread = T.thread_id([tile.threads])
        self._allocate(thread)
        rounds = (tiles - block + blocks - 1) // blocks if tile.persistent else 1
        with T.If(thread < k.WARPGROUP):
            with T.Then():
                self._produce_tiles(thread, block, blocks, rounds)
            with T.Else():
                T.evaluate(T.ptx["setmaxnreg.inc.sync.aligned.u32"](self._registers[1]))
                sums = T.alloc_buffer((tile.sums,), "float32", scope="local")
                words = [T.alloc_buffer((1,), "uint64", scope="local") for _ in range(2)]
                with T.serial(rounds) as turn:
                    self._consume(thread, turn, block + turn * blocks, sums, words)
                if self._bulk is not None:
                    self._bulk.finish(thread)

    def _allocate(self, thread: Any) -> None:
        """Stages, what the results go through, and the barriers of each stage."""
        T, tile = self._t, self._tile
        pool = T.SMEMPool()
        for side in self._sides:
            side.allocate(pool, tile.stages)
        if self._bulk is not None:
            self._bulk.allocate(pool)
        self._full, self._empty = (pool.alloc((tile.stages,), "uint64", align=8) for _ in range(2))
        pool.commit()
        # Whoever copies in one way arrives once, with one tile or with both.
        fillers = sum(1 if way == _MAPPED else k.WARPGROUP for way in {*self._ways})
        with T.If(thread == 0), T.Then():
            for stage in range(tile.stages):
                for barrier, count in ((self._full, fillers), (self._empty, tile.consumers)):
                    T.evaluate(
                        T.ptx.mbarrier.init.shared.b64(barrier.ptr_to([stage]), T.uint32(count))
                    )
        T.evaluate(T.ptx.fence.mbarrier_init.release.cluster())
        T.evaluate(T.cuda.cta_sync())

    def _produce_tiles(self, thread: Any, block: Any, blocks: Any, rounds: Any) -> None:
        """Copy the tiles of a block: by one thread where maps describe both operands."""
        T = self._t
        T.evaluate(T.ptx["setmaxnreg.dec.sync.aligned.u32"](self._registers[0]))
        if {*self._ways} != {_MAPPED}:
            held = max(side.count_held() for side in self._sides)
            own = T.alloc_buffer((held,), self._product.kind, scope="local") if held else None
            with T.serial(rounds) as turn:
                self._produce(thread, turn, block + turn * blocks, own)
        else:
            with T.If(thread == 0), T.Then(), T.serial(rounds) as turn:
                self._produce(thread, turn, block + turn * blocks, None)

    @property
    def _registers(self) -> tuple[int, int]:
        """Of threads that copy, and of those that multiply."""
        table = _REGISTERS if {*self._ways} == {_MAPPED} else _COPYING_REGISTERS
        return table[self._tile.consumers]

    def _produce(self, thread: Any, turn: Any, number: Any, own: Any) -> None:
        """Copy the stages of a tile as they come free."""
        T, tile = self._t, self._tile
        a, b, batch = self._grid.place(number)
        tiles = [*zip(self._sides, (a * self._a.rows, b * self._b.rows), strict=True)]
        mapped, copied, filled = (
            [tile for tile, its in zip(tiles, self._ways, strict=True) if its == way]
            for way in (_MAPPED, _COPIED, _FILLED)
        )
        for side, row in copied:
            side.aim(thread, row)
        with T.serial(self._steps) as step:
            count = T.Bind(turn * self._steps + step)
            stage = T.Bind(count % tile.stages)
            T.evaluate(
                T.cuda.mbarrier_wait(self._empty.ptr_to([stage]), (count // tile.stages % 2) ^ 1)
            )
            full, term = self._full.ptr_to([stage]), step * tile.depth
            if mapped:
                expected = T.uint32(sum(side.rows for side, _ in mapped) * tile.depth * ITEM)
                with T.If(thread == 0), T.Then():
                    T.evaluate(T.ptx.mbarrier.arrive.expect_tx.shared.b64(full, expected))
                    for side, row in mapped:
                        side.load(stage, row, term, batch, full)
            for side, row in copied:
                side.copy(thread, stage, row, term, batch)
            if copied:
                T.evaluate(T.ptx["cp.async.mbarrier.arrive.noinc.shared.b64"](full))
            for side, row in filled:
                side.fill(thread, stage, row, term, batch, own)
            if filled:
                T.evaluate(T.ptx["fence.proxy.async.shared::cta"]())
                T.evaluate(T.ptx.mbarrier.arrive.shared.b64(full, T.uint32(1)))

    def _consume(
        self, thread: Any, turn: Any, number: Any, sums: Any, words: Sequence[Any]
    ) -> None:
        """Multiply the stages of a tile as they are filled, and store its sums."""
        T, tile = self._t, self._tile
        consumer = T.Bind(thread // k.WARPGROUP - 1)
        a, b, batch = self._grid.place(number)
        with T.unroll(tile.sums) as i:
            T.buffer_store(sums, T.float32(0), [i])
        with T.serial(self._steps) as step:
            count = T.Bind(turn * self._steps + step)
            stage = T.Bind(count % tile.stages)
            T.evaluate(T.cuda.mbarrier_wait(self._full.ptr_to([stage]), count // tile.stages % 2))
            if _COPIED in self._ways:
                # Copies of threads are seen by warpgroups' products behind such a fence alone.
                T.evaluate(T.ptx["fence.proxy.async.shared::cta"]())
            self._multiply(consumer, stage, sums, words)
            T.evaluate(T.ptx.wgmma.wait_group.sync.aligned(1))
            with T.If(T.And(thread % k.WARPGROUP == 0, step > 0)), T.Then():
                self._free(count - 1)
        T.evaluate(T.ptx.wgmma.wait_group.sync.aligned(0))
        kept = [sums[i] for i in range(tile.sums)]
        T.evaluate(T.cuda.func_call(_KEEP, *kept, source_code=_KEEP_CODE))
        with T.If(thread % k.WARPGROUP == 0), T.Then():
            self._free(turn * self._steps + self._steps - 1)
        self._store(thread, consumer, (a * self._a.rows, b * self._b.rows), batch, sums)

    def _store(
        self, thread: Any, consumer: Any, first: Place, batch: Mapping[int, Any], sums: Any
    ) -> None:
        """Store the tile of a consumer; the block's begins at a place."""
        T, tile, out = self._t, self._tile, self._bulk
        at = (first[0] + consumer * k.ROWS * tile.parts, first[1])
        if out is not None:
            out.begin(thread, consumer)
        lane = thread % k.WARPGROUP
        row, column = T.Bind(lane // 32 * 16 + lane % 32 // 4), T.Bind(lane % 4 * 2)
        for part in range(tile.parts):
            self._results.store(
                *(sums, part * tile.columns // 2, tile.columns, (row, column)),
                (at[0] + part * k.ROWS + row, at[1] + column),
                batch,
                (consumer, part),
            )
        if out is not None:
            out.copy(thread, consumer, at, batch)

    def _free(self, count: Any) -> None:
        """Let a stage be filled anew."""
        T = self._t
        barrier = self._empty.ptr_to([count % self._tile.stages])
        T.evaluate(T.ptx.mbarrier.arrive.shared.b64(barrier, T.uint32(1)))

    def _multiply(self, consumer: Any, stage: Any, sums: Any, words: Sequence[Any]) -> None:
        """The instructions of one stage, for all rows of a consumer."""
        T, tile = self._t, self._tile
        kind = KINDS[self._product.kind]
        multiply = T.ptx[f"wgmma.mma_async.sync.aligned.m64n{tile.columns}k16.f32.{kind}.{kind}"]
        each = tile.columns // 2
        firsts = (consumer * k.ROWS * tile.parts * tile.depth, 0)
        for side, word, first in zip(self._sides, words, firsts, strict=True):
            leading = tile.depth * LINE_BYTES // UNIT if side.source.turned else 1
            where = side.stages.ptr_to([stage, first])
            describe = T.cuda.wgmma.encode_matrix_descriptor
            T.evaluate(describe(word.ptr_to([0]), where, leading, _PATTERN, _SWIZZLE))
        T.evaluate(T.ptx.wgmma.fence.sync.aligned())
        turned = (int(self._a.source.turned), int(self._b.source.turned))
        for part in range(tile.parts):
            own = [sums[part * each + i] for i in range(each)]
            for term in range(0, tile.depth, TERMS):
                a = words[0][0] + T.uint64(self._a.describe(part * k.ROWS, term))
                b = words[1][0] + T.uint64(self._b.describe(0, term))
                T.evaluate(multiply(*own, a, b, T.ptx.pred(1), 1, 1, *turned))
        T.evaluate(T.ptx.wgmma.commit_group.sync.aligned())
