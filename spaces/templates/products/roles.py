"""The roles of a contraction's axes in a product: rows, columns, products apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from spaces.templates.contraction.match import Match, describe, read_axes, read_operands, view
from spaces.templates.contraction.roles import Roles
from spaces.templates.contraction.shape import Axis, Contraction
from spaces.templates.products.windows import LookUp, Reading, Window


def find_ways(match: Match, reading: Reading, values: Mapping[str, int]) -> list[Contraction]:
    """The ways to see a contraction as a product, best first.

    Where each index is one axis, rows are what follows in memory. Of windows they are all axes of
    the result that one operand alone has: threads find the places on each of them.

    Args:
        values: sizes of symbolic dimensions, the shape for which it is estimated.
    """
    ways = describe(match, values)
    if all(way.plain for way in ways) and ways and reading.groups is None:
        return [way for way in ways if way.broadcasts]
    axes = read_axes(match, values)
    if axes is None:
        return []
    axes = (*_split_axes(axes, reading.groups), *_look_up_axes(reading.look_up))
    roles = _find_roles(axes, reading.windows)
    if roles is None:
        return []
    return [view(match, axes, read_operands(match, values), roles, values)]


def split_extents(c: Contraction, extents: Sequence[Any]) -> list[Any]:
    """Extents of a contraction's axes, for those of the axes of its block: the axes of groups are
    behind these, and their places are on another axis."""
    found = [*extents]
    for group in c.axes[len(extents) :]:
        if group.looked_up:
            found.append(group.extent)
            continue
        whole = next(i for i, axis in enumerate(c.axes) if axis.out_dim == group.out_dim)
        found[whole] = group.out_step
        found.append(extents[whole] // group.out_step)
    return found


def join_extents(c: Contraction) -> list[Any]:
    """The extents of the axes of a contraction's block."""
    found = [axis.extent for axis in c.axes if axis.out_step == 1 and not axis.looked_up]
    for group in (axis for axis in c.axes if axis.out_step != 1):
        whole = next(i for i, axis in enumerate(c.axes) if axis.out_dim == group.out_dim)
        found[whole] = found[whole] * group.extent
    return found


def _split_axes(axes: Sequence[Axis], groups: tuple[int, int] | None) -> tuple[Axis, ...]:
    """Axes, of which that with groups is the place in one, and one more the group's number."""
    if groups is None:
        return (*axes,)
    whole, size = groups
    number = replace(axes[whole], extent=axes[whole].extent // size, out_step=size)
    inside = replace(axes[whole], extent=size)
    return (*axes[:whole], inside, *axes[whole + 1 :], number)


def _look_up_axes(look_up: LookUp | None) -> tuple[Axis, ...]:
    """The axis of an index that is looked up, if there is one."""
    if look_up is None:
        return ()
    dims = (look_up.dim, None) if look_up.operand == 0 else (None, look_up.dim)
    used = (look_up.operand == 0, look_up.operand == 1)
    return (Axis(look_up.size, False, None, dims, used, looked_up=True),)


def _find_roles(axes: Sequence[Axis], windows: tuple[Window, Window]) -> Roles | None:
    """Column axis, its operand, row axes and outer axes, as `contraction.roles` has them; None
    where neither operand has one axis of its own."""
    spatial = [
        i for i, axis in enumerate(axes) if not (axis.reduce or axis.single or axis.looked_up)
    ]
    spatial.sort(key=lambda i: (axes[i].out_dim or 0, -axes[i].out_step))
    used = [{axis for index in window for axis, _ in index.steps} for window in windows]
    own = [[i for i in spatial if i in used[o] and i not in used[1 - o]] for o in range(2)]
    for columns_of in (1, 0):
        if len(own[columns_of]) == 1:
            rows = tuple(own[1 - columns_of])
            outer = tuple(i for i in spatial if i not in (*own[0], *own[1]))
            return own[columns_of][0], columns_of, rows, outer
    return None
