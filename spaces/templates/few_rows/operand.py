"""How a thread reads an operand: the one place that knows how its elements are encoded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spaces.templates.products.places import index_operand, multiply
from spaces.templates.products.product import Product


class Operand:
    """One operand, read from global memory into registers.

    Args:
        T: TVM's script.
        tensor: the operand in global memory.
        extents: of the contraction's axes.
        vector: elements of a load, which lie next to one another.
    """

    def __init__(
        self,
        T: Any,
        product: Product,
        number: int,
        tensor: Any,
        extents: Sequence[Any],
        vector: int,
    ) -> None:
        self._t, self._product, self._number, self._tensor = T, product, number, tensor
        self._extents, self._vector = extents, vector
        last = product.axes_of(number)[-1:] if product.turned[number] else product.terms
        self._dense = next((product.c.axes[axis].dims[number] for axis in last), None)

    @property
    def size(self) -> Any:
        """The number of rows, or of columns: a number or an expression."""
        return multiply([self._extents[axis] for axis in self._product.axes_of(self._number)])

    def allocate(self, loads: int) -> Any:
        """Make room in registers for so many loads."""
        shape = (loads * self._vector,)
        return self._t.alloc_buffer(shape, str(self._tensor.dtype), scope="local")

    def load(self, own: Any, load: Any, row: Any, term: Any, batch: Mapping[int, Any]) -> None:
        """Load what begins at a row, or column, and a term.

        Args:
            own: registers from `allocate`; `load` says which of its loads this is.
        """
        T, vector = self._t, self._vector
        index = index_operand(self._product, self._number, self._extents, row, term, batch)
        if vector == 1:
            T.buffer_store(own, self._tensor[tuple(index)], [load])
        else:
            assert self._dense is not None
            index[self._dense] = T.ramp(index[self._dense], 1, vector)
            T.buffer_store(own, self._tensor[tuple(index)], [T.ramp(load * vector, 1, vector)])

    def clear(self, own: Any, load: Any) -> None:
        """Fill a load with zeros."""
        T = self._t
        with T.unroll(self._vector) as i:
            zero = T.Cast(str(self._tensor.dtype), T.float32(0))
            T.buffer_store(own, zero, [load * self._vector + i])

    def widen(self, own: Any, load: Any, place: Any) -> Any:
        """An element of a load in float32."""
        value = own[load * self._vector + place]
        return value if str(self._tensor.dtype) == "float32" else self._t.Cast("float32", value)
