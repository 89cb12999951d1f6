"""Loop nests of memory-bound stages: the loops that are rows, and those walked in vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from spaces.templates.memory.stages import Stage

_LONG = 32
"""Steps of a lane that are worth being walked on their own."""


@dataclass(frozen=True, slots=True)
class Nest:
    """One loop nest: a stage, and those before it that are computed row by row with it.

    Attributes:
        stages: numbers of the stages in it; the last gives the loops.
        rows: axes of the last stage whose steps are independent of each other, outermost first.
            Axes of one step are among them.
        lane: neighbouring axes, as independent as rows, walked as one loop in vectors; empty where
            vectors lie along a reduction axis.
        across: the axis, independent too, along which memory is read where that is not the lane.
    """

    stages: tuple[int, ...]
    rows: tuple[int, ...]
    lane: tuple[int, ...]
    across: int | None = None


def nests_of(stages: Sequence[Stage]) -> tuple[Nest, ...]:
    """One nest for all stages where they share rows, else one nest for each."""
    joined = _join(stages) if len(stages) > 1 else None
    return (joined,) if joined else tuple(nest_of(s, number) for number, s in enumerate(stages))


def nest_of(stage: Stage, number: int = 0) -> Nest:
    """The nest of a stage on its own."""
    spatial = [n for n, axis in enumerate(stage.axes) if not axis.reduced]
    along = stage.contiguous()
    lane = lane_of(stage, along) if along is not None and along in spatial else ()
    across = None if stage.reduces else _across(stage, lane)
    rows = tuple(n for n in spatial if n not in lane and n != across)
    return Nest((number,), rows, lane, across)


def extent(stage: Stage, axes: Sequence[int]) -> int:
    """Steps of several axes together."""
    return math.prod(stage.axes[n].extent for n in axes)


def lane_of(stage: Stage, along: int) -> tuple[int, ...]:
    """An axis and the axes outside it that can be fused with it, outermost first."""
    lane = [along]
    for outer in range(along - 1, -1, -1):
        if stage.axes[outer].single:
            continue
        if not stage.follows(outer, lane[0]) or _is_long_enough(stage, lane, outer):
            break
        # An axis that can be fused with the lane's outermost can be fused with all of it.
        lane.insert(0, outer)
    return tuple(lane)


def _is_long_enough(stage: Stage, lane: Sequence[int], outer: int) -> bool:
    """Whether a lane of known steps is better without a symbolic axis, which has ragged ends."""
    axes = [stage.axes[n] for n in lane]
    return (
        stage.axes[outer].symbolic
        and not any(a.symbolic for a in axes)
        and (extent(stage, lane) >= _LONG)
    )


def _across(stage: Stage, lane: tuple[int, ...]) -> int | None:
    """The axis along which the largest tensor that is not read along the lane is contiguous."""
    if not lane:
        return None
    for read in sorted(stage.reads, key=lambda access: -access.elements):
        if read.steps[lane[-1]] in (0, 1):
            continue
        for number, axis in enumerate(stage.axes):
            if read.steps[number] == 1 and not axis.single and number not in lane:
                return number
    return None


def _join(stages: Sequence[Stage]) -> Nest | None:
    """One nest of all stages, in the rows of the last; None where they share no rows with it."""
    last = len(stages) - 1
    if any(stage.output for stage in stages[:-1]):
        return None
    alike = align_axes(stages)
    axes = stages[last].axes
    shared = []
    is_symbolic = any(axis.symbolic for stage in stages for axis in stage.axes)
    for number, axis in enumerate(axes):
        if axis.reduced:
            continue
        needed = [n for n in range(last) if _must_join(stages[n]) or is_symbolic]
        if axis.single or all(number in alike[n].values() for n in needed):
            shared.append(number)
    if all(axes[n].single for n in shared):
        return None
    heaviest = max(range(last + 1), key=lambda n: (stages[n].reduces, stages[n].points))
    along = stages[heaviest].contiguous()
    lane = alike[heaviest].get(along) if along is not None else None
    kept = (lane,) if lane is not None and lane in shared else ()
    rows = tuple(n for n in shared if n not in kept)
    return Nest(tuple(range(last + 1)), rows, kept)


def _must_join(stage: Stage) -> bool:
    """Whether a stage is worth joining to a nest only if it has the rows of the others."""
    return stage.reduces or not stage.guarded


def parts_of(nest: Nest, stages: Sequence[Stage]) -> list[Nest]:
    """The nest of each stage of a joined nest, with the same rows in the same order."""
    alike = align_axes(stages)
    found = []
    for number in nest.stages:
        mine = {theirs: axis for axis, theirs in alike[number].items()}
        rows = tuple(mine[n] for n in nest.rows if n in mine)
        found.append(Nest((number,), rows, tuple(mine[n] for n in nest.lane)))
    return found


def align_axes(stages: Sequence[Stage]) -> list[dict[int, int]]:
    """For each stage, its axes that move in step with an axis of the last stage, and that axis."""
    last = len(stages) - 1
    alike: list[dict[int, int]] = [{} for _ in stages]
    alike[last] = {n: n for n, axis in enumerate(stages[last].axes) if not axis.reduced}
    for number in range(last - 1, -1, -1):
        stage = stages[number]
        seen: dict[int, set[int | None]] = {}
        for write in stage.writes:
            for later in range(number + 1, last + 1):
                for read in stages[later].reads:
                    if read.buffer != write.buffer:
                        continue
                    for mine, theirs in zip(write.dims, read.dims, strict=True):
                        if mine is None or mine < 0:
                            continue
                        found = None if theirs is None else alike[later].get(theirs)
                        seen.setdefault(mine, set()).add(found)
        alike[number] = {
            mine: one
            for mine, found in seen.items()
            if len(found) == 1 and (one := next(iter(found))) is not None
        }
    return alike
