"""Runs: rows of a tile that follow one another and look up the same matrix.

A block multiplies its tile of rows once for each run, by the run's matrix, and stores what are the
run's rows. So it is right whatever rows look up. Where they are sorted by that, as those of a
mixture of experts are, few runs begin but with a tile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from spaces.ir import rewrite
from spaces.templates.products.epilogue import Epilogue
from spaces.templates.products.grid import Part
from spaces.templates.products.product import Product
from spaces.templates.products.source import Source
from spaces.templates.products.windows import LookUp
from spaces.templates.thread_program import keep, narrow

RUN_BLOCKS = "run_blocks"
"""The knob for the blocks that share the runs of a tile."""
_RUN_BLOCK_COUNTS = (1, 2, 4, 8, 16, 32)
_ITEM_BYTES = 4


def run_choices(product: Product) -> dict[str, tuple[int, ...]]:
    """The knob of a product whose rows look up matrices; none of any other."""
    if product.look_up is None:
        return {}
    most = 2 * product.look_up.size
    return {RUN_BLOCKS: tuple(count for count in _RUN_BLOCK_COUNTS if count < most)}


def read_run_blocks(knobs: Mapping[str, Any]) -> Any:
    """The value of that knob; 1 where there is none."""
    return knobs.get(RUN_BLOCKS, 1)


def count_run_bytes(product: Product, rows: Any) -> Any:
    """Shared memory for the runs of a tile of so many rows."""
    return 0 if product.look_up is None else _count_items(rows) * _ITEM_BYTES


def count_runs(product: Product, row_tiles: Any, rows: Any) -> Any:
    """The mean number of runs in a tile, at most, where rows are sorted by what they look up.

    Args:
        row_tiles: how many tiles of so many rows there are.
    """
    return np.minimum(1 + (product.matrices - 1) / np.maximum(row_tiles, 1), rows)


def _count_items(rows: Any) -> Any:
    return 2 * rows + 2


def begin_runs(
    T: Any,
    product: Product,
    epilogue: Epilogue,
    sides: Sequence[tuple[Source, int]],
    swap: int,
    blocks: int,
) -> Runs | None:
    """The runs of the tiles of a grid's sides; None where rows look up nothing."""
    if product.look_up is None:
        return None
    side = product.sides(swap).index(product.c.rows_of)
    source, rows = sides[side]
    told = {"size": narrow(T, source.size), "rows": rows, "side": side, "blocks": blocks}
    return Runs(T, product.look_up, epilogue, **told)


class Runs:
    """The runs of a block's tile.

    Args:
        T: TVM's script.
        epilogue: of the program, whose tensors are looked up in.
        size: the number of all rows; `rows` those of a tile.
        side: whether rows are those of A, 0, or of B.
        blocks: that share the runs of a tile.
    """

    def __init__(
        self,
        T: Any,
        look_up: LookUp,
        epilogue: Epilogue,
        *,
        size: Any,
        rows: int,
        side: int,
        blocks: int,
    ) -> None:
        self._t, self._look_up, self._epilogue = T, look_up, epilogue
        self._size, self._rows, self._side, self._blocks = size, rows, side, blocks

    def allocate(self, pool: Any) -> None:
        """Make room for what says which rows of a tile begin runs, where each run begins, and how
        many there are."""
        self._found = pool.alloc((_count_items(self._rows),), "int32", align=_ITEM_BYTES)

    def find(self, thread: Any, threads: int, part: Part) -> Any:
        """Find the runs of a block's tile, by all of its threads; returns how many are its own."""
        T, rows, found = self._t, self._rows, self._found
        tile = (part.a, part.b)[self._side]
        self._first, end = keep(T, [tile * rows, T.min(self._size - tile * rows, rows)])
        number = T.alloc_buffer((1,), "int32", scope="local")
        with T.serial(-(-rows // threads)) as turn:
            row = turn * threads + thread
            with T.If(row < end), T.Then():
                before = self._read(self._first + T.max(row - 1, 0))
                begins = T.Or(row == 0, self._read(self._first + row) != before)
                T.buffer_store(found, T.Cast("int32", begins), [row])
        T.evaluate(T.cuda.cta_sync())
        with T.serial(-(-rows // threads)) as turn:
            row = turn * threads + thread
            with T.If(row < end), T.Then():
                T.buffer_store(number, 0, [0])
                with T.serial(row) as earlier:
                    T.buffer_store(number, number[0] + found[earlier], [0])
                with T.If(found[row] == 1), T.Then():
                    T.buffer_store(found, row, [rows + number[0]])
                with T.If(row == end - 1), T.Then():
                    count = number[0] + found[row]
                    T.buffer_store(found, end, [rows + count])
                    T.buffer_store(found, count, [2 * rows + 1])
        T.evaluate(T.cuda.cta_sync())
        own = found[2 * rows + 1] - part.share + self._blocks - 1
        return keep(T, [T.truncdiv(own, self._blocks)])[0]

    def take(self, part: Part, turn: Any) -> Part:
        """What a block computes for one of its runs, by the run's number among these."""
        T, rows = self._t, self._rows
        run = rows + part.share + turn * self._blocks
        begin, end = (self._first + self._found[run + i] for i in range(2))
        begin, end, matrix = keep(T, [begin, end, self._read(begin)])
        return replace(part, batch={self._look_up.axis: matrix}, rows=(begin, end))

    def _read(self, row: Any) -> Any:
        """The matrix that a row looks up."""
        place = rewrite.cast(str(self._look_up.variable.ty.dtype), row)
        return self._epilogue.fill(self._look_up.value, [(self._look_up.variable, place)])
