"""The softmax of scores that come tile by tile (Milakov and Gimelshein, "Online normalizer
calculation for softmax", arXiv 1805.02867)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from spaces.templates.attention.knobs import WARP, AttentionTile
from spaces.templates.attention.tensors import Tensors
from spaces.templates.tensor_cores.tile import TERMS

_LOG2_E = math.log2(math.e)
_ALL = 0xFFFFFFFF
_QUAD = (1, 2)
"""Distances of the threads that have the same rows (PTX ISA, "Matrix Fragments for
mma.m16n8k16")."""


class Softmax:
    """Keeps, for each of a thread's rows, the largest score so far and the total of its powers.

    A thread has two rows of sixteen, eight apart, and of each eight keys a pair.

    Args:
        T: TVM's script.
        first: the block's first row.
        batch: the place on each axis of the batch.
    """

    def __init__(
        self,
        T: Any,
        tensors: Tensors,
        tile: AttentionTile,
        thread: Any,
        first: Any,
        batch: Sequence[Any],
    ) -> None:
        self._t, self._tensors, self._tile, self._batch = T, tensors, tile, batch
        lane = thread % WARP
        self._row = T.Bind(first + thread // WARP * tile.warp_rows + lane // 4)
        self._column = T.Bind(lane % 4 * 2)
        number = 2 * tile.parts
        self._largest, self._totals = (
            T.alloc_buffer((number,), "float32", scope="local") for _ in range(2)
        )
        with T.unroll(number) as i:
            T.buffer_store(self._largest, _lowest(T), [i])
            T.buffer_store(self._totals, T.float32(0), [i])

    def weigh(self, scores: Any, first_key: Any, sums: Any, width: int) -> None:
        """Turn products into weights, and scale the sums of values of the keys before.

        Args:
            scores: a thread's products of the tile, that become its weights.
            width: columns of sums.
        """
        T, tile, keys = self._t, self._tile, self._tile.keys
        for part in range(tile.parts):
            for lower in range(2):
                own, row = 2 * part + lower, self._row + part * TERMS + lower * 8
                most = T.alloc_buffer((1,), "float32", scope="local")
                T.buffer_store(most, self._largest[own], [0])
                with T.unroll(keys // 8) as eight, T.unroll(2) as right:
                    place = part * keys // 2 + eight * 4 + lower * 2 + right
                    key = first_key + eight * 8 + self._column + right
                    score = self._score(scores[place], row, key)
                    T.buffer_store(scores, score, [place])
                    T.buffer_store(most, T.max(most[0], scores[place]), [0])
                self._share(most, T.max)
                # A row without a score yet has none to subtract.
                base = T.Bind(T.Select(most[0] == _lowest(T), T.float32(0), most[0]))
                scale = T.Bind(T.exp2(self._largest[own] - base))
                T.buffer_store(self._largest, most[0], [own])
                T.buffer_store(self._totals, self._totals[own] * scale, [own])
                with T.unroll(keys // 8) as eight, T.unroll(2) as right:
                    place = part * keys // 2 + eight * 4 + lower * 2 + right
                    T.buffer_store(scores, T.exp2(scores[place] - base), [place])
                    T.buffer_store(self._totals, self._totals[own] + scores[place], [own])
                with T.unroll(width // 8) as eight, T.unroll(2) as right:
                    place = part * width // 2 + eight * 4 + lower * 2 + right
                    T.buffer_store(sums, sums[place] * scale, [place])

    def store(self, sums: Any, width: int) -> None:
        """Divide the sums of values by the totals of weights, and store them."""
        T, tensors = self._t, self._tensors
        for part in range(self._tile.parts):
            for lower in range(2):
                own, row = 2 * part + lower, self._row + part * TERMS + lower * 8
                total = T.alloc_buffer((1,), "float32", scope="local")
                T.buffer_store(total, self._totals[own], [0])
                self._share(total, lambda a, b: a + b)
                share = T.float32(1) / total[0]
                if tensors.is_safe:
                    share = T.Select(self._largest[own] == _lowest(T), T.float32(0), share)
                share = T.Bind(share)
                with T.unroll(width // 8) as eight, T.unroll(2) as right:
                    place = part * width // 2 + eight * 4 + lower * 2 + right
                    column = eight * 8 + self._column + right
                    with T.If(T.And(row < tensors.rows, column < tensors.columns)), T.Then():
                        value = tensors.result(sums[place] * share, self._batch, row, column)
                        tensors.store(value, self._batch, row, column)

    def _score(self, product: Any, row: Any, key: Any) -> Any:
        """The score of a row and a key, times log2(e); minus infinity beyond the tensors."""
        T, tensors = self._t, self._tensors
        score = tensors.score(product, self._batch, row, key) * T.float32(_LOG2_E)
        inside = T.And(row < tensors.rows, key < tensors.keys)
        return T.if_then_else(inside, score, _lowest(T))

    def _share(self, value: Any, join: Callable[[Any, Any], Any]) -> None:
        """Join the values of the threads that have the same row."""
        T = self._t
        for distance in _QUAD:
            other = _exchange(T, value[0], distance)
            T.buffer_store(value, join(value[0], other), [0])


def _lowest(T: Any) -> Any:
    return T.float32(-math.inf)


def _exchange(T: Any, value: Any, distance: int) -> Any:
    """The value of the thread of a warp whose number differs by one bit."""
    return T.cuda.__shfl_xor_sync(T.uint32(_ALL), value, distance, WARP)
