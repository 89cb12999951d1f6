"""How an operand of a product for Hopper reaches shared memory: by a tensor map, or by threads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd
from typing import Any

from spaces.templates.tensor_cores import knob_model as k
from spaces.templates.tensor_cores.product import Product
from spaces.templates.tensor_cores.tensor_map import UNIT, encode_map, multiply, read_dimensions

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
    ) -> None:
        self._t, self._product, self._number, self._tensor = T, product, number, tensor
        self._extents = extents
        self.rows, self._depth = rows, depth
        self.turned, self.is_mapped = product.turned[number], product.mapped[number]
        self._lines = depth if self.turned else lines
        self._dims = [axis.dims[number] for axis in product.c.axes]
        self._batch = tuple(a for a in product.batch if self._dims[a] is not None)
        if self.is_mapped:
            tiled, terms = product.tiled(number), (product.reduction,)
            first = [tiled, terms] if self.turned else [terms, tiled]
            found = read_dimensions(tensor, self._dims, [*first, *((a,) for a in self._batch)])
            self._rank = len(found)
            self._map = encode_map(T, tensor, found, [k.LINE, self._lines])

    @property
    def size(self) -> Any:
        """The number of rows, or of columns: a number or an expression."""
        return multiply([self._extents[axis] for axis in self._product.tiled(self._number)])

    def allocate(self, pool: Any, stages: int) -> None:
        """Make room for tiles."""
        shape = (stages, self.rows * self._depth)
        self.stages = pool.alloc(shape, self._product.kind, align=k.PATTERN_BYTES)

    def load(self, stage: Any, row: Any, term: Any, batch: Mapping[int, Any], barrier: Any) -> None:
        """Have a tile copied that begins at a row and a term; a barrier counts its bytes."""
        T, lines = self._t, self._lines
        others = [batch[axis] for axis in self._batch]
        if self.turned:
            pieces = [[row + at, term] for at in range(0, self.rows, k.LINE)]
        else:
            pieces = [
                [term + line, row + at]
                for at in range(0, self.rows, lines)
                for line in range(0, self._depth, k.LINE)
            ]
        load = T.ptx[_LOAD.format(self._rank)]
        for number, place in enumerate(pieces):
            where = self.stages.ptr_to([stage, number * lines * k.LINE])
            T.evaluate(load(where, self._map, *place, *others, barrier))

    def fill(
        self, thread: Any, stage: Any, row: Any, term: Any, batch: Mapping[int, Any], own: Any
    ) -> None:
        """Copy a tile by the threads of a warpgroup, neighbours next to each other: its rows begin
        anywhere.

        Args:
            own: registers of a thread, `count_held` of them.
        """
        T = self._t
        held = self.count_held()
        dense = self.rows if self.turned else self._depth
        with T.serial(self.rows * self._depth // (k.WARPGROUP * held)) as turn:

            def place(i: Any) -> tuple[Any, Any]:
                number = (turn * held + i) * k.WARPGROUP + thread
                along, across = number % dense, number // dense
                return (along, across) if self.turned else (across, along)

            with T.unroll(held) as i:
                r, t = place(i)
                T.buffer_store(own, self._read(row + r, term + t, batch), [i])
            with T.unroll(held) as i:
                T.buffer_store(self.stages, own[i], [stage, self._offset(*place(i))])

    def count_held(self) -> int:
        """Elements that a thread has under way; none where a map describes the operand."""
        if self.is_mapped:
            return 0
        return gcd(self.rows * self._depth // k.WARPGROUP, k.HELD)

    def describe(self, part: int, term: int) -> int:
        """Units of 16 bytes from the start of the rows of `part` 0 to what an instruction reads."""
        if self.turned:
            lines = part * self._depth + term
            return lines * k.LINE_BYTES // UNIT
        lines = term // k.LINE * self._lines + part * k.ROWS
        return (lines * k.LINE_BYTES + term % k.LINE * k.ITEM) // UNIT

    def _read(self, row: Any, term: Any, batch: Mapping[int, Any]) -> Any:
        """An element; zero beyond the tensor."""
        T, product = self._t, self._product
        places = spread(self._extents, product.tiled(self._number), row)
        places |= {product.reduction: term, **batch}
        index: list[Any] = [0 for _ in self._tensor.shape]
        for axis, dim in enumerate(self._dims):
            if dim is not None and axis in places:
                index[dim] = places[axis]
        terms = multiply([self._extents[product.reduction]])
        inside = T.And(row < self.size, term < terms)
        return T.if_then_else(inside, self._tensor[tuple(index)], T.Cast(product.kind, 0.0))

    def _offset(self, row: Any, term: Any) -> Any:
        """Where an element of a tile lies, by the swizzle of its line."""
        along, line = (row, term) if self.turned else (term, row)
        if self.turned:
            first = along // k.LINE * self._lines + line
        else:
            first = (line // self._lines * (self._depth // k.LINE) + along // k.LINE) * self._lines
            first = first + line % self._lines
        each = UNIT // k.ITEM
        unit = along % k.LINE // each ^ first % (k.LINE_BYTES // UNIT)
        return first * k.LINE + unit * each + along % each


def spread(extents: Sequence[Any], axes: Sequence[int], place: Any) -> dict[int, Any]:
    """The place on each of several axes of a place on their fusion."""
    found = {}
    for axis in reversed(axes[1:]):
        size = multiply([extents[axis]])
        found[axis], place = place % size, place // size
    return found | dict.fromkeys(axes[:1], place)
