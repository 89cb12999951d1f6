"""An operand of a product in the device's memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from spaces.ir import rewrite, tvm_compat
from spaces.templates.products.epilogue import Epilogue
from spaces.templates.products.packed import Packed
from spaces.templates.products.places import (
    index_operand,
    is_in_tensor,
    multiply,
    place_row,
    place_term,
)
from spaces.templates.products.product import Product
from spaces.templates.thread_program import keep

_MOST_NARROW = 1 << 30
"""Elements of a tensor whose places are counted in 32 bits, with those of stages behind it."""


@dataclass(frozen=True, slots=True)
class Source:
    """An operand in global memory, as rows of terms.

    Attributes:
        turned: whether rows are what lies next to one another, in place of terms.
        in_units: whether what lies next to one another begins at multiples of 16 bytes.
        size: the number of rows, a number or an expression; `terms` that of terms.
        index: gives the index of an element, for its row, its term and its place in the batch.
        take_apart: gives what `index` and `inside` take for a row, so that it is computed once,
            where rows are windows; `take_term_apart` for a term, where it has several axes.
        inside: gives for the same whether an element is in the tensor, where rows are windows that
            reach beyond it; there elements are zeros, and an index is of nothing.
        dense: the dimension along which elements lie next to one another; behind it are some of one
            place each, if any.
        packed: what it is made of, by `program`, if it is packed; then no memory has the tensor.
    """

    tensor: Any
    turned: bool
    in_units: bool
    size: Any
    terms: Any
    index: Callable[[Any, Any, Mapping[int, Any]], list[Any]]
    take_apart: Callable[[Any], Mapping[int, Any]] | None = None
    take_term_apart: Callable[[Any], Mapping[int, Any]] | None = None
    inside: Callable[[Any, Any, Mapping[int, Any]], Any] | None = None
    dense: int = -1
    packed: Packed | None = None
    program: Epilogue | None = None

    @property
    def kind(self) -> str:
        """The type of its elements."""
        return str(self.tensor.dtype)

    def read(self, row: Any, term: Any, batch: Mapping[int, Any]) -> Any:
        """An element."""
        at = self.index(row, term, batch)
        if self.packed is None or self.program is None:
            return self.tensor[tuple(at)]
        places = zip(self.packed.variables, at, strict=True)
        return self.program.fill(self.packed.value, [rewrite.bind(*pair) for pair in places])

    def point(self, T: Any, row: Any, term: Any, batch: Mapping[int, Any]) -> Any:
        """The address of an element, or of none that is a stage behind the tensor at most.

        Of a tensor that is small enough its place is counted in 32 bits: sizes of graphs have 64,
        and so has then what a thread keeps of each of its addresses.
        """
        at = self.index(row, term, batch)
        sizes = [tvm_compat.as_int(size) for size in self.tensor.shape]
        known = [size for size in sizes if size is not None]
        if len(known) < len(sizes) or prod(known) > _MOST_NARROW:
            return self.tensor.ptr_to(at)
        place: Any = 0
        for index, size in zip(at, known, strict=True):
            place = place * size + rewrite.cast("int32", index)
        return self.tensor.ptr_to([*[0] * (len(known) - 1), *keep(T, [place])])


def keep_apart(T: Any, apart: Sequence[Mapping[int, Any]]) -> list[Mapping[int, Any]]:
    """Places of rows or of terms, computed once."""
    known = iter(keep(T, [place for at in apart for place in at.values()]))
    return [{axis: next(known) for axis in at} for at in apart]


def read_source(product: Product, number: int, program: Epilogue, extents: Sequence[Any]) -> Source:
    """An operand of a product.

    Args:
        program: whose tensors the operands are.
        extents: of the contraction's axes.
    """
    own, (tensor, packed) = product.axes_of(number), program.operands[number]
    axis = product.dense_axis(number)
    dense = None if axis is None else product.c.axes[axis].dims[number]

    def find_index(row: Any, term: Any, batch: Mapping[int, Any]) -> list[Any]:
        return index_operand(product, number, extents, row, term, batch)

    def take_apart(row: Any) -> Mapping[int, Any]:
        return place_row(product, number, extents, row)

    def take_term_apart(term: Any) -> Mapping[int, Any]:
        return place_term(product, extents, term)

    def find_inside(row: Any, term: Any, batch: Mapping[int, Any]) -> Any:
        sizes = [rewrite.cast("int32", size) for size in tensor.shape]
        return is_in_tensor(product, number, extents, sizes, row, term, batch)

    return Source(
        tensor,
        product.turned[number],
        product.in_units[number],
        multiply([extents[axis] for axis in own]),
        multiply([extents[axis] for axis in product.terms]),
        find_index,
        take_apart if product.slides(number) else None,
        take_term_apart if len(product.terms) > 1 else None,
        find_inside if any(index.guarded for index in product.windows[number]) else None,
        -1 if dense is None else dense,
        packed,
        program,
    )
