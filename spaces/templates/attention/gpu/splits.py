"""Keys that are shared out to several blocks, and how what these found is joined (Dao, Haziza,
Massa and Sizov, "Flash-Decoding for long-context inference")."""

from __future__ import annotations

from typing import Any

from spaces.templates.attention.powers import find_base, find_lowest, invert, raise_e
from spaces.templates.attention.tensors import Tensors
from spaces.templates.products.places import count_tiles
from spaces.templates.thread_program import widen

_THREADS = 128
"""Of a block that joins."""


class Left:
    """What blocks leave of each row: the sums of its values, its largest score and its total.

    Args:
        T: TVM's script.
        splits: shares of the keys.
    """

    def __init__(self, T: Any, tensors: Tensors, splits: int) -> None:
        self._t, self._tensors, self._splits = T, tensors, splits

    def allocate(self) -> None:
        """Make room."""
        T, tensors = self._t, self._tensors
        lines = widen(self._splits, tensors.batches, tensors.rows)
        sizes = (*lines, *widen(tensors.columns))
        self._sums = T.alloc_buffer(sizes, "float32", scope="global")
        self._largest, self._totals = (
            T.alloc_buffer(lines, "float32", scope="global") for _ in range(2)
        )

    def begin(self, split: Any, batch: Any) -> None:
        """What a block leaves is of a share of the keys of one attention."""
        self._place = widen(split, batch)

    def put_row(self, row: Any, largest: Any, total: Any) -> None:
        """Leave the largest score of a row, and the total of its weights."""
        line = (*self._place, *widen(row))
        self._t.buffer_store(self._largest, largest, line)
        self._t.buffer_store(self._totals, total, line)

    def put(self, row: Any, column: Any, total: Any) -> None:
        """Leave the sum of a column."""
        self._t.buffer_store(self._sums, total, (*self._place, *widen(row, column)))

    def join(self) -> None:
        """Write the kernel that joins what blocks have left, in the order of the keys."""
        T, tensors = self._t, self._tensors
        batches, rows, columns = widen(tensors.batches, tensors.rows, tensors.columns)
        size = batches * rows * columns
        block = T.cta_id([T.Cast("int32", count_tiles(size, _THREADS))])
        thread = T.thread_id([_THREADS])
        place = T.Bind(widen(block)[0] * _THREADS + thread)
        with T.If(place < size), T.Then():
            line, column = T.Bind(place // columns), T.Bind(place % columns)
            number, row = T.Bind(line // rows), T.Bind(line % rows)
            most, total, found = (T.alloc_buffer((1,), "float32", scope="local") for _ in range(3))
            T.buffer_store(most, find_lowest(T), [0])
            for buffer in (total, found):
                T.buffer_store(buffer, T.float32(0), [0])
            with T.unroll(self._splits) as split:
                own = (*widen(split), number, row)
                T.buffer_store(most, T.max(most[0], self._largest[own]), [0])
            base = T.Bind(find_base(T, most[0]))
            with T.unroll(self._splits) as split:
                own = (*widen(split), number, row)
                scale = T.Bind(raise_e(T, self._largest[own] - base))
                T.buffer_store(total, total[0] + self._totals[own] * scale, [0])
                more = self._sums[(*own, column)] * scale
                T.buffer_store(found, found[0] + more, [0])
            value = found[0] * invert(T, tensors, total[0])
            tensors.finish(value, tensors.spread(number), row, column)
