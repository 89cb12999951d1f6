"""The program of an attention for Hopper's warpgroups (Shah et al., "FlashAttention-3", arXiv
2407.08608, algorithm 1; PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions", "mbarrier").

Products of queries and keys become weights in the registers in which the next product takes them.
While one warpgroup weighs another multiplies.
"""

from __future__ import annotations

from typing import Any

from spaces.targets.gpu import WARP
from spaces.templates.attention.gpu.hopper_knobs import REGISTERS, HopperAttentionTile
from spaces.templates.attention.gpu.knobs import TERMS, pad_lines, pad_terms
from spaces.templates.attention.gpu.softmax import Softmax
from spaces.templates.attention.gpu.write import Block, Frame
from spaces.templates.attention.heads import Heads
from spaces.templates.tensor_cores.cluster import Cluster
from spaces.templates.tensor_cores.fragments import round_pair
from spaces.templates.tensor_cores.operand import Operand, allocate_held
from spaces.templates.tensor_cores.tile import HALVES
from spaces.templates.tensor_cores.warpgroups import (
    ROWS,
    WARPGROUP,
    allocate_barriers,
    begin_barriers,
    describe_matrix,
    wait_for_sums,
)


def write_hopper_attention(T: Any, frame: Frame, heads: Heads, tile: HopperAttentionTile) -> None:
    """Write what the threads of a setting do."""
    _Writer(T, frame, heads, tile).write()


