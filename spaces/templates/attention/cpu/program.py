"""The program of an attention on a CPU.

Scores come chunk by chunk, and sums of earlier values are scaled when a larger one is found
(Milakov and Gimelshein, "Online normalizer calculation for softmax", arXiv 1805.02867; Dao,
"FlashAttention-2", arXiv 2307.08691).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from spaces.ir import tvm_compat
from spaces.lowering.attention.description import SUMS, Attention
from spaces.templates.attention.causal import find_limit
from spaces.templates.attention.cpu.knobs import Tile
from spaces.templates.attention.groups import ALONE, find_group
from spaces.templates.attention.heads import Heads
from spaces.templates.attention.powers import find_base, find_lowest, invert
from spaces.templates.attention.tensors import Tensors
from spaces.templates.products.places import count_tiles
from spaces.templates.products.source import Source
from spaces.templates.thread_program import begin_program

Element = Callable[[Any, Any], Any]
"""Gives an element in float32 of a chunk's key, counted from its first, and a term."""


def write_program(
    lanes: int, attention: Attention, heads: Heads, tile: Tile, parameters: Sequence[Any]
) -> Any:
    """The PrimFunc of a setting.

    Args:
        lanes: rows of a vector.
        heads: widths of queries and values; of the other sizes the attention's own count.
        parameters: of the program that it stands for.
    """
    from tvm.script.ir_builder import IRBuilder
    from tvm.script.ir_builder import tirx as T

    with IRBuilder() as builder, T.prim_func():
        known = begin_program(T, parameters)
        group = find_group(attention) if tile.heads > 1 else ALONE
        tensors = Tensors(T, attention, known, group)
        pieces = tensors.batches * count_tiles(tensors.rows, tile.vectors * lanes)
        limit = find_limit(attention)
        with (T.parallel if tile.parallel else T.serial)(pieces) as piece:
            _Writer(T, tensors, heads, tile, lanes, limit).write(piece)
    return builder.get()


