"""The choice of the axes that give the columns and the rows of a register tile."""

from __future__ import annotations

from collections.abc import Sequence

from spaces.passes.dots.instructions import Dot
from spaces.templates.contraction.shape import Axis, Groups, Operand

Roles = tuple[int, int, tuple[int, ...], tuple[int, ...]]


def roles(axes: Sequence[Axis], operands: tuple[Operand, Operand]) -> list[Roles]:
    """All sensible choices, best first: column axis, its operand, row axes, outer axes.

    Vectors lie along the column axis. An operand must be contiguous along it, or have it as an
    index of its own: then that operand is read a vector at a time, or packed so that it can be.
    The other operand either does not depend on it, and gives one element for a whole vector, or
    is contiguous along it too, as in a depthwise convolution with channels last.
    """
    spatial = [i for i, a in enumerate(axes) if not a.reduce and (a.extent > 1 or a.symbolic)]
    spatial.sort(key=lambda i: axes[i].out_dim or 0)
    found: list[Roles] = []
    for column in reversed(spatial):
        for columns_of in (1, 0):
            if not _fits(axes[column], columns_of):
                continue
            others = [i for i in spatial if i != column]
            rows = _rows(axes, others, columns_of, operands)
            outer = tuple(i for i in others if i not in rows)
            found.append((column, columns_of, rows, outer))
            break
    return found


def _fits(axis: Axis, columns_of: int) -> bool:
    if axis.used[1 - columns_of]:
        return axis.steps == (1, 1)
    return axis.steps[columns_of] in (1, 2) or axis.dims[columns_of] is not None


def _rows(
    axes: Sequence[Axis],
    spatial: Sequence[int],
    columns_of: int,
    operands: tuple[Operand, Operand],
) -> tuple[int, ...]:
    """Axes along which a column's elements are used again; fused where memory allows it."""
    rows_of = 1 - columns_of
    candidates = [i for i in spatial if axes[i].used[rows_of] and not axes[i].used[columns_of]]
    if not candidates:  # along these, overlapping windows are read again, and so are weights
        slides = [i for i in spatial if not axes[i].used[rows_of]]
        return tuple(slides[-1:])
    rows = tuple(candidates[-1:])
    # Rows that follow one another in memory, in the operand and the result, are one long row.
    while len(rows) < len(candidates):
        before = candidates[-len(rows) - 1]
        if not _adjacent(axes[before], axes[rows[0]], operands[rows_of], rows_of):
            break
        rows = (before, *rows)
    return rows


def _adjacent(before: Axis, after: Axis, operand: Operand, number: int) -> bool:
    dim = before.dims[number]
    return (
        dim is not None
        and not (before.symbolic or after.symbolic)
        and after.dims[number] == dim + 1
        and before.out_dim is not None
        and after.out_dim == before.out_dim + 1
        and operand.shape[dim + 1] == after.extent
    )


def choose_groups(
    dot: Dot | None, axes: Sequence[Axis], rows_of: int, *, plain: bool
) -> Groups | None:
    """The groups of products that an instruction adds up; None where there are none.

    They follow one another along a reduction axis that is an index of its own in both operands. One
    whose extent groups divide needs no padding; one along which the row operand is contiguous, no
    copy of that operand.

    Args:
        plain: whether other extents can be padded.
    """
    if dot is None:
        return None

    def is_odd(axis: Axis) -> bool:
        return axis.symbolic or bool(axis.extent % dot.terms)

    fit = [
        number
        for number, axis in enumerate(axes)
        if axis.reduce and not axis.single and None not in axis.dims
        if plain or not is_odd(axis)
    ]
    order = [(is_odd(axes[n]), axes[n].steps[rows_of] != 1, -n) for n in fit]
    return Groups(-min(order)[-1], dot.terms, dot.alike) if order else None
