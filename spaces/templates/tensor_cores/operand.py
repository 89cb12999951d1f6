"""How an operand of a product reaches shared memory: by a tensor map, or by threads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd
from typing import Any

from spaces.templates.tensor_cores.product import Product
from spaces.templates.tensor_cores.tensor_map import UNIT, encode_map, multiply, read_dimensions
from spaces.templates.tensor_cores.tile import HELD, ITEM, LINE, LINE_BYTES, PATTERN_BYTES

_LOAD = "cp.async.bulk.tensor.{}d.shared::cluster.global.mbarrier::complete_tx::bytes"


class Operand:
    """The tiles of one operand.

    A tile lies in pieces, one behind the other, of lines of 128 bytes. Where the terms of a sum are
    dense a line has 64 of one row; else 64 rows of one term.

    Args:
        T: TVM's script.
        tensor: the operand in global memory.
        extents: of the contraction's axes.
        rows: of a block's tile, or columns; `lines` those of a piece, where terms are dense.
        threads: that copy.
        by_map: whether a tensor map is made, if there can be one.
    """

    def __init__(
        self,
        T: Any,
        product: Product,
        number: int,
        tensor: Any,
        extents: Sequence[Any],
        *,
        rows: int,
        lines: int,
        depth: int,
        threads: int,
        by_map: bool,
    ) -> None:
        self._t, self._product, self.number, self._tensor = T, product, number, tensor
        self._extents, self._threads = extents, threads
        self.rows, self._depth = rows, depth
        self.turned, self.is_mapped = product.turned[number], product.mapped[number]
        self._lines = depth if self.turned else lines
        self._dims = [axis.dims[number] for axis in product.c.axes]
        self._batch = tuple(a for a in product.batch if self._dims[a] is not None)
        if by_map and self.is_mapped:
            tiled, terms = product.axes_of(number), (product.reduction,)
            first = [tiled, terms] if self.turned else [terms, tiled]
            found = read_dimensions(tensor, self._dims, [*first, *((a,) for a in self._batch)])
            self._rank = len(found)
            self._map = encode_map(T, tensor, found, [LINE, self._lines])

    @property
    def size(self) -> Any:
        """The number of rows, or of columns: a number or an expression."""
        return multiply([self._extents[axis] for axis in self._product.axes_of(self.number)])

    @property
    def _terms(self) -> Any:
        return multiply([self._extents[self._product.reduction]])

    def allocate(self, pool: Any, stages: int) -> None:
        """Make room for tiles."""
        shape = (stages, self.rows * self._depth)
        self.stages = pool.alloc(shape, self._product.kind, align=PATTERN_BYTES)

    def load(self, stage: Any, row: Any, term: Any, batch: Mapping[int, Any], barrier: Any) -> None:
        """Have a tile copied that begins at a row and a term; a barrier counts its bytes."""
        T, lines = self._t, self._lines
        others = [batch[axis] for axis in self._batch]
        if self.turned:
            pieces = [[row + at, term] for at in range(0, self.rows, LINE)]
        else:
            pieces = [
                [term + line, row + at]
                for at in range(0, self.rows, lines)
                for line in range(0, self._depth, LINE)
            ]
        load = T.ptx[_LOAD.format(self._rank)]
        for number, place in enumerate(pieces):
            where = self.stages.ptr_to([stage, number * lines * LINE])
            T.evaluate(load(where, self._map, *place, *others, barrier))

    def copy(self, thread: Any, stage: Any, row: Any, term: Any, batch: Mapping[int, Any]) -> None:
        """Have a tile copied by threads, 16 bytes each time (PTX ISA, "cp.async")."""
        T, each = self._t, UNIT // ITEM
        along = (self.rows if self.turned else self._depth) // each
        total = self.rows * self._depth // each
        for turn in range(-(-total // self._threads)):
            number = thread + turn * self._threads
            dense, line = number % along * each, number // along
            r, t = (dense, line) if self.turned else (line, dense)
            place = (row + r, term + t)
            left = self.size - place[0] if self.turned else self._terms - place[1]
            other = place[1] < self._terms if self.turned else place[0] < self.size
            inside = T.And(left > 0, other)
            whole = T.max(T.min(T.Cast("int32", left), each), 0) * ITEM
            size = T.Cast("uint32", T.if_then_else(inside, whole, 0))
            near, far = (T.if_then_else(inside, T.Cast("int32", x), 0) for x in place)
            source = self._tensor.ptr_to(self._index(near, far, batch))
            where = self.stages.ptr_to([stage, self.offset(r, t)])
            copy = T.ptx["cp.async.cg.shared.global"](where, source, UNIT, size)
            if total % self._threads and turn == total // self._threads:
                with T.If(number < total), T.Then():
                    T.evaluate(copy)
            else:
                T.evaluate(copy)

    def fill(
        self, thread: Any, stage: Any, row: Any, term: Any, batch: Mapping[int, Any], own: Any
    ) -> None:
        """Copy a tile by threads element by element, neighbours next to each other: its rows begin
        anywhere.

        Args:
            own: registers of a thread, `count_held` of them.
        """
        T = self._t
        held = self.count_held()
        dense = self.rows if self.turned else self._depth
        with T.serial(self.rows * self._depth // (self._threads * held)) as turn:

            def place(i: Any) -> tuple[Any, Any]:
                number = (turn * held + i) * self._threads + thread
                along, across = number % dense, number // dense
                return (along, across) if self.turned else (across, along)

            with T.unroll(held) as i:
                r, t = place(i)
                T.buffer_store(own, self._read(row + r, term + t, batch), [i])
            with T.unroll(held) as i:
                T.buffer_store(self.stages, own[i], [stage, self.offset(*place(i))])

    def count_held(self) -> int:
        """Elements that a thread has under way; none where a map describes the operand."""
        if self.is_mapped:
            return 0
        return gcd(self.rows * self._depth // self._threads, HELD)

    def describe(self, row: int, term: int) -> int:
        """Units of 16 bytes from the start of a warpgroup's rows to what an instruction reads."""
        if self.turned:
            lines = row // LINE * self._depth + term
            return lines * LINE_BYTES // UNIT
        lines = term // LINE * self._lines + row
        return (lines * LINE_BYTES + term % LINE * ITEM) // UNIT

    def _read(self, row: Any, term: Any, batch: Mapping[int, Any]) -> Any:
        """An element; zero beyond the tensor."""
        T = self._t
        inside = T.And(row < self.size, term < self._terms)
        element = self._tensor[tuple(self._index(row, term, batch))]
        return T.if_then_else(inside, element, T.Cast(self._product.kind, 0.0))

    def _index(self, row: Any, term: Any, batch: Mapping[int, Any]) -> list[Any]:
        """The index of an element."""
        places = spread(self._extents, self._product.axes_of(self.number), row)
        places |= {self._product.reduction: term, **batch}
        index: list[Any] = [0 for _ in self._tensor.shape]
        for axis, dim in enumerate(self._dims):
            if dim is not None and axis in places:
                index[dim] = places[axis]
        return index

    def offset(self, row: Any, term: Any) -> Any:
        """Where an element of a tile lies, by the swizzle of its line."""
        along, line = (row, term) if self.turned else (term, row)
        if self.turned:
            first = along // LINE * self._lines + line
        else:
            first = (line // self._lines * (self._depth // LINE) + along // LINE) * self._lines
            first = first + line % self._lines
        each = UNIT // ITEM
        unit = along % LINE // each ^ first % (LINE_BYTES // UNIT)
        return first * LINE + unit * each + along % each


def spread(extents: Sequence[Any], axes: Sequence[int], place: Any) -> dict[int, Any]:
    """The place on each of several axes of a place on their fusion."""
    found = {}
    for axis in reversed(axes[1:]):
        size = multiply([extents[axis]])
        found[axis], place = place % size, place // size
    return found | dict.fromkeys(axes[:1], place)
