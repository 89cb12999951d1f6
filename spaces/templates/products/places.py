"""Sizes and places that a program counts with: numbers where they are known, else expressions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from spaces.ir import tvm_compat
from spaces.templates.products.product import Product


def multiply(sizes: Sequence[Any]) -> Any:
    """The product of sizes, a number where all are known."""
    known = [tvm_compat.as_int(size) for size in sizes]
    found: Any = prod(size for size in known if size is not None)
    for size, number in zip(sizes, known, strict=True):
        if number is None:
            found = size * found
    return found


def count_tiles(size: Any, tile: int) -> Any:
    """The number of tiles that cover a size."""
    return (size + tile - 1) // tile


def spread(extents: Sequence[Any], axes: Sequence[int], place: Any) -> dict[int, Any]:
    """The place on each of several axes of a place on their fusion."""
    found = {}
    for axis in reversed(axes[1:]):
        size = multiply([extents[axis]])
        found[axis], place = place % size, place // size
    return found | dict.fromkeys(axes[:1], place)


def place_axes(
    product: Product, extents: Sequence[Any], at: Mapping[int, Any], batch: Mapping[int, Any]
) -> list[Any]:
    """A place for each axis of the contraction; zero for those that are summed over.

    Args:
        at: the row, or column, of each operand; `batch` the place on each axis of the batch.
    """
    found = dict(batch)
    for operand, place in at.items():
        found |= spread(extents, product.axes_of(operand), place)
    return [found.get(axis, 0) for axis in range(len(extents))]


def index_operand(
    product: Product,
    operand: int,
    extents: Sequence[Any],
    row: Any,
    term: Any,
    batch: Mapping[int, Any],
) -> list[Any]:
    """The index of an operand's element, by its row or column and its term."""
    places = spread(extents, product.axes_of(operand), row)
    places |= {product.reduction: term, **batch}
    index: list[Any] = [0 for _ in product.c.operands[operand].shape]
    for axis, known in enumerate(product.c.axes):
        dim = known.dims[operand]
        if dim is not None and axis in places:
            index[dim] = places[axis]
    return index
