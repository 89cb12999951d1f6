"""Heads that look at the same keys and values: what a block reads once, it has for all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from spaces.ir import rewrite, tvm_compat
from spaces.lowering.attention.description import Attention, Axis


@dataclass(frozen=True, slots=True)
class Group:
    """Attentions that follow one another on an axis of the batch.

    Attributes:
        axis: number of the axis; `heads` how many have the same keys and values.
    """

    axis: int
    heads: int


ALONE = Group(0, 1)


def find_group(attention: Attention) -> Group:
    """The largest group that an attention has; `ALONE` where each has keys of its own."""
    found = [
        Group(number, heads)
        for number, axis in enumerate(attention.batch)
        for heads in _divisors(attention, axis)
        if _have_same(attention, axis, heads)
    ]
    return max(found, key=lambda group: group.heads, default=ALONE)


def _divisors(attention: Attention, axis: Axis) -> list[int]:
    """What an axis may be divided by: all of it, or what keys' indices divide it by."""
    from tvm import tirx
    from tvm_ffi import structural_walk

    known = [tvm_compat.as_int(axis.extent)]

    def look(node: Any) -> None:
        known.append(tvm_compat.as_int(node.b))

    for index in (*attention.key.indices, *attention.value.indices):
        if not isinstance(index, int):
            structural_walk(index, [(tirx.FloorDiv, look)])
    return [number for number in known if number is not None and number > 1]


def _have_same(attention: Attention, axis: Axis, heads: int) -> bool:
    """Whether so many in a row on an axis read the same keys and values."""
    from tvm import ir, sym, tirx

    analyzer, kind = sym.Analyzer(), axis.var.ty.dtype
    count = rewrite.constant(heads, axis.var)
    if tvm_compat.as_int(analyzer.simplify(axis.extent % count)) != 0:
        return False
    group, head = tirx.Var("group", kind), tirx.Var("head", kind)
    analyzer.bind(group, ir.Range.from_min_extent(rewrite.constant(0, group), axis.extent // count))
    analyzer.bind(head, ir.Range.from_min_extent(rewrite.constant(0, head), count))
    indices = [
        analyzer.simplify(rewrite.substitute(index, [(axis.var, group * count + head)]))
        for index in (*attention.key.indices, *attention.value.indices)
        if not isinstance(index, int)
    ]
    return not any(rewrite.uses(index, [head]) for index in indices)
