"""The program of an attention for threads from Ampere on (Dao, "FlashAttention-2", arXiv
2307.08691, algorithm 1; PTX ISA, "mma.sync.m16n8k16", "ldmatrix", "cp.async").

A warp keeps its rows' sums in registers, divided by no total yet, and their largest score so far:
when that grows, sums are scaled.
"""

from __future__ import annotations

from typing import Any

from spaces.templates.attention.gpu.knobs import (
    PAIR,
    ROWS,
    TERMS,
    WARP,
    AttentionTile,
    pad_lines,
    pad_terms,
)
from spaces.templates.attention.gpu.softmax import Softmax
from spaces.templates.attention.gpu.write import Block, Frame
from spaces.templates.attention.heads import Heads
from spaces.templates.products.layout import UNIT
from spaces.templates.tensor_cores.fragments import Fragments, round_pair
from spaces.templates.tensor_cores.operand import Operand, allocate_held


def write_ampere_attention(T: Any, frame: Frame, heads: Heads, tile: AttentionTile) -> None:
    """Write what the threads of a setting do."""
    _Writer(T, frame, heads, tile).write()


class _Writer:
    """Writes one program."""

    def __init__(self, T: Any, frame: Frame, heads: Heads, tile: AttentionTile) -> None:
        self._t, self._frame, self._heads, self._tile = T, frame, heads, tile
        widths = (pad_lines(heads.width), pad_lines(heads.width), pad_lines(heads.columns))
        query, key, value = frame.tensors.sources
        self._queries, self._keys, self._values = (
            Operand(T, source, rows=rows, lines=rows, depth=depth, threads=tile.threads)
            for source, rows, depth in (
                (query, tile.rows, widths[0]),
                (key, tile.keys, widths[1]),
                (value, widths[2], tile.keys),
            )
        )

    def write(self) -> None:
        """Write what the threads do."""
        T, tile, frame, width = self._t, self._tile, self._frame, pad_terms(self._heads.columns)
        number = T.cta_id([frame.blocks])
        thread = T.thread_id([tile.threads])
        self._place_warp(thread)
        self._allocate()
        block = frame.place(number)
        softmax = Softmax(T, frame.tensors, tile, thread, block.row + self._row, block.batch)
        sums = T.alloc_buffer((tile.parts * width // 2,), "float32", scope="local")
        with T.unroll(tile.parts * width // 2) as i:
            T.buffer_store(sums, T.float32(0), [i])
        batch = dict(enumerate(block.batch))
        self._queries.move(thread, 0, block.row, 0, batch, self._own)
        for step in range(tile.stages - 1):
            self._copy_stage(thread, step, block)
        with T.serial(block.steps) as step:
            T.evaluate(T.ptx["cp.async.wait_group"](tile.stages - 2))
            T.evaluate(T.cuda.cta_sync())
            self._copy_stage(thread, step + tile.stages - 1, block)
            scores = self._multiply_keys(step % tile.stages)
            key = (block.begin + step) * tile.keys + self._key
            softmax.weigh(scores, key, sums, width)
            self._multiply_values(step % tile.stages, scores, sums)
        softmax.join_threads()
        if self._joined is not None:
            softmax.join_warps(sums, self._warp, self._joined)
        with T.If(self._warp % tile.key_warps == 0), T.Then():
            frame.store(block, softmax, sums, width)

    def _place_warp(self, thread: Any) -> None:
        """The warp of a thread, its first row in the block, and its first key in a stage."""
        T, tile = self._t, self._tile
        self._warp = T.Bind(thread // WARP)
        self._row = T.Bind(self._warp // tile.key_warps * tile.warp_rows)
        self._key = T.Bind(self._warp % tile.key_warps * tile.warp_keys)
        self._fragments = Fragments(T, self._keys.source.kind, T.Bind(thread % WARP))

    def _allocate(self) -> None:
        """Shared memory for queries, for stages of keys and values, and for what warps join."""
        tile, pool = self._tile, self._t.SMEMPool()
        self._queries.allocate(pool, 1)
        for side in (self._keys, self._values):
            side.allocate(pool, tile.stages)
        others = tile.warps - tile.row_warps
        shape = (others, tile.count_joined(self._heads), WARP)
        self._joined = pool.alloc(shape, "float32", align=UNIT) if others else None
        pool.commit()
        self._own = allocate_held(self._t, (self._queries, self._keys, self._values))

    def _copy_stage(self, thread: Any, step: Any, block: Block) -> None:
        """Begin to fill a stage, if there are so many."""
        T, tile = self._t, self._tile
        with T.If(step < block.steps), T.Then():
            key = (block.begin + step) * tile.keys
            stage, batch = step % tile.stages, dict(enumerate(block.batch))
            self._keys.move(thread, stage, key, 0, batch, self._own)
            self._values.move(thread, stage, 0, key, batch, self._own)
        T.evaluate(T.ptx["cp.async.commit_group"]())

    def _multiply_keys(self, stage: Any) -> Any:
        """The products of a warp's rows and its keys of a stage."""
        T, tile, fragments = self._t, self._tile, self._fragments
        number = tile.parts * tile.warp_keys // 2
        scores = T.alloc_buffer((number,), "float32", scope="local")
        with T.unroll(number) as i:
            T.buffer_store(scores, T.float32(0), [i])
        of_rows = T.alloc_buffer((4 * tile.parts,), "uint32", scope="local")
        of_keys = T.alloc_buffer((4,), "uint32", scope="local")
        for term in range(0, pad_terms(self._heads.width), TERMS):
            for part in range(tile.parts):
                at = self._row + part * ROWS
                fragments.load_rows(self._queries, of_rows, 4 * part, 0, at, term)
            for key in range(0, tile.warp_keys, PAIR):
                fragments.load_columns(self._keys, of_keys, stage, self._key + key, term)
                for part in range(tile.parts):
                    rows = [of_rows[4 * part + i] for i in range(4)]
                    fragments.multiply(scores, (part * tile.warp_keys + key) // 2, rows, of_keys)
        return scores

    def _multiply_values(self, stage: Any, weights: Any, sums: Any) -> None:
        """Add the values of a stage, times their weights. Scores lie in registers as the factors of
        the next product do."""
        T, tile, width, fragments = (
            self._t,
            self._tile,
            pad_terms(self._heads.columns),
            self._fragments,
        )
        kind = self._keys.source.kind
        of_rows = T.alloc_buffer((4 * tile.parts,), "uint32", scope="local")
        of_values = T.alloc_buffer((4,), "uint32", scope="local")
        for key in range(0, tile.warp_keys, TERMS):
            for part in range(tile.parts):
                for i in range(4):
                    place = (part * tile.warp_keys + key) // 2 + 2 * i
                    both = round_pair(T, kind, weights[place], weights[place + 1])
                    T.buffer_store(of_rows, both, [4 * part + i])
            for column in range(0, width, PAIR):
                fragments.load_columns(self._values, of_values, stage, column, self._key + key)
                for part in range(tile.parts):
                    rows = [of_rows[4 * part + i] for i in range(4)]
                    fragments.multiply(sums, (part * width + column) // 2, rows, of_values)
