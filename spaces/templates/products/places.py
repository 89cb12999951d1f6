"""Sizes and places that a program counts with: numbers where they are known, else expressions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from spaces.ir import rewrite, tvm_compat
from spaces.templates.products.product import Product
from spaces.templates.products.roles import split_extents


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


def read_extents(product: Product, main: Any) -> list[Any]:
    """The extents of a contraction's axes, numbers or expressions: those of its block, of which
    groups are taken apart.

    Args:
        main: the block.
    """
    extents = [axis.dom.extent for axis in main.iter_vars]
    if product.plain:
        return extents
    # Rows and terms are taken apart by divisions, which are slow in 64 bits.
    known = [tvm_compat.as_int(extent) for extent in extents]
    narrow = [
        rewrite.cast("int32", extent) if number is None else number
        for extent, number in zip(extents, known, strict=True)
    ]
    return split_extents(product.c, narrow)


def place_axes(
    product: Product, extents: Sequence[Any], at: Mapping[int, Any], batch: Mapping[int, Any]
) -> list[Any]:
    """A place for each axis of the contraction; zero for those that are summed over.

    Args:
        at: the row, or column, of each operand; `batch` the place on each axis of the batch.
    """
    found = dict(batch)
    for operand, place in at.items():
        found |= place_row(product, operand, extents, place)
    return [found.get(axis, 0) for axis in range(len(extents))]


def place_row(product: Product, operand: int, extents: Sequence[Any], row: Any) -> dict[int, Any]:
    """The place on each axis of an operand's row, or column."""
    axes = product.axes_of(operand)
    if product.plain or not product.c.symbolic:
        return spread(extents, axes, row)
    # TVM does not see that rows of an open grid are not below zero: so it divides in a few steps.
    sizes = [rewrite.cast("uint32", extent) for extent in extents]
    places = spread(sizes, axes, rewrite.cast("uint32", row))
    return {axis: rewrite.cast("int32", place) for axis, place in places.items()}


def place_term(product: Product, extents: Sequence[Any], term: Any) -> dict[int, Any]:
    """The place on each axis that is summed over of a term, by divisions of 32 bits: TVM would
    else move those of an index into the 64 bits of what it counts elements in."""
    sizes = [rewrite.cast("uint32", extent) for extent in extents]
    places = spread(sizes, product.terms, rewrite.cast("uint32", term))
    return {axis: rewrite.cast("int32", place) for axis, place in places.items()}


def index_operand(
    product: Product,
    operand: int,
    extents: Sequence[Any],
    row: Any,
    term: Any,
    batch: Mapping[int, Any],
) -> list[Any]:
    """The index of an operand's element.

    Args:
        row: its row or column, or the places that `place_row` gives of that; `term` its term, or
            what `place_term` gives of that.
    """
    places = _place_terms(product, operand, extents, row, term, batch)
    return [index.at(places) for index in product.windows[operand]]


def is_in_tensor(
    product: Product,
    operand: int,
    extents: Sequence[Any],
    sizes: Sequence[Any],
    row: Any,
    term: Any,
    batch: Mapping[int, Any],
) -> Any:
    """Whether an operand's element, as for `index_operand`, is in its tensor; None where each is.

    Args:
        sizes: of the tensor.
    """
    places = _place_terms(product, operand, extents, row, term, batch)
    conditions = [
        condition
        for index, size in zip(product.windows[operand], sizes, strict=True)
        if index.guarded
        for condition in (index.at(places) >= 0, index.at(places) < size)
    ]
    return rewrite.conjunction(conditions) if conditions else None


def _place_terms(
    product: Product,
    operand: int,
    extents: Sequence[Any],
    row: Any,
    term: Any,
    batch: Mapping[int, Any],
) -> dict[int, Any]:
    """A place for each axis that an operand has."""
    places = row if isinstance(row, Mapping) else place_row(product, operand, extents, row)
    terms = term if isinstance(term, Mapping) else spread(extents, product.terms, term)
    return {**places, **terms, **batch}
