"""An operand of a product in the device's memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spaces.templates.products.places import index_operand, multiply
from spaces.templates.products.product import Product


@dataclass(frozen=True, slots=True)
class Source:
    """An operand in global memory, as rows of terms.

    Attributes:
        turned: whether rows are what lies next to one another, in place of terms.
        in_units: whether what lies next to one another begins at multiples of 16 bytes.
        size: the number of rows, a number or an expression; `terms` that of terms.
        index: gives the index of an element, for its row, its term and its place in the batch.
    """

    tensor: Any
    turned: bool
    in_units: bool
    size: Any
    terms: Any
    index: Callable[[Any, Any, Mapping[int, Any]], list[Any]]

    @property
    def kind(self) -> str:
        """The type of its elements."""
        return str(self.tensor.dtype)


def read_source(product: Product, number: int, tensor: Any, extents: Sequence[Any]) -> Source:
    """An operand of a product.

    Args:
        tensor: the operand in global memory.
        extents: of the contraction's axes.
    """
    own = product.axes_of(number)

    def find_index(row: Any, term: Any, batch: Mapping[int, Any]) -> list[Any]:
        return index_operand(product, number, extents, row, term, batch)

    return Source(
        tensor,
        product.turned[number],
        product.mapped[number],
        multiply([extents[axis] for axis in own]),
        multiply([extents[product.reduction]]),
        find_index,
    )
