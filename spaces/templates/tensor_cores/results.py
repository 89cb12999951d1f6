"""How the sums of a product reach the result: each thread stores its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spaces.templates.products.epilogue import Epilogue
from spaces.templates.products.places import multiply, place_axes
from spaces.templates.products.product import Product

Place = tuple[Any, Any]
"""A row of A and a row of B, which is a column of an instruction's result."""


class Results:
    """Stores sums as instructions leave them: a thread has row `lane / 4` and that plus 8 of 16, of
    each eight columns a pair (PTX ISA, "Matrix Fragments for mma.m16n8k16", "Register Fragments"
    of `wgmma`).

    Args:
        T: TVM's script.
        sides: the operand that is A, and the one that is B.
        extents: of the axes of the contraction.
    """

    def __init__(
        self,
        T: Any,
        product: Product,
        sides: tuple[int, int],
        epilogue: Epilogue,
        extents: Sequence[Any],
    ) -> None:
        self._t, self._product, self._sides = T, product, sides
        self._epilogue, self._extents = epilogue, extents
        self._own: Any = None

    def store(
        self,
        sums: Any,
        first: int,
        columns: int,
        inside: Place,
        at: Place,
        batch: Mapping[int, Any],
        room: Sequence[Any] = (),
    ) -> None:
        """Store what a thread has of 16 rows, or of 64 by a warpgroup.

        Args:
            first: number of its first sum.
            inside: its first place in the tile; `at` that in the whole product.
            room: what else a tile is found by, see `spaces.templates.tensor_cores.bulk_results`.
        """
        T = self._t
        if self._product.c.symbolic and not self._product.plain:
            self._own = T.alloc_buffer((len(self._extents),), "int32", scope="local")
        with T.unroll(columns // 8) as eight, T.unroll(2) as lower, T.unroll(2) as right:
            total = sums[first + eight * 4 + lower * 2 + right]
            near, far = (
                (row + lower * 8, column + eight * 8 + right) for row, column in (inside, at)
            )
            with T.If(self._is_inside(far)), T.Then():
                self._put(total, near, far, batch, room)

    def _put(
        self, total: Any, inside: Place, at: Place, batch: Mapping[int, Any], room: Sequence[Any]
    ) -> None:
        """Store one element."""
        places = self._places(at, batch)
        value = self._epilogue.value(total, places)
        self._t.buffer_store(self._epilogue.result, value, self._epilogue.index(places))

    def _is_inside(self, at: Place) -> Any:
        T = self._t
        sizes = [
            multiply([self._extents[a] for a in self._product.axes_of(o)]) for o in self._sides
        ]
        return T.And(*(place < size for place, size in zip(at, sizes, strict=True)))

    def _places(self, at: Place, batch: Mapping[int, Any]) -> list[Any]:
        """A value for each axis of the contraction."""
        sides = dict(zip(self._sides, at, strict=True))
        places = place_axes(self._product, self._extents, sides, batch)
        if self._own is None:
            return places
        # Each is read for the bias, the residual and the result, and takes divisions to find.
        for axis, place in enumerate(places):
            self._t.buffer_store(self._own, self._t.Cast("int32", place), [axis])
        return [self._own[axis] for axis in range(len(places))]
