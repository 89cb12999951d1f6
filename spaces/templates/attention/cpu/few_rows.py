"""The program of an attention of few rows on a CPU: a vector has scores of some rows and keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from spaces.lowering.attention.description import Attention
from spaces.templates.attention.cpu.few_knobs import FewTile
from spaces.templates.attention.cpu.piece import Element, Piece, write_pieces
from spaces.templates.attention.cpu.softmax import Softmax
from spaces.templates.attention.heads import Heads
from spaces.templates.attention.powers import find_lowest
from spaces.templates.attention.tensors import Tensors
from spaces.templates.products.places import count_tiles


def write_few_rows(
    lanes: int, attention: Attention, heads: Heads, tile: FewTile, parameters: Sequence[Any]
) -> Any:
    """The PrimFunc of a setting.

    Args:
        lanes: elements of a vector, which divide the widths of queries and values.
        heads: those widths; of the other sizes the attention's own count.
        parameters: of the program that it stands for.
    """

    def write_piece(T: Any, tensors: Tensors, limit: Any, number: Any) -> None:
        piece = Piece(T, tensors, limit, number, tile.rows, tile.chunk, lanes)
        _Writer(T, tensors, heads, tile, lanes, piece).write()

    return write_pieces(attention, parameters, tile.rows, tile, write_piece)


class _Writer:
    """Writes what a core does for a piece. Lane `k * rows + r` of a vector has row r, key k.

    Args:
        T: TVM's script.
    """

    def __init__(
        self, T: Any, tensors: Tensors, heads: Heads, tile: FewTile, lanes: int, piece: Piece
    ) -> None:
        self._t, self._tensors, self._heads, self._tile = T, tensors, heads, tile
        self._lanes, self._piece = lanes, piece
        self._rows, self._keys = tile.rows, lanes // tile.rows
        self._softmax = Softmax(T, 1, lanes)

    def write(self) -> None:
        """Write the whole piece."""
        T, piece, chunk = self._t, self._piece, self._tile.chunk
        width, columns = self._heads.width, self._heads.columns
        queries, sums = (piece.allocate(size * self._rows) for size in (width, columns))
        weights = piece.allocate(-(-chunk // self._keys) * self._lanes)
        query, key, value = self._tensors.sources
        with T.serial(self._rows) as row:
            at = T.Bind(piece.clamp(row))
            with piece.along(width) as term:
                T.buffer_store(queries, piece.read(query, at, term), [row * width + term])
            with piece.along(columns) as column:
                T.buffer_store(sums, T.float32(0), [row * columns + column])
        with piece.each_chunk() as (first, count):
            self._softmax.begin_chunk()
            steps = T.Bind(count_tiles(count, self._keys))
            keys = piece.stage(key, width, first, count)
            with T.serial(steps) as step:
                self._score(keys, queries, weights, step, first, count)
            self._softmax.weigh(weights, steps, lambda largest: self._join(largest, T.max))
            self._add_values(piece.stage(value, columns, first, count), weights, sums, count)
        self._join(self._softmax.inverse, lambda a, b: a + b)
        self._softmax.finish(self._tensors)
        with piece.each_row() as (row, at), piece.along(columns) as column:
            total = sums[row * columns + column] * self._softmax.inverse[row]
            self._tensors.finish(total, piece.batch, at, column)

    def _score(
        self, keys: Element, queries: Any, scores: Any, step: Any, first: Any, count: Any
    ) -> None:
        """Store a vector of scores; minus infinity of keys that there are not."""
        T, lanes, width = self._t, self._lanes, self._heads.width
        sums = self._piece.allocate(lanes * lanes)
        for vector in range(0, width, lanes):
            with T.unroll(self._keys) as key, T.unroll(self._rows) as row:
                at = T.min(step * self._keys + key, count - 1)
                with T.vectorized(lanes) as lane:
                    own = (key * self._rows + row) * lanes + lane
                    product = keys(at, vector + lane) * queries[row * width + vector + lane]
                    T.buffer_store(sums, product if vector == 0 else sums[own] + product, [own])
        self._add_lanes(sums)
        with T.vectorized(lanes) as lane:
            key, row = step * self._keys + lane // self._rows, lane % self._rows
            at = first + T.min(key, count - 1)
            own = self._piece.clamp(row)
            score = self._tensors.score(sums[lane], self._piece.batch, own, at)
            place = step * lanes + lane
            T.buffer_store(scores, T.Select(key < count, score, find_lowest(T)), [place])
            self._softmax.look(lane, scores[place])

    def _add_lanes(self, sums: Any) -> None:
        """Add up the lanes of as many vectors as each has; the sums become the lanes of the first.

        In each round two vectors become one, whose lanes are in turns sums of the lanes of either:
        after it, lanes that differ in one bit belong to vectors that differ in it.
        """
        from tvm import tirx

        T, lanes = self._t, self._lanes

        def read(place: int) -> Any:
            return sums[T.Ramp(place * lanes, 1, lanes)]

        bit, number = 1, lanes
        while bit < lanes:
            evens = [lane if not lane & bit else lanes + (lane ^ bit) for lane in range(lanes)]
            odds = [lane | bit if not lane & bit else lanes + lane for lane in range(lanes)]
            for pair in range(number // 2):
                both = [read(2 * pair), read(2 * pair + 1)]
                added = tirx.Shuffle(both, evens) + tirx.Shuffle(both, odds)
                T.buffer_store(sums, added, [T.Ramp(pair * lanes, 1, lanes)])
            bit, number = 2 * bit, number // 2

    def _join(self, numbers: Any, join: Callable[[Any, Any], Any]) -> None:
        """Join the numbers of lanes that have keys of the same row."""
        from tvm import tirx

        T, lanes, distance = self._t, self._lanes, self._rows
        whole = T.Ramp(0, 1, lanes)
        while distance < lanes:
            moved = [lane ^ distance for lane in range(lanes)]
            other = tirx.Shuffle([numbers[whole]], moved)
            T.buffer_store(numbers, join(numbers[whole], other), [whole])
            distance *= 2

    def _add_values(self, values: Element, weights: Any, sums: Any, count: Any) -> None:
        """Scale sums of values, and add those of a chunk."""
        T, lanes, columns = self._t, self._lanes, self._heads.columns
        number = self._tile.vectors
        with T.serial(columns // (number * lanes)) as tile:
            own = self._piece.allocate(self._rows * number * lanes)
            begin = tile * number * lanes
            with self._each_sum() as (place, row, column):
                scaled = sums[row * columns + begin + column] * self._softmax.scale[row]
                T.buffer_store(own, scaled, [place])
            with T.serial(count) as key, self._each_sum() as (place, row, column):
                product = values(key, begin + column) * weights[key * self._rows + row]
                T.buffer_store(own, own[place] + product, [place])
            with self._each_sum() as (place, row, column):
                T.buffer_store(sums, own[place], [row * columns + begin + column])

    @contextmanager
    def _each_sum(self) -> Iterator[tuple[Any, Any, Any]]:
        """Go through the sums in registers: the place of each, its row and its column."""
        T, lanes, number = self._t, self._lanes, self._tile.vectors
        with T.unroll(self._rows) as row, T.unroll(number) as vector, T.vectorized(lanes) as lane:
            yield (row * number + vector) * lanes + lane, row, vector * lanes + lane
