"""The program of an attention for threads from Ampere on (Dao, "FlashAttention-2", arXiv
2307.08691, algorithm 1; PTX ISA, "mma.sync.m16n8k16", "ldmatrix", "cp.async").

A warp keeps its rows' sums in registers, divided by no total yet, and their largest score so far:
when that grows, sums are scaled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spaces.lowering.attention.description import Attention
from spaces.templates.attention.causal import find_limit
from spaces.templates.attention.knobs import PAIR, ROWS, WARP, AttentionTile, Heads
from spaces.templates.attention.softmax import Softmax
from spaces.templates.attention.tensors import Tensors
from spaces.templates.products.layout import UNIT
from spaces.templates.tensor_cores.fragments import Fragments
from spaces.templates.tensor_cores.operand import Operand
from spaces.templates.tensor_cores.tile import TERMS
from spaces.templates.thread_program import begin_program


def write_program(
    attention: Attention, heads: Heads, tile: AttentionTile, parameters: Sequence[Any]
) -> Any:
    """The PrimFunc of a setting.

    Args:
        heads: widths of queries and values; of the other sizes the attention's own count.
        parameters: of the program that it stands for.
    """
    from tvm.script.ir_builder import IRBuilder
    from tvm.script.ir_builder import tirx as T

    with IRBuilder() as builder, T.prim_func():
        known = begin_program(T, parameters)
        _Writer(T, Tensors(T, attention, known), heads, tile).write(find_limit(attention))
    return builder.get()


class _Writer:
    """Writes one program."""

    def __init__(self, T: Any, tensors: Tensors, heads: Heads, tile: AttentionTile) -> None:
        self._t, self._tensors, self._heads, self._tile = T, tensors, heads, tile
        widths = (heads.padded_width, heads.padded_width, heads.padded_columns)
        query, key, value = tensors.sources
        self._queries, self._keys, self._values = (
            Operand(T, source, rows=rows, lines=rows, depth=depth, threads=tile.threads)
            for source, rows, depth in (
                (query, tile.rows, widths[0]),
                (key, tile.keys, widths[1]),
                (value, widths[2], tile.keys),
            )
        )

    def write(self, limit: Any) -> None:
        """Write what the threads do.

        Args:
            limit: see `spaces.templates.attention.causal.find_limit`.
        """
        T, tile, tensors = self._t, self._tile, self._tensors
        row_tiles = (tensors.rows + tile.rows - 1) // tile.rows
        T.device_entry()
        block = T.cta_id([row_tiles * tensors.batches])
        thread = T.thread_id([tile.threads])
        self._place_warp(thread)
        self._allocate()
        # Blocks with the same keys and values follow one another; the last rows have most to do.
        first = T.Bind((row_tiles - 1 - block % row_tiles) * tile.rows)
        batch = tensors.spread(block // row_tiles)
        self._steps = T.Bind(self._count_steps(first, limit))
        softmax = Softmax(T, tensors, tile, thread, first + self._row, batch)
        sums = T.alloc_buffer((tile.parts * self._heads.sums // 2,), "float32", scope="local")
        with T.unroll(tile.parts * self._heads.sums // 2) as i:
            T.buffer_store(sums, T.float32(0), [i])
        self._copy(self._queries, thread, 0, first, 0, batch)
        for step in range(tile.stages - 1):
            self._copy_stage(thread, step, batch)
        with T.serial(self._steps) as step:
            T.evaluate(T.ptx["cp.async.wait_group"](tile.stages - 2))
            T.evaluate(T.cuda.cta_sync())
            self._copy_stage(thread, step + tile.stages - 1, batch)
            scores = self._multiply_keys(step % tile.stages)
            softmax.weigh(scores, step * tile.keys + self._key, sums, self._heads.sums)
            self._multiply_values(step % tile.stages, scores, sums)
        softmax.join_threads()
        if self._joined is not None:
            softmax.join_warps(sums, self._warp, self._joined)
        with T.If(self._warp % tile.key_warps == 0), T.Then():
            softmax.store(sums, self._heads.sums)

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
        held = max(s.count_held() for s in (self._queries, self._keys, self._values))
        kind = self._queries.source.kind
        self._own = self._t.alloc_buffer((held,), kind, scope="local") if held else None

    def _count_steps(self, first: Any, limit: Any) -> Any:
        """Tiles of keys that the rows from the first on look at."""
        T, tile = self._t, self._tile
        keys = self._tensors.keys
        if limit is not None:  # which may not fit 32 bits
            seen = limit + T.Cast("int64", first) + tile.rows
            keys = T.Cast("int32", T.max(T.min(T.Cast("int64", keys), seen), 0))
        return (keys + tile.keys - 1) // tile.keys

    def _copy_stage(self, thread: Any, step: Any, batch: Sequence[Any]) -> None:
        """Begin to fill a stage, if there are so many."""
        T, tile = self._t, self._tile
        with T.If(step < self._steps), T.Then():
            for side, (row, term) in (
                (self._keys, (step * tile.keys, 0)),
                (self._values, (0, step * tile.keys)),
            ):
                self._copy(side, thread, step % tile.stages, row, term, batch)
        T.evaluate(T.ptx["cp.async.commit_group"]())

    def _copy(
        self, side: Operand, thread: Any, stage: Any, row: Any, term: Any, batch: Sequence[Any]
    ) -> None:
        places = dict(enumerate(batch))
        if side.source.in_units:
            side.copy(thread, stage, row, term, places)
        else:
            side.fill(thread, stage, row, term, places, self._own)

    def _multiply_keys(self, stage: Any) -> Any:
        """The products of a warp's rows and its keys of a stage."""
        T, tile, fragments = self._t, self._tile, self._fragments
        number = tile.parts * tile.warp_keys // 2
        scores = T.alloc_buffer((number,), "float32", scope="local")
        with T.unroll(number) as i:
            T.buffer_store(scores, T.float32(0), [i])
        of_rows = T.alloc_buffer((4 * tile.parts,), "uint32", scope="local")
        of_keys = T.alloc_buffer((4,), "uint32", scope="local")
        for term in range(0, self._heads.terms, TERMS):
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
        T, tile, width, fragments = self._t, self._tile, self._heads.sums, self._fragments
        of_rows = T.alloc_buffer((4 * tile.parts,), "uint32", scope="local")
        of_values = T.alloc_buffer((4,), "uint32", scope="local")
        for key in range(0, tile.warp_keys, TERMS):
            for part in range(tile.parts):
                for i in range(4):
                    place = (part * tile.warp_keys + key) // 2 + 2 * i
                    both = fragments.round_pair(weights[place], weights[place + 1])
                    T.buffer_store(of_rows, both, [4 * part + i])
            for column in range(0, width, PAIR):
                fragments.load_columns(self._values, of_values, stage, column, self._key + key)
                for part in range(tile.parts):
                    rows = [of_rows[4 * part + i] for i in range(4)]
                    fragments.multiply(sums, (part * width + column) // 2, rows, of_values)
