"""Layouts of operands that are packed: panels, and the factors of a step next to one another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from spaces.ir.guard import Unsuitable
from spaces.templates.contraction.shape import PAIR, Contraction

Layout = Callable[..., list[Any]]


def lay_out(c: Contraction, operand: int, axis: int | None, width: int) -> Layout | None:
    """The layout in which an operand is packed; None where it stays as it is.

    Args:
        axis: along which it is packed into panels of `width`; None where it is not.

    Raises:
        Unsuitable: the operand has no dimension of that axis.
    """
    pair = None if c.pair is None else c.axes[c.pair].dims[operand]
    if axis is not None:
        dim = c.axes[axis].dims[operand]
        if dim is None:
            raise Unsuitable("an operand cannot be packed along this axis")
        return panels(dim, width, reduction_order(c, operand), pair)
    return None if c.has_pairs(operand) or pair is None else _pairs_last(pair)


def reduction_order(c: Contraction, operand: int) -> list[int]:
    """The reduction dimensions of an operand, in the order of the loops."""
    dims = [c.axes[i].dims[operand] for i in c.reduce_axes]
    return [d for d in dims if d is not None]


def panels(dim: int, width: int, order: Sequence[int], pair: int | None = None) -> Layout:
    """Panels of `width` along one dimension: batch, panel, reduction axes, place in panel, and
    place in a pair where steps of the sum are pairs along a dimension."""
    from tvm import tirx

    def place(*index: Any) -> list[Any]:
        others = [i for d, i in enumerate(index) if d != dim and d not in order]
        inner = [tirx.floordiv(index[d], PAIR) if d == pair else index[d] for d in order]
        return [
            *others,
            tirx.floordiv(index[dim], width),
            *(i for d, i in zip(order, inner, strict=True) if d != dim),
            tirx.floormod(index[dim], width),
            *([] if pair is None else [tirx.floormod(index[pair], PAIR)]),
        ]

    return place


def _pairs_last(pair: int) -> Layout:
    """Every other place of a dimension, and last the place in a pair."""
    from tvm import tirx

    def place(*index: Any) -> list[Any]:
        kept = [tirx.floordiv(i, PAIR) if d == pair else i for d, i in enumerate(index)]
        return [*kept, tirx.floormod(index[pair], PAIR)]

    return place
