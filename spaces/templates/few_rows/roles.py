"""Which operand of a product has few rows, and how both can be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from spaces.templates.products.product import Product
from tuner.task import Instance

MOST_ROWS = 32
"""That are few: beyond, tensor cores read the large operand as quickly."""


@dataclass(frozen=True, slots=True)
class Roles:
    """The operands of a product with few rows. The large one is called weights; its rows, or
    columns, are the columns of the result.

    Attributes:
        few: the operand with few rows; `weights` the other one.
        turned: whether columns, and not terms, lie next to one another in the weights.
        width: elements of the widest load of weights.
        few_width: elements of the few rows' widest load along the terms.
        item: bytes of an element of the weights; `few_item` of the few rows.
        packed: whether weights are.
        most_rows: the number of rows; None where it is known only when the program runs.
    """

    few: int
    weights: int
    turned: bool
    width: int
    few_width: int
    item: float
    few_item: float
    packed: bool
    most_rows: int | None


def find_roles(product: Product, extents: Mapping[Instance, Sequence[int]]) -> Roles | None:
    """The roles of a product's operands; None where neither has few rows for some shape, or rows
    are windows.

    Args:
        extents: of the axes for each shape; of a product without symbolic dimensions for none.
    """
    if not product.plain:
        return None
    known = [*extents.values()] or [[axis.extent for axis in product.c.axes]]
    sizes = [_sizes(product, operand, known) for operand in range(2)]
    able = [operand for operand in range(2) if min(sizes[operand]) <= MOST_ROWS]
    if not able:
        return None
    # Of two that may have few rows it is the one that never has many.
    few = min(able, key=lambda operand: (max(sizes[operand]), operand != product.c.rows_of))
    weights = 1 - few
    is_open = any(product.c.axes[axis].symbolic for axis in product.axes_of(few))
    items = [product.item_bytes(operand) for operand in range(2)]
    return Roles(
        few=few,
        weights=weights,
        turned=product.turned[weights],
        width=product.widest(weights),
        few_width=1 if product.turned[few] else product.widest(few),
        item=items[weights],
        few_item=items[few],
        packed=product.packed[weights] is not None,
        most_rows=None if is_open else max(sizes[few]),
    )


def _sizes(product: Product, operand: int, known: Sequence[Sequence[int]]) -> list[int]:
    """Rows, or columns, of an operand for each shape."""
    return [prod(extents[axis] for axis in product.axes_of(operand)) for extents in known]
