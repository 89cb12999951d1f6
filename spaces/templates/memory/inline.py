"""The inlining of a memory-bound program's stages into their consumers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spaces.ir import tvm_compat
from spaces.ir.symbolic import NO_VALUES
from spaces.templates.memory.stages import Stage, stage_of

_SMALL = 4
"""A stage this many times smaller than its consumer is computed once, not for each reader."""
_MOST_LOADS = 32
"""An expression that would load more often than this is not copied any further."""


def inline(schedule: Any, *, keep: bool, values: Mapping[str, int] = NO_VALUES) -> bool:
    """Inline stages without a reduction where that saves memory traffic.

    Args:
        keep: keep stages whose work would be repeated: padding of a window's input, and
            exponentials that are read twice.
        values: sizes of symbolic dimensions in the shape that is estimated.

    Returns:
        Whether there are stages that `keep` decides on.
    """
    found = False
    for block in tvm_compat.stage_blocks(schedule):
        verdict = _verdict(schedule, block, values)
        found = found or verdict == "optional"
        if verdict == "inline" or (verdict == "optional" and not keep):
            schedule.compute_inline(block)
    return found


def _verdict(schedule: Any, block: Any, values: Mapping[str, int]) -> str:
    """The decision on a block: `inline`, `keep` or `optional`."""
    buffers: list[Any] = []
    parameters = list(schedule.mod["main"].params)
    stage = stage_of(schedule.get(block), parameters, buffers, values)
    readers = [
        stage_of(schedule.get(b), parameters, buffers, values)
        for b in schedule.get_consumers(block)
    ]
    if stage is None or stage.reduces or stage.output or len(stage.writes) != 1 or not readers:
        return "keep"
    known = [reader for reader in readers if reader is not None]
    if len(known) < len(readers) or not _whole(stage):
        return "keep"
    points = max(reader.points for reader in known)
    uses = sum(read.buffer == stage.writes[0].buffer for r in known for read in r.reads)
    if stage.points * _SMALL <= points and (stage.heavy or _after_reduction(schedule, block)):
        return "keep"
    if uses > 1 and uses * len(stage.reads) > _MOST_LOADS:
        return "keep"
    again = len(known) > 1 or points > stage.points
    guarded = bool(stage.guarded) and any(reader.reduces for reader in known)
    return "optional" if guarded or (stage.heavy and again) else "inline"


def _whole(stage: Stage) -> bool:
    """Whether each element is written, by its own step of the loops."""
    write = stage.writes[0]
    used = [dim for dim in write.dims if dim is not None and dim >= 0]
    missing = [n for n, a in enumerate(stage.axes) if n not in used and not a.single]
    return None not in write.dims and len(set(used)) == len(used) and not missing


def _after_reduction(schedule: Any, block: Any) -> bool:
    return any(
        any(int(axis.iter_type) != tvm_compat.SPATIAL for axis in schedule.get(producer).iter_vars)
        for producer in schedule.get_producers(block)
    )
