"""What the programs of attention have in common: which rows and keys a block has, and what becomes
of its sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from spaces.lowering.attention.description import Attention
from spaces.templates.attention.causal import find_limit
from spaces.templates.attention.gpu.softmax import Softmax
from spaces.templates.attention.gpu.splits import Left
from spaces.templates.attention.groups import ALONE, find_group
from spaces.templates.attention.heads import Heads
from spaces.templates.attention.tensors import Tensors
from spaces.templates.products.places import count_tiles
from spaces.templates.thread_program import DEVICE_ENTRY, begin_program

WriteKernel = Callable[[Any, "Frame", Heads, Any], None]
"""Writes what the threads of a setting do: of TVM's script, a frame, sizes of heads, and a tile."""


def write_program(
    write_kernel: WriteKernel,
    attention: Attention,
    heads: Heads,
    tile: Any,
    parameters: Sequence[Any],
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
        group = find_group(attention) if tile.heads > 1 else ALONE
        tensors = Tensors(T, attention, known, group)
        left = Left(T, tensors, tile.splits) if tile.splits > 1 else None
        if left is not None:
            left.allocate()
        with T.attr({DEVICE_ENTRY: True}):
            write_kernel(T, Frame(T, tensors, tile, left, find_limit(attention)), heads, tile)
        if left is not None:
            with T.attr({DEVICE_ENTRY: True}):
                left.join()
    return builder.get()


@dataclass(frozen=True, slots=True)
class Block:
    """What a block has.

    Attributes:
        row: its first row of an attention.
        batch: the place on each axis of the batch; `number` that on all of them.
        split: which share of the keys; `begin` is its first tile of keys, `steps` their number.
    """

    row: Any
    batch: list[Any]
    number: Any
    split: Any
    begin: Any
    steps: Any


class Frame:
    """Where blocks begin, and what becomes of their sums.

    Args:
        T: TVM's script.
        left: what blocks leave for others; None where each has all keys of its rows.
        limit: see `spaces.templates.attention.causal.find_limit`.
    """

    def __init__(self, T: Any, tensors: Tensors, tile: Any, left: Left | None, limit: Any) -> None:
        self._t, self.tensors, self._tile = T, tensors, tile
        self._left, self._limit = left, limit
        self._row_tiles = count_tiles(tensors.rows, tile.rows)

    @property
    def blocks(self) -> Any:
        """The number of blocks."""
        return self._row_tiles * self._tile.splits * self.tensors.batches

    def place(self, block: Any) -> Block:
        """What the block of a number has.

        Blocks with the same keys and values follow one another; the last rows have most to do.
        """
        T, tile = self._t, self._tile
        row = T.Bind((self._row_tiles - 1 - block % self._row_tiles) * tile.rows)
        rest = T.Bind(block // self._row_tiles)
        split, number = rest % tile.splits, rest // tile.splits
        batch = self.tensors.spread(number)
        steps = T.Bind(self._count_steps(row))
        each = T.Bind(count_tiles(steps, tile.splits))
        begin = T.Bind(split * each)
        own = T.Bind(T.max(T.min(steps - begin, each), 0))
        return Block(row, batch, number, split, begin, own)

    def store(self, block: Block, softmax: Softmax, sums: Any, width: int) -> None:
        """Store what a thread's sums come to, or leave them to be joined with those of others."""
        if self._left is None:
            softmax.store(sums, width)
        else:
            self._left.begin(block.split, block.number)
            softmax.leave(sums, width, self._left)

    def _count_steps(self, first: Any) -> Any:
        """Tiles of keys that the rows from the first on look at."""
        T, tile = self._t, self._tile
        keys = self.tensors.keys
        if self._limit is not None:  # which may not fit 32 bits
            last = (first + tile.rows - 1) // self.tensors.heads
            seen = self._limit + T.Cast("int64", last) + 1
            keys = T.Cast("int32", T.max(T.min(T.Cast("int64", keys), seen), 0))
        return count_tiles(keys, tile.keys)
