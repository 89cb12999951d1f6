"""The program of an attention of many rows on a CPU: scores are vectors over rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from spaces.ir import tvm_compat
from spaces.lowering.attention.description import Attention
from spaces.templates.attention.cpu.many_knobs import Tile
from spaces.templates.attention.cpu.piece import Element, Piece, write_pieces
from spaces.templates.attention.cpu.softmax import Softmax
from spaces.templates.attention.heads import Heads
from spaces.templates.attention.powers import find_lowest
from spaces.templates.attention.tensors import Tensors


def write_many_rows(
    lanes: int, attention: Attention, heads: Heads, tile: Tile, parameters: Sequence[Any]
) -> Any:
    """The PrimFunc of a setting.

    Args:
        lanes: rows of a vector.
        heads: widths of queries and values; of the other sizes the attention's own count.
        parameters: of the program that it stands for.
    """
    rows = tile.vectors * lanes

    def write_piece(T: Any, tensors: Tensors, limit: Any, number: Any) -> None:
        piece = Piece(T, tensors, limit, number, rows, tile.chunk, lanes)
        _Writer(T, tensors, heads, tile, lanes, piece).write()

    return write_pieces(attention, parameters, rows, tile, write_piece)


class _Writer:
    """Writes what a core does for a piece.

    Args:
        T: TVM's script.
    """

    def __init__(
        self, T: Any, tensors: Tensors, heads: Heads, tile: Tile, lanes: int, piece: Piece
    ) -> None:
        self._t, self._tensors, self._heads, self._tile = T, tensors, heads, tile
        self._rows, self._piece = tile.vectors * lanes, piece
        self._softmax = Softmax(T, tile.vectors, lanes)
        self._each_row = self._softmax.each_lane

    def write(self) -> None:
        """Write the whole piece."""
        T, tile, piece = self._t, self._tile, self._piece
        width, columns = self._heads.width, self._heads.columns
        queries, sums = (piece.allocate(size * self._rows) for size in (width, columns))
        # The last tile of keys may reach beyond its chunk.
        weights = piece.allocate((tile.chunk + tile.keys) * self._rows)
        self._lay_queries(queries)
        with T.serial(columns) as column, self._each_row() as row:
            T.buffer_store(sums, T.float32(0), [column * self._rows + row])
        _, key, value = self._tensors.sources
        with piece.each_chunk() as (first, count):
            self._softmax.begin_chunk()
            self._score(piece.stage(key, width, first, count), queries, weights, first, count)
            self._softmax.weigh(weights, count)
            self._add_values(piece.stage(value, columns, first, count), weights, sums, count)
        self._store(sums)

    def _lay_queries(self, queries: Any) -> None:
        """Lay out queries with rows next to one another; after the last one it is repeated."""
        T, (query, _, _) = self._t, self._tensors.sources
        with T.serial(self._rows) as row:
            at = T.Bind(self._piece.clamp(row))
            with self._piece.along(self._heads.width) as term:
                element = self._piece.read(query, at, term)
                T.buffer_store(queries, element, [term * self._rows + row])

    def _score(self, keys: Element, queries: Any, scores: Any, first: Any, count: Any) -> None:
        """Store the scores of a chunk."""
        T, number = self._t, self._tile.keys
        write = partial(self._score_tile, keys, queries, scores, first, count)
        with T.serial(count // number) as tile:
            write(tile * number, is_whole=True)
        if not self._has_whole_tiles:
            with T.serial(T.Cast("int32", count % number > 0)):
                write(count // number * number, is_whole=False)

    @property
    def _has_whole_tiles(self) -> bool:
        """Whether each chunk has whole tiles of keys."""
        keys, tile = tvm_compat.as_int(self._tensors.keys), self._tile
        known = keys is not None and self._piece.limit is None
        return known and all(count % tile.keys == 0 for count in (keys, tile.chunk))

    def _score_tile(
        self,
        keys: Element,
        queries: Any,
        scores: Any,
        first: Any,
        count: Any,
        begin: Any,
        *,
        is_whole: bool,
    ) -> None:
        """Store the scores of a tile of keys: of one that has less, minus infinity behind them."""
        T, number = self._t, self._tile.keys
        sums = self._piece.allocate(number * self._rows)
        with T.unroll(number) as key, self._each_row() as row:
            T.buffer_store(sums, T.float32(0), [key * self._rows + row])
        with T.serial(self._heads.width) as term, T.unroll(number) as key, self._each_row() as row:
            at = begin + key if is_whole else T.min(begin + key, count - 1)
            product = keys(at, term) * queries[term * self._rows + row]
            place = key * self._rows + row
            T.buffer_store(sums, sums[place] + product, [place])
        with T.unroll(number) as key, self._each_row() as row:
            at = begin + key if is_whole else T.min(begin + key, count - 1)
            product, own = sums[key * self._rows + row], self._piece.clamp(row)
            score = self._tensors.score(product, self._piece.batch, own, first + at)
            if not is_whole:
                score = T.Select(begin + key < count, score, find_lowest(T))
            place = (begin + key) * self._rows + row
            T.buffer_store(scores, score, [place])
            self._softmax.look(row, scores[place])

    def _add_values(self, values: Element, weights: Any, sums: Any, count: Any) -> None:
        """Scale sums of values, and add those of a chunk."""
        T, number = self._t, self._tile.columns
        with T.serial(self._heads.columns // number) as tile:
            own = self._piece.allocate(number * self._rows)
            begin = tile * number
            with T.unroll(number) as column, self._each_row() as row:
                value = sums[(begin + column) * self._rows + row] * self._softmax.scale[row]
                T.buffer_store(own, value, [column * self._rows + row])
            with T.serial(count) as key, T.unroll(number) as column, self._each_row() as row:
                place = column * self._rows + row
                product = values(key, begin + column) * weights[key * self._rows + row]
                T.buffer_store(own, own[place] + product, [place])
            with T.unroll(number) as column, self._each_row() as row:
                value = own[column * self._rows + row]
                T.buffer_store(sums, value, [(begin + column) * self._rows + row])

    def _store(self, sums: Any) -> None:
        """Store the results of the rows that there are."""
        self._softmax.finish(self._tensors)
        with self._piece.each_row() as (row, at), self._piece.along(self._heads.columns) as column:
            total = sums[column * self._rows + row] * self._softmax.inverse[row]
            self._tensors.finish(total, self._piece.batch, at, column)
