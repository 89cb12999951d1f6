"""The program of a tile that is transposed in shared memory: threads load vectors in the order in
which a tensor is read, and store vectors in the order in which the result is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from spaces.ir import tvm_compat
from spaces.templates.gpu_memory.elements import Elements, Places, Slot
from spaces.templates.gpu_memory.program import Program, Read
from spaces.templates.gpu_memory.sizes import SymbolicSizes
from spaces.templates.gpu_memory.vectors import is_whole
from spaces.templates.thread_program import narrow

_BANK_BYTES = 4


@dataclass(frozen=True, slots=True)
class Tile:
    """The sizes of a tile.

    Attributes:
        lines: places along which the tensor is read in order.
        columns: places along which the result is written in order.
        threads: of a block; `vector` elements of a vector.
    """

    lines: Any
    columns: Any
    threads: Any
    vector: Any


def pitch_of(lines: Any, item_bytes: int) -> Any:
    """Elements from one column of a tile in shared memory to the next: an odd number of banks."""
    return lines + max(1, _BANK_BYTES // item_bytes)


class TileWriter:
    """Writes what threads do with one tile.

    Args:
        symbols: symbolic dimensions that are multiples of a vector.
    """

    def __init__(
        self, T: Any, program: Program, tile: Tile, vector: int, symbols: Sequence[Any]
    ) -> None:
        self._t, self._program, self._tile = T, program, tile
        self._part = program.parts[-1]
        self._sizes = SymbolicSizes(T, program.kind, vector, symbols)
        *self._others, self._lines, self._columns = self._part.lanes
        self._along = program.along
        self._widths = [self._width(group.extent, vector) for group in self._part.lanes[-2:]]

    def _width(self, extent: Any, vector: int) -> int:
        return vector if is_whole(self._sizes.fix(extent), vector) else 1

    def count_blocks(self) -> Any:
        """The number of blocks."""
        total = self._sizes.fix(self._count_others() * self._tiles(0) * self._tiles(1))
        return narrow(self._t, total)

    def _count_others(self) -> Any:
        return self._sizes.count(self._others, 1)

    def _tiles(self, side: int) -> Any:
        """Tiles along a side."""
        group, own = (
            (self._lines, self._tile.lines) if side == 0 else (self._columns, self._tile.columns)
        )
        return self._sizes.fix((self._sizes.number(group.extent) + (int(own) - 1)) // int(own))

    def write(self, tensors: Sequence[tuple[Any, Any]], block: Any, thread: Any) -> None:
        """Write what a thread of a block does.

        Args:
            tensors: the program's parameters, each with the tensor that stands for it.
        """
        T, part = self._t, self._part
        elements = Elements(T, tensors, self._along, self._sizes.symbols)
        rest = self._sizes.number(block)
        column = T.Bind(rest % self._tiles(1) * int(self._tile.columns))
        rest = rest // self._tiles(1)
        line = T.Bind(rest % self._tiles(0) * int(self._tile.lines))
        places = self._sizes.spread(rest // self._tiles(0), self._others, 1)
        reads = list({read.number: read for read in part.reads}.values())
        turned = [read for read in reads if self._program.is_turned(read)]
        shared = {read.number: self._allocate(read) for read in turned}
        for read in turned:
            self._fill(elements, read, shared[read.number], places, (line, column), thread)
        T.evaluate(T.cuda.cta_sync())
        straight = [read for read in reads if read.number not in shared]
        self._store(elements, straight, shared, places, (line, column), thread)

    def _allocate(self, read: Read) -> Any:
        size = pitch_of(int(self._tile.lines), _item_bytes(read)) * int(self._tile.columns)
        return self._t.alloc_buffer((size,), str(read.buffer.dtype), scope="shared", align=16)

    def _fill(
        self,
        elements: Elements,
        read: Read,
        shared: Any,
        places: Places,
        first: tuple[Any, Any],
        thread: Any,
    ) -> None:
        """Copy a tensor's part of a tile into shared memory, in vectors along lines."""
        T, tile, width = self._t, self._tile, self._widths[0]
        across, pitch = int(tile.lines) // width, pitch_of(int(tile.lines), _item_bytes(read))
        steps = across * int(tile.columns) // int(tile.threads)
        own = T.alloc_buffer((steps * width,), str(read.buffer.dtype), scope="local", align=16)
        aside, flipped = elements.turn(self._lines.place), replace(read, growth=1)

        def place(step: Any) -> tuple[Any, Any, Any]:
            number = T.Bind(step * int(tile.threads) + thread)
            line, column = number % across * width, number // across
            return line, column, self._inside(first, line, column)

        with T.unroll(steps) as step:
            line, column, inside = place(step)
            with T.If(inside), T.Then():
                at = self._places(places, first, line, column)
                aside.load(Slot(own, step * width, width), flipped, at, width)
        with T.unroll(steps) as step:
            line, column, inside = place(step)
            with T.If(inside), T.Then(), T.unroll(width) as i:
                T.buffer_store(shared, own[step * width + i], [column * pitch + line + i])

    def _store(
        self,
        elements: Elements,
        reads: Sequence[Read],
        shared: dict[int, Any],
        places: Places,
        first: tuple[Any, Any],
        thread: Any,
    ) -> None:
        """Compute and store a tile, in vectors along columns."""
        T, tile, part, width = self._t, self._tile, self._part, self._widths[1]
        target, across = part.body.target, int(tile.columns) // width
        steps = across * int(tile.lines) // int(tile.threads)
        out = T.alloc_buffer((width,), str(target.dtype), scope="local", align=16)
        own = {
            read.number: Slot(
                T.alloc_buffer((width,), str(read.buffer.dtype), scope="local", align=16),
                0,
                1 if read.growth == 0 else width,
            )
            for read in reads
        }
        with T.unroll(steps) as step:
            number = T.Bind(step * int(tile.threads) + thread)
            line, column = number // across, number % across * width
            with T.If(self._inside(first, line, column)), T.Then():
                at = self._places(places, first, line, column)
                slots = dict(own)
                for read in reads:
                    elements.load(own[read.number], read, at, width)
                for number, array in shared.items():
                    item = tvm_compat.element_bits(array.dtype) // 8
                    pitch = pitch_of(int(tile.lines), max(1, item))
                    slots[number] = Slot(array, column * pitch + line, width, pitch)
                with T.unroll(width) as i:
                    T.buffer_store(out, elements.value(part, slots, (), at, i), [i])
                elements.store(target, part.index, at, out, width)

    def _inside(self, first: tuple[Any, Any], line: Any, column: Any) -> Any:
        """Whether a vector of a tile is within the tensors."""
        ends = [self._sizes.number(group.extent) for group in (self._lines, self._columns)]
        sides = [self._sizes.number(side) for side in (line, column)]
        return self._t.And(first[0] + sides[0] < ends[0], first[1] + sides[1] < ends[1])

    def _places(
        self, places: Places, first: tuple[Any, Any], line: Any, column: Any
    ) -> dict[Any, Any]:
        """The places of a vector of a tile."""
        return {
            **places,
            self._lines.place: first[0] + self._sizes.number(line),
            self._columns.place: first[1] + self._sizes.number(column),
        }


def _item_bytes(read: Read) -> int:
    return max(1, tvm_compat.element_bits(read.buffer.dtype) // 8)