class _Writer:
    """Writes one program."""

    def __init__(self, T: Any, frame: Frame, heads: Heads, tile: HopperAttentionTile) -> None:
        self._t, self._frame, self._heads, self._tile = T, frame, heads, tile
        query, key, value = frame.tensors.sources
        self._queries, self._keys, self._values = (
            Operand(T, source, rows=rows, lines=lines, depth=depth, threads=WARPGROUP)
            for source, rows, lines, depth in (
                (query, tile.rows, ROWS, pad_lines(heads.width)),
                (key, tile.keys, tile.keys, pad_lines(heads.width)),
                (value, pad_lines(heads.columns), pad_lines(heads.columns), tile.keys),
            )
        )

    def write(self) -> None:
        """Write what the threads do."""
        T, tile = self._t, self._tile
        number = T.cta_id([self._frame.blocks])
        thread = T.thread_id([tile.threads])
        self._allocate(thread)
        block = self._frame.place(number)
        copying, multiplying = REGISTERS[tile.consumers]
        with T.If(thread < WARPGROUP):
            with T.Then():
                T.evaluate(T.ptx["setmaxnreg.dec.sync.aligned.u32"](copying))
                self._produce(thread, block)
            with T.Else():
                T.evaluate(T.ptx["setmaxnreg.inc.sync.aligned.u32"](multiplying))
                self._consume(thread, block)

    def _allocate(self, thread: Any) -> None:
        """Shared memory for queries, for stages of keys and values, and their barriers."""
        T, tile = self._t, self._tile
        pool = T.SMEMPool()
        self._queries.allocate(pool, 1)
        for side in (self._keys, self._values):
            side.allocate(pool, tile.stages)
        self._full, self._empty = allocate_barriers(pool, tile.stages)
        pool.commit()
        barriers = ((self._full, WARPGROUP), (self._empty, tile.consumers))
        begin_barriers(T, thread, barriers, Cluster(T, 1, 1))

    def _produce(self, thread: Any, block: Block) -> None:
        """Copy queries, and stages as they come free; one is full once the next is begun."""
        T, tile = self._t, self._tile
        own = allocate_held(T, (self._queries, self._keys, self._values))
        batch = dict(enumerate(block.batch))
        self._queries.move(thread, 0, block.row, 0, batch, own)
        with T.serial(block.steps) as step:
            stage = T.Bind(step % tile.stages)
            free = (step // tile.stages % 2) ^ 1
            T.evaluate(T.cuda.mbarrier_wait(self._empty.ptr_to([stage]), free))
            key = (block.begin + step) * tile.keys
            self._keys.move(thread, stage, key, 0, batch, own)
            self._values.move(thread, stage, 0, key, batch, own)
            T.evaluate(T.ptx["cp.async.commit_group"]())
            with T.If(step > 0), T.Then():
                self._fill(step - 1, 1)
        with T.If(block.steps > 0), T.Then():
            self._fill(block.steps - 1, 0)

    def _fill(self, step: Any, later: int) -> None:
        """Tell that a stage is full, once all groups of copies but so many later ones are there."""
        T = self._t
        T.evaluate(T.ptx["cp.async.wait_group"](later))
        T.evaluate(T.ptx["fence.proxy.async.shared::cta"]())
        full = self._full.ptr_to([step % self._tile.stages])
        T.evaluate(T.ptx.mbarrier.arrive.shared.b64(full, T.uint32(1)))

    def _consume(self, thread: Any, block: Block) -> None:
        """Go through the keys with the rows of a warpgroup."""
        T, tile, width = self._t, self._tile, pad_terms(self._heads.columns)
        group = T.Bind(thread // WARPGROUP - 1)
        row = block.row + group * ROWS + thread % WARPGROUP // WARP * (ROWS // 4)
        softmax = Softmax(T, self._frame.tensors, tile, thread, row, block.batch)
        sums = T.alloc_buffer((width // 2,), "float32", scope="local")
        scores = T.alloc_buffer((tile.keys // 2,), "float32", scope="local")
        weights = T.alloc_buffer((tile.keys // 4,), "uint32", scope="local")
        self._words = [T.alloc_buffer((1,), "uint64", scope="local") for _ in range(3)]
        with T.unroll(width // 2) as i:
            T.buffer_store(sums, T.float32(0), [i])
        with T.serial(block.steps) as step:
            stage = T.Bind(step % tile.stages)
            T.evaluate(T.cuda.mbarrier_wait(self._full.ptr_to([stage]), step // tile.stages % 2))
            self._multiply_keys(group, stage, scores)
            softmax.weigh(scores, (block.begin + step) * tile.keys, sums, width)
            kind = self._keys.source.kind
            for i in range(tile.keys // 4):
                both = round_pair(T, kind, scores[2 * i], scores[2 * i + 1])
                T.buffer_store(weights, both, [i])
            self._multiply_values(stage, weights, sums)
            with T.If(thread % WARPGROUP == 0), T.Then():
                empty = self._empty.ptr_to([stage])
                T.evaluate(T.ptx.mbarrier.arrive.shared.b64(empty, T.uint32(1)))
        softmax.join_threads()
        self._frame.store(block, softmax, sums, width)

    def _multiply_keys(self, group: Any, stage: Any, scores: Any) -> None:
        """The products of a warpgroup's rows and the keys of a stage."""
        T, (of_rows, of_keys, _) = self._t, self._words
        describe_matrix(T, self._queries, of_rows, 0, group * (ROWS * self._queries.depth))
        describe_matrix(T, self._keys, of_keys, stage, 0)
        multiply = self._find_product(self._tile.keys)
        own = [scores[i] for i in range(self._tile.keys // 2)]
        T.evaluate(T.ptx.wgmma.fence.sync.aligned())
        for term in range(0, pad_terms(self._heads.width), TERMS):
            a, b = (
                word[0] + T.uint64(side.describe(0, term))
                for side, word in ((self._queries, of_rows), (self._keys, of_keys))
            )
            T.evaluate(multiply(*own, a, b, T.ptx.pred(int(term > 0)), 1, 1, 0, 0))
        T.evaluate(T.ptx.wgmma.commit_group.sync.aligned())
        wait_for_sums(T, scores)

    def _multiply_values(self, stage: Any, weights: Any, sums: Any) -> None:
        """Add the values of a stage, times their weights."""
        T, (*_, of_values) = self._t, self._words
        describe_matrix(T, self._values, of_values, stage, 0)
        multiply = self._find_product(pad_terms(self._heads.columns))
        own = [sums[i] for i in range(pad_terms(self._heads.columns) // 2)]
        T.evaluate(T.ptx.wgmma.fence.sync.aligned())
        for key in range(0, self._tile.keys, TERMS):
            a = [weights[key // 4 + i] for i in range(4)]
            b = of_values[0] + T.uint64(self._values.describe(0, key))
            T.evaluate(multiply(*own, *a, b, T.ptx.pred(1), 1, 1, 1))
        T.evaluate(T.ptx.wgmma.commit_group.sync.aligned())
        wait_for_sums(T, sums)

    def _find_product(self, columns: int) -> Any:
        """The instruction for so many columns."""
        kind = HALVES.names[self._keys.source.kind]
        return self._t.ptx[f"wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{kind}.{kind}"]
