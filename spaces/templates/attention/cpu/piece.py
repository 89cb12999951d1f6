"""What the programs of attention on CPUs have in common: which rows and keys a piece of work has.

Scores come chunk by chunk, and sums of earlier values are scaled when a larger one is found
(Milakov and Gimelshein, "Online normalizer calculation for softmax", arXiv 1805.02867; Dao,
"FlashAttention-2", arXiv 2307.08691).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from spaces.ir import tvm_compat
from spaces.lowering.attention.description import SUMS, Attention
from spaces.templates.attention.causal import find_limit
from spaces.templates.attention.groups import ALONE, find_group
from spaces.templates.attention.tensors import Tensors
from spaces.templates.products.places import count_tiles
from spaces.templates.products.source import Source
from spaces.templates.thread_program import begin_program

Element = Callable[[Any, Any], Any]
"""Gives an element in float32 of a chunk's key, counted from its first, and a term."""


def write_pieces(
    attention: Attention,
    parameters: Sequence[Any],
    rows: int,
    tile: Any,
    write_piece: Callable[[Any, Tensors, Any, Any], None],
) -> Any:
    """The PrimFunc of a setting.

    Args:
        parameters: of the program that it stands for.
        rows: of a piece.
        write_piece: writes one, of TVM's script, tensors, the limit of
            `spaces.templates.attention.causal.find_limit`, and its number.
    """
    from tvm.script.ir_builder import IRBuilder
    from tvm.script.ir_builder import tirx as T

    with IRBuilder() as builder, T.prim_func():
        known = begin_program(T, parameters)
        group = find_group(attention) if tile.heads > 1 else ALONE
        tensors = Tensors(T, attention, known, group)
        pieces = tensors.batches * count_tiles(tensors.rows, rows)
        limit = find_limit(attention)
        with (T.parallel if tile.parallel else T.serial)(pieces) as piece:
            write_piece(T, tensors, limit, piece)
    return builder.get()


class Piece:
    """Some rows of an attention, which a core goes through all keys for.

    Args:
        T: TVM's script.
        limit: see `spaces.templates.attention.causal.find_limit`.
        number: of the piece.
        rows: that it has.
        chunk: keys whose weights are kept.
        lanes: elements of a vector.

    Attributes:
        first: its first row; `batch` its place in the batch.
    """

    def __init__(
        self, T: Any, tensors: Tensors, limit: Any, number: Any, rows: int, chunk: int, lanes: int
    ) -> None:
        self._t, self._tensors, self.limit = T, tensors, limit
        self._rows, self._chunk, self._lanes = rows, chunk, lanes
        tiles = count_tiles(tensors.rows, rows)
        place = number % tiles
        if limit is not None:
            # Later rows have more to do, and a core has pieces that follow one another.
            place = T.Select(place % 2 == 0, place // 2, tiles - 1 - place // 2)
        self.first = T.Bind(place * rows)
        self.batch = tensors.spread(number // tiles)

    def clamp(self, row: Any) -> Any:
        """The number of one of its rows, of the last one where there is none."""
        known = tvm_compat.as_int(self._tensors.rows)
        is_whole = known is not None and known % self._rows == 0
        own = self.first + row
        return own if is_whole else self._t.min(own, self._tensors.rows - 1)

    @contextmanager
    def each_chunk(self) -> Iterator[tuple[Any, Any]]:
        """Go through the keys that any of the rows looks at: the first of a chunk, and how many."""
        T, seen = self._t, self._t.Bind(self._count_seen())
        with T.serial(count_tiles(seen, self._chunk)) as number:
            first = T.Bind(number * self._chunk)
            # Of what may be negative, TVM bounds places by numbers that do not fit 32 bits.
            yield first, T.Bind(T.max(T.min(seen - first, self._chunk), 1))

    def stage(self, source: Source, width: int, first: Any, count: Any) -> Element:
        """The elements of a chunk, where they are or, of other types, converted."""
        T = self._t
        if source.kind == SUMS:
            return lambda key, term: self.read(source, first + key, term)
        staged = T.alloc_buffer((self._chunk * width,), SUMS, scope="global")
        with T.serial(count) as key, self.along(width) as term:
            T.buffer_store(staged, self.read(source, first + key, term), [key * width + term])
        return lambda key, term: staged[key * width + term]

    def read(self, source: Source, row: Any, term: Any) -> Any:
        """An element in float32, of a row of queries, keys or values."""
        at = (term, row) if source.turned else (row, term)
        index = source.index(*at, dict(enumerate(self.batch)))
        return self._t.Cast(SUMS, source.tensor[tuple(index)])

    @contextmanager
    def each_row(self) -> Iterator[tuple[Any, Any]]:
        """Go through the rows that there are: the place in the piece, and the number."""
        T = self._t
        with T.serial(T.min(self._rows, self._tensors.rows - self.first)) as row:
            yield row, T.Bind(self.first + row)

    @contextmanager
    def along(self, width: int) -> Iterator[Any]:
        """Do something for each element of a row, in vectors where these divide it."""
        T, lanes = self._t, math.gcd(width, self._lanes)
        if lanes == 1:
            with T.serial(width) as term:
                yield term
            return
        with T.serial(width // lanes) as vector, T.vectorized(lanes) as lane:
            yield vector * lanes + lane

    def allocate(self, count: int) -> Any:
        """So many numbers."""
        return self._t.alloc_buffer((count,), SUMS, scope="global")

    def _count_seen(self) -> Any:
        """Keys that any of the rows looks at."""
        T, tensors = self._t, self._tensors
        if self.limit is None:
            return tensors.keys
        last = T.min(self.first + self._rows, tensors.rows) - 1
        seen = self.limit + T.Cast("int64", last // tensors.heads) + 1  # may not fit 32 bits
        return T.Cast("int32", T.max(T.min(T.Cast("int64", tensors.keys), seen), 0))
