"""The softmax of scores that come chunk by chunk, in vectors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from spaces.lowering.attention.description import SUMS
from spaces.templates.attention.powers import find_base, find_lowest, invert
from spaces.templates.attention.tensors import Tensors


class Softmax:
    """Keeps, for each lane of some vectors, the largest score so far and the total of powers.

    Args:
        T: TVM's script.
        vectors: of `lanes` each, that scores come in.

    Attributes:
        scale: what sums of values of the chunks before are multiplied by, for each lane.
        inverse: what they are multiplied by in the end, after `finish`.
    """

    def __init__(self, T: Any, vectors: int, lanes: int) -> None:
        self._t, self._vectors, self._lanes = T, vectors, lanes
        self._largest, self._totals, self._base, self.scale = (
            T.alloc_buffer((vectors * lanes,), SUMS, scope="global") for _ in range(4)
        )
        self.inverse = self._totals
        with self.each_lane() as lane:
            T.buffer_store(self._largest, find_lowest(T), [lane])
            T.buffer_store(self._totals, T.float32(0), [lane])

    def begin_chunk(self) -> None:
        """Begin with the largest scores of the chunks before."""
        with self.each_lane() as lane:
            self._t.buffer_store(self._base, self._largest[lane], [lane])

    def look(self, lane: Any, score: Any) -> None:
        """Look at a score of the chunk."""
        self._t.buffer_store(self._base, self._t.max(self._base[lane], score), [lane])

    def weigh(
        self, weights: Any, steps: Any, join: Callable[[Any], None] = lambda largest: None
    ) -> None:
        """Turn a chunk's scores into weights.

        Args:
            weights: the scores, in `steps` vectors for each of these.
            join: joins the largest scores of lanes that have keys of the same row.
        """
        T = self._t
        join(self._base)
        with self.each_lane() as lane:
            T.buffer_store(self.scale, self._largest[lane], [lane])
            T.buffer_store(self._largest, self._base[lane], [lane])
            T.buffer_store(self._base, find_base(T, self._largest[lane]), [lane])
            T.buffer_store(self.scale, T.exp(self.scale[lane] - self._base[lane]), [lane])
            T.buffer_store(self._totals, self._totals[lane] * self.scale[lane], [lane])
        with T.serial(steps) as step, self.each_lane() as lane:
            place = step * self._vectors * self._lanes + lane
            T.buffer_store(weights, T.exp(weights[place] - self._base[lane]), [place])
            T.buffer_store(self._totals, self._totals[lane] + weights[place], [lane])

    def finish(self, tensors: Tensors) -> None:
        """Find what sums of values are multiplied by."""
        with self.each_lane() as lane:
            total = invert(self._t, tensors, self._totals[lane])
            self._t.buffer_store(self._totals, total, [lane])

    @contextmanager
    def each_lane(self) -> Iterator[Any]:
        """Do something for each lane, in vectors."""
        T = self._t
        with T.unroll(self._vectors) as vector, T.vectorized(self._lanes) as lane:
            yield vector * self._lanes + lane
