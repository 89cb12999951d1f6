"""The softmax of scores that come tile by tile (Milakov and Gimelshein, "Online normalizer
calculation for softmax", arXiv 1805.02867)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from spaces.templates.attention.gpu.knobs import ROWS, WARP, WarpTile
from spaces.templates.attention.gpu.splits import Left
from spaces.templates.attention.powers import find_base, find_lowest, invert, raise_e
from spaces.templates.attention.tensors import Tensors
from spaces.templates.thread_program import exchange

_QUAD = (1, 2)
"""Distances of the threads that have the same rows (PTX ISA, "Matrix Fragments for
mma.m16n8k16")."""


class Softmax:
    """Keeps, for each of a thread's rows, the largest score so far and the total of its powers.

    A thread has two rows of sixteen, eight apart, and of each eight keys a pair.

    Args:
        T: TVM's script.
        first: the warp's first row.
        batch: the place on each axis of the batch.
    """

    def __init__(
        self,
        T: Any,
        tensors: Tensors,
        tile: WarpTile,
        thread: Any,
        first: Any,
        batch: Sequence[Any],
    ) -> None:
        self._t, self._tensors, self._tile, self._batch = T, tensors, tile, batch
        lane = thread % WARP
        self._lane = lane
        self._row = T.Bind(first + lane // 4)
        self._column = T.Bind(lane % 4 * 2)
        self._own = number = 2 * tile.parts
        self._largest, self._totals = (
            T.alloc_buffer((number,), "float32", scope="local") for _ in range(2)
        )
        with T.unroll(number) as i:
            T.buffer_store(self._largest, find_lowest(T), [i])
            T.buffer_store(self._totals, T.float32(0), [i])

    def weigh(self, scores: Any, first_key: Any, sums: Any, width: int) -> None:
        """Turn products into weights, and scale the sums of values of the keys before.

        Args:
            scores: a thread's products of the tile, that become its weights.
            width: columns of sums.
        """
        T, keys = self._t, self._tile.warp_keys
        for own in range(self._own):
            part, lower, row = own // 2, own % 2, self._find_row(own)
            most = T.alloc_buffer((1,), "float32", scope="local")
            T.buffer_store(most, self._largest[own], [0])
            with T.unroll(keys // 8) as eight, T.unroll(2) as right:
                place = part * keys // 2 + eight * 4 + lower * 2 + right
                key = first_key + eight * 8 + self._column + right
                score = self._score(scores[place], row, key)
                T.buffer_store(scores, score, [place])
                T.buffer_store(most, T.max(most[0], scores[place]), [0])
            self._share(most, T.max)
            base = T.Bind(find_base(T, most[0]))
            scale = T.Bind(raise_e(T, self._largest[own] - base))
            T.buffer_store(self._largest, most[0], [own])
            T.buffer_store(self._totals, self._totals[own] * scale, [own])
            with T.unroll(keys // 8) as eight, T.unroll(2) as right:
                place = part * keys // 2 + eight * 4 + lower * 2 + right
                T.buffer_store(scores, raise_e(T, scores[place] - base), [place])
                T.buffer_store(self._totals, self._totals[own] + scores[place], [own])
            with T.unroll(width // 8) as eight, T.unroll(2) as right:
                place = part * width // 2 + eight * 4 + lower * 2 + right
                T.buffer_store(sums, sums[place] * scale, [place])

    def join_threads(self) -> None:
        """Add up the totals of the threads that have the same rows."""
        T = self._t
        for own in range(self._own):
            total = T.alloc_buffer((1,), "float32", scope="local")
            T.buffer_store(total, self._totals[own], [0])
            self._share(total, lambda a, b: a + b)
            T.buffer_store(self._totals, total[0], [own])

    def join_warps(self, sums: Any, warp: Any, shared: Any) -> None:
        """Have the first of the warps with the same rows add what the others found.

        Args:
            shared: room for the numbers of each thread of each other warp.
        """
        T, others = self._t, self._tile.key_warps - 1
        place, first = warp // (others + 1) * others, warp % (others + 1)
        numbers = [(self._largest, own) for own in range(self._own)]
        numbers += [(self._totals, own) for own in range(self._own)]
        numbers += [(sums, own) for own in range(int(sums.shape[0]))]
        with T.If(first > 0), T.Then():
            for number, (buffer, own) in enumerate(numbers):
                T.buffer_store(shared, buffer[own], [place + first - 1, number, self._lane])
        T.evaluate(T.cuda.cta_sync())
        with T.If(first == 0), T.Then(), T.serial(others) as other:
            for own in range(self._own):
                self._join(sums, own, lambda n: shared[place + other, n, self._lane])

    def _join(self, sums: Any, own: int, read: Callable[[Any], Any]) -> None:
        """Join one row with that of another warp, whose numbers are read in the order in which
        these are written: largest scores, totals, sums."""
        T, part, lower = self._t, own // 2, own % 2
        each = int(sums.shape[0]) // self._tile.parts
        other = T.Bind(read(own))
        most = T.Bind(T.max(self._largest[own], other))
        base = T.Bind(find_base(T, most))
        mine, theirs = (T.Bind(raise_e(T, x - base)) for x in (self._largest[own], other))
        T.buffer_store(self._largest, most, [own])
        total = self._totals[own] * mine + read(self._own + own) * theirs
        T.buffer_store(self._totals, total, [own])
        with T.unroll(each // 4) as eight, T.unroll(2) as right:
            place = part * each + eight * 4 + lower * 2 + right
            value = sums[place] * mine + read(2 * self._own + place) * theirs
            T.buffer_store(sums, value, [place])

    def store(self, sums: Any, width: int) -> None:
        """Divide the sums of values by the totals of weights, and store them."""
        for own in range(self._own):
            share = self._t.Bind(invert(self._t, self._tensors, self._totals[own]))

            def put(row: Any, column: Any, total: Any, share: Any = share) -> None:
                self._tensors.finish(total * share, self._batch, row, column)

            self._go_through(own, sums, width, put)

    def leave(self, sums: Any, width: int, left: Left) -> None:
        """Leave sums of values and totals of weights to be joined with those of other blocks."""
        T = self._t
        for own in range(self._own):
            row = self._find_row(own)
            with T.If(T.And(row < self._tensors.rows, self._column == 0)), T.Then():
                left.put_row(row, self._largest[own], self._totals[own])
            self._go_through(own, sums, width, left.put)

    def _go_through(
        self, own: int, sums: Any, width: int, put: Callable[[Any, Any, Any], None]
    ) -> None:
        """Put somewhere what a thread has of a row, where there is such a row and column."""
        T, tensors, row = self._t, self._tensors, self._find_row(own)
        with T.unroll(width // 8) as eight, T.unroll(2) as right:
            place = own // 2 * width // 2 + eight * 4 + own % 2 * 2 + right
            column = eight * 8 + self._column + right
            with T.If(T.And(row < tensors.rows, column < tensors.columns)), T.Then():
                put(row, column, sums[place])

    def _find_row(self, own: int) -> Any:
        """One of a thread's rows."""
        return self._row + own // 2 * ROWS + own % 2 * 8

    def _score(self, product: Any, row: Any, key: Any) -> Any:
        """The score of a row and a key; minus infinity beyond the tensors."""
        T, tensors = self._t, self._tensors
        score = tensors.score(product, self._batch, row, key)
        inside = T.And(row < tensors.rows, key < tensors.keys)
        return T.if_then_else(inside, score, find_lowest(T))

    def _share(self, value: Any, join: Callable[[Any, Any], Any]) -> None:
        """Join the values of the threads that have the same row."""
        T = self._t
        for distance in _QUAD:
            other = exchange(T, value[0], distance)
            T.buffer_store(value, join(value[0], other), [0])
