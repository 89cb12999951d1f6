"""Tensors of many steps: taken apart, and put together.

What follows one step is done once for each, so that all of these share their programs. Many pieces
are made of fewer larger ones: a program of hundreds of operands is slow to build and to run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

MOST_STEPS = 256
"""That a loop is unrolled for."""
_TOGETHER = 16
"""Pieces that one program takes apart or puts together."""


def pieces(builder: Any, tensor: Any, axis: int, number: int) -> list[Any]:
    """A tensor cut along an axis into so many pieces of one step, which keep the axis."""
    from tvm import relax

    if number == 1:
        return [tensor]
    stride = 1 if number <= _TOGETHER else _TOGETHER
    ends = list(range(stride, number, stride))
    cut = builder.emit(relax.op.split(tensor, ends, axis))
    parts = [builder.emit(relax.TupleGetItem(cut, place)) for place in range(len(ends) + 1)]
    if stride == 1:
        return parts
    lengths = [end - begin for begin, end in zip([0, *ends], [*ends, number], strict=True)]
    cuts = zip(parts, lengths, strict=True)
    return [one for part, length in cuts for one in pieces(builder, part, axis, length)]


def join_pieces(builder: Any, parts: Sequence[Any], axis: int) -> Any:
    """Pieces put together along an axis."""
    from tvm import relax

    found = list(parts)
    while len(found) > 1:
        groups = [found[n : n + _TOGETHER] for n in range(0, len(found), _TOGETHER)]
        found = [
            builder.emit(relax.op.concat(group, axis)) if len(group) > 1 else group[0]
            for group in groups
        ]
    return found[0]