class _Writer:
    """Writes what a core does for some rows.

    Args:
        T: TVM's script.
        limit: see `spaces.templates.attention.causal.find_limit`.
    """

    def __init__(
        self, T: Any, tensors: Tensors, heads: Heads, tile: Tile, lanes: int, limit: Any
    ) -> None:
        self._t, self._tensors, self._heads, self._tile = T, tensors, heads, tile
        self._lanes, self._rows, self._limit = lanes, tile.vectors * lanes, limit
        self._batch = list[Any]()
        self._first: Any = None

    def write(self, piece: Any) -> None:
        """Write the whole piece."""
        T, tensors, tile = self._t, self._tensors, self._tile
        self._place(piece)
        queries = self._allocate(self._heads.width)
        sums = self._allocate(self._heads.columns)
        largest, totals, base, scale = (self._allocate(1) for _ in range(4))
        self._lay_queries(queries)
        for buffer, value, count in (
            (largest, find_lowest(T), 1),
            (totals, T.float32(0), 1),
            (sums, T.float32(0), self._heads.columns),
        ):
            with T.serial(count) as n, self._each_row() as row:
                T.buffer_store(buffer, value, [n * self._rows + row])
        # The last tile of keys may reach beyond its chunk.
        weights = self._allocate(tile.chunk + tile.keys)
        seen = T.Bind(self._count_seen())
        _, key, value = tensors.sources
        with T.serial(count_tiles(seen, tile.chunk)) as number:
            first = T.Bind(number * tile.chunk)
            # Of what may be negative, TVM bounds places by numbers that do not fit 32 bits.
            count = T.Bind(T.max(T.min(seen - first, tile.chunk), 1))
            with self._each_row() as row:
                T.buffer_store(base, largest[row], [row])
            keys = self._stage(key, self._heads.width, first, count)
            self._score(keys, queries, weights, base, first, count)
            self._weigh(weights, largest, totals, base, scale, count)
            values = self._stage(value, self._heads.columns, first, count)
            self._add_values(values, weights, sums, scale, count)
        self._store(sums, totals)

    def _place(self, piece: Any) -> None:
        """Find the piece's rows and its place in the batch."""
        T, tensors = self._t, self._tensors
        tiles = count_tiles(tensors.rows, self._rows)
        number = piece % tiles
        if self._limit is not None:
            # Later rows have more to do, and a core has pieces that follow one another.
            number = T.Select(number % 2 == 0, number // 2, tiles - 1 - number // 2)
        self._first = T.Bind(number * self._rows)
        self._batch = tensors.spread(piece // tiles)

    def _lay_queries(self, queries: Any) -> None:
        """Lay out queries with rows next to one another; after the last one it is repeated."""
        T, (query, _, _) = self._t, self._tensors.sources
        with T.serial(self._rows) as row:
            at = T.Bind(T.min(self._first + row, self._tensors.rows - 1))
            with self._along(self._heads.width) as term:
                T.buffer_store(queries, self._read(query, at, term), [term * self._rows + row])

    def _count_seen(self) -> Any:
        """Keys that any of the rows looks at."""
        T, tensors = self._t, self._tensors
        if self._limit is None:
            return tensors.keys
        last = T.min(self._first + self._rows, tensors.rows) - 1
        seen = self._limit + T.Cast("int64", last // tensors.heads) + 1  # may not fit 32 bits
        return T.Cast("int32", T.max(T.min(T.Cast("int64", tensors.keys), seen), 0))

    def _stage(self, source: Source, width: int, first: Any, count: Any) -> Element:
        """The elements of a chunk, where they are or, of other types, converted."""
        T = self._t
        if source.kind == SUMS:
            return lambda key, term: self._read(source, first + key, term)
        staged = T.alloc_buffer((self._tile.chunk * width,), SUMS, scope="global")
        with T.serial(count) as key, self._along(width) as term:
            T.buffer_store(staged, self._read(source, first + key, term), [key * width + term])
        return lambda key, term: staged[key * width + term]

    def _read(self, source: Source, row: Any, term: Any) -> Any:
        """An element in float32, of a row of queries, keys or values."""
        at = (term, row) if source.turned else (row, term)
        index = source.index(*at, dict(enumerate(self._batch)))
        return self._t.Cast(SUMS, source.tensor[tuple(index)])

    def _score(
        self, keys: Element, queries: Any, scores: Any, most: Any, first: Any, count: Any
    ) -> None:
        """Store the scores of a chunk, and the largest of them."""
        T, tile = self._t, self._tile
        write = partial(self._score_tile, keys, queries, scores, most, first, count)
        with T.serial(count // tile.keys) as number:
            write(number * tile.keys, is_whole=True)
        if not self._is_whole:
            with T.serial(T.Cast("int32", count % tile.keys > 0)):
                write(count // tile.keys * tile.keys, is_whole=False)

    @property
    def _is_whole(self) -> bool:
        """Whether each chunk has whole tiles of keys."""
        keys, tile = tvm_compat.as_int(self._tensors.keys), self._tile
        known = keys is not None and self._limit is None
        return known and all(count % tile.keys == 0 for count in (keys, tile.chunk))

    def _score_tile(
        self,
        keys: Element,
        queries: Any,
        scores: Any,
        most: Any,
        first: Any,
        count: Any,
        begin: Any,
        *,
        is_whole: bool,
    ) -> None:
        """Store the scores of a tile of keys: of one that has less, minus infinity behind them."""
        T, number = self._t, self._tile.keys
        sums = self._allocate(number)
        with T.unroll(number) as key, self._each_row() as row:
            T.buffer_store(sums, T.float32(0), [key * self._rows + row])
        with T.serial(self._heads.width) as term, T.unroll(number) as key, self._each_row() as row:
            at = begin + key if is_whole else T.min(begin + key, count - 1)
            product = keys(at, term) * queries[term * self._rows + row]
            place = key * self._rows + row
            T.buffer_store(sums, sums[place] + product, [place])
        with T.unroll(number) as key, self._each_row() as row:
            at = begin + key if is_whole else T.min(begin + key, count - 1)
            product = sums[key * self._rows + row]
            score = self._tensors.score(product, self._batch, self._clamp(row), first + at)
            if not is_whole:
                score = T.Select(begin + key < count, score, find_lowest(T))
            place = (begin + key) * self._rows + row
            T.buffer_store(scores, score, [place])
            T.buffer_store(most, T.max(most[row], scores[place]), [row])

    def _clamp(self, row: Any) -> Any:
        """The number of a row, of the last one where there is none."""
        T, rows = self._t, self._tensors.rows
        known = tvm_compat.as_int(rows)
        is_whole = known is not None and known % self._rows == 0
        return self._first + row if is_whole else T.min(self._first + row, rows - 1)

    def _weigh(
        self, weights: Any, largest: Any, totals: Any, base: Any, scale: Any, count: Any
    ) -> None:
        """Turn scores into weights, and find what sums of earlier values are scaled by.

        Args:
            base: the largest scores so far, that become what is subtracted from scores.
        """
        T = self._t
        with self._each_row() as row:
            T.buffer_store(scale, largest[row], [row])
            T.buffer_store(largest, base[row], [row])
            T.buffer_store(base, find_base(T, largest[row]), [row])
            T.buffer_store(scale, T.exp(scale[row] - base[row]), [row])
            T.buffer_store(totals, totals[row] * scale[row], [row])
        with T.serial(count) as key, self._each_row() as row:
            place = key * self._rows + row
            T.buffer_store(weights, T.exp(weights[place] - base[row]), [place])
            T.buffer_store(totals, totals[row] + weights[place], [row])

    def _add_values(self, values: Element, weights: Any, sums: Any, scale: Any, count: Any) -> None:
        """Scale sums of values, and add those of a chunk."""
        T, number = self._t, self._tile.columns
        with T.serial(self._heads.columns // number) as tile:
            own = self._allocate(number)
            begin = tile * number
            with T.unroll(number) as column, self._each_row() as row:
                value = sums[(begin + column) * self._rows + row] * scale[row]
                T.buffer_store(own, value, [column * self._rows + row])
            with T.serial(count) as key, T.unroll(number) as column, self._each_row() as row:
                place = column * self._rows + row
                product = values(key, begin + column) * weights[key * self._rows + row]
                T.buffer_store(own, own[place] + product, [place])
            with T.unroll(number) as column, self._each_row() as row:
                value = own[column * self._rows + row]
                T.buffer_store(sums, value, [(begin + column) * self._rows + row])

    def _store(self, sums: Any, totals: Any) -> None:
        """Divide sums of values by totals of weights, and store those of rows that there are."""
        T, tensors = self._t, self._tensors
        with self._each_row() as row:
            T.buffer_store(totals, invert(T, tensors, totals[row]), [row])
        with T.serial(T.min(self._rows, tensors.rows - self._first)) as row:
            at = T.Bind(self._first + row)
            with self._along(self._heads.columns) as column:
                total = sums[column * self._rows + row] * totals[row]
                tensors.finish(total, self._batch, at, column)

    def _allocate(self, count: int) -> Any:
        """So many numbers for each row."""
        return self._t.alloc_buffer((count * self._rows,), SUMS, scope="global")

    @contextmanager
    def _each_row(self) -> Iterator[Any]:
        """Do something for each row, in vectors."""
        T, lanes = self._t, self._lanes
        with T.unroll(self._tile.vectors) as vector, T.vectorized(lanes) as lane:
            yield vector * lanes + lane

    @contextmanager
    def _along(self, width: int) -> Iterator[Any]:
        """Do something for each element of a row, in vectors where these divide it."""
        T, lanes = self._t, math.gcd(width, self._lanes)
        if lanes == 1:
            with T.serial(width) as term:
                yield term
            return
        with T.serial(width // lanes) as vector, T.vectorized(lanes) as lane:
            yield vector * lanes + lane
