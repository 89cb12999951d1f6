"""Layouts of operands that are packed: panels, and the factors of a step next to one another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from spaces.ir.guard import Unsuitable
from spaces.templates.contraction.shape import Contraction

Layout = Callable[..., list[Any]]


def lay_out(c: Contraction, operand: int, axis: int | None, width: int) -> Layout | None:
    """The layout in which an operand is packed; None where it stays as it is.

    Args:
        axis: along which it is packed into panels of `width`; None where it is not.

    Raises:
        Unsuitable: the operand has no dimension of that axis.
    """
    grouped = None if c.groups is None else c.axes[c.groups.axis].dims[operand]
    if axis is not None:
        dim = c.axes[axis].dims[operand]
        if dim is None:
            raise Unsuitable("an operand cannot be packed along this axis")
        return panels(dim, width, reduction_order(c, operand), grouped, c.group)
    return None if c.has_groups(operand) or grouped is None else _groups_last(grouped, c.group)


def reduction_order(c: Contraction, operand: int) -> list[int]:
    """The reduction dimensions of an operand, in the order of the loops."""
    dims = [c.axes[i].dims[operand] for i in c.reduce_axes]
    return [d for d in dims if d is not None]


def panels(
    dim: int, width: int, order: Sequence[int], grouped: int | None = None, group: int = 1
) -> Layout:
    """Panels of `width` along one dimension: batch, panel, reduction axes, and place in panel, of a
    whole group where steps of the sum are groups along a dimension."""
    from tvm import tirx

    def place(*index: Any) -> list[Any]:
        others = [i for d, i in enumerate(index) if d != dim and d not in order]
        inner = [tirx.floordiv(index[d], group) if d == grouped else index[d] for d in order]
        within = tirx.floormod(index[dim], width)
        if grouped is not None:
            within = _in_group(within, index[grouped], group)
        return [
            *others,
            tirx.floordiv(index[dim], width),
            *(i for d, i in zip(order, inner, strict=True) if d != dim),
            within,
        ]

    return place


def _groups_last(grouped: int, group: int) -> Layout:
    """The groups along a dimension, those of the last dimension next to one another."""
    from tvm import tirx

    def place(*index: Any) -> list[Any]:
        kept = [tirx.floordiv(i, group) if d == grouped else i for d, i in enumerate(index)]
        return [*kept[:-1], _in_group(kept[-1], index[grouped], group)]

    return place


def _in_group(number: Any, index: Any, group: int) -> Any:
    """The place of an element in the group of some number. It is one dimension with the number: TVM
    allocates what is accessed of each dimension, and vectors are of many groups."""
    from tvm import tirx

    return number * group + tirx.floormod(index, group)
