"""Stages around a register tile, whatever it computes: padding, writing back, copies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from spaces.ir import tvm_compat
from spaces.templates.base import Knobs
from spaces.templates.contraction.match import Stages, producer_of
from spaces.templates.contraction.register_tile import LANES, VECTORS
from spaces.templates.contraction.shape import Contraction

_SYMBOLIC = 64
"""The value of a symbolic extent where only the size of a piece of work depends on it."""


def pad(schedule: Any, stages: Stages, padding: Sequence[int], *, grown: bool) -> Stages:
    """Pad extents to multiples, where every index is one axis alone.

    Args:
        padding: for each axis of the main block, the multiple that its extent is padded to.
        grown: whether the result is padded too, so that its padding has to be left out again.
    """
    schedule.pad_einsum(stages.main, list(padding))
    before = []
    for operand in range(2):
        stage = producer_of(schedule, stages.main, operand)
        if stage is not None and stages.before[operand] is not None:
            for earlier in schedule.get_producers(stage):
                schedule.compute_inline(earlier)
        before.append(stage)
    last = stages.last
    if grown:
        unpadded = schedule.get_consumers(stages.main)[0]
        if last is None:
            last = unpadded
        else:
            schedule.compute_inline(unpadded)
    return Stages(stages.main, (before[0], before[1]), last)


def write_back(schedule: Any, c: Contraction, knobs: Knobs, last: Any) -> None:
    """Vectorize the block that carries a finished tile through the epilogue into the result."""
    if not c.column_is_last:
        return
    loop = schedule.get_loops(last)[-1]
    extent = tvm_compat.as_int(schedule.get(loop).extent) or 1
    if extent % knobs[LANES] == 0 and extent <= knobs[VECTORS] * knobs[LANES]:
        vectors, lanes = schedule.split(loop, [None, knobs[LANES]])
        schedule.vectorize(lanes)
        schedule.unroll(vectors)


def in_parallel(schedule: Any, block: Any, chunk: int) -> None:
    """Fuse the outer loops of a copy into a parallel one, at most `chunk` elements in each step."""
    loops = schedule.get_loops(block)
    extents = [tvm_compat.as_int(schedule.get(loop).extent) or _SYMBOLIC for loop in loops]
    if len(loops) < 2 or prod(extents) <= chunk:
        return
    outside, inside = 1, prod(extents[1:])
    while outside < len(loops) - 1 and inside > chunk:
        inside //= extents[outside]
        outside += 1
    fused = schedule.fuse(*loops[:outside]) if outside > 1 else loops[0]
    if prod(extents[:outside]) > 1:
        schedule.parallel(fused)


def pack_ahead(schedule: Any, stage: Any, number: int, layout: Callable[..., list[Any]]) -> None:
    """Have a constant that a stage reads packed ahead in another layout, zeros where it is padded.

    Args:
        number: of the constant among what the stage reads.
    """
    zeros = zeros_like(schedule, stage, number)
    copy = schedule.cache_read(stage, number, "global")
    schedule.annotate(copy, tvm_compat.PREPROC, 1)
    schedule.transform_layout(stage, ("read", number), layout, pad_value=zeros)


def zeros_like(schedule: Any, stage: Any, number: int) -> Callable[..., Any]:
    """The padding of zeros of what a stage reads, in its type."""
    from tvm import tirx

    kind = str(schedule.get(stage).reads[number].source.dtype)
    return lambda *_: tirx.const(0, kind)
