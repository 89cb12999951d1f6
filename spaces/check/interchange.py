"""Loop interchange for reference runs: reductions in a quick order, on all threads.

An unscheduled matrix product runs down a column of one operand for each element of its result,
which is slow. With reductions moved outside of the last spatial loop, each element still adds up
the same terms in the same order. The thread that computes an element makes no difference either.
"""

from __future__ import annotations

import math
from typing import Any

from spaces.ir import tvm_compat
from spaces.ir.guard import refusals
from spaces.ir.schedules import new_schedule

_ENOUGH = 8
"""Steps of the loops but the last that are enough to spread over threads."""


def interchange(module: Any) -> Any:
    """A module that computes exactly the same, its reductions outside of its innermost loops and
    its outermost loops in parallel.

    Blocks whose loops are not simply their axes stay as they are, and so do those that may write an
    element more than once, as the last write must stay the last.
    """
    schedule = new_schedule(module)
    for block in tvm_compat.stage_blocks(schedule):
        with refusals("a reference whose sums stay inside"):  # slow is right too
            _interchange(schedule, block)
    return schedule.mod


def _interchange(schedule: Any, block: Any) -> None:
    kinds = [int(v.iter_type) for v in schedule.get(block).iter_vars]
    loops = schedule.get_loops(block)
    extents = [tvm_compat.as_int(schedule.get(loop).extent) for loop in loops]
    if 0 in extents and schedule.get(block).init is not None:
        # A sum of no terms is what it begins with, which no step of its loops stores.
        schedule.decompose_reduction(block, loops[0])
        return
    if len(loops) != len(kinds):
        return
    sums = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == tvm_compat.REDUCED]
    others = [loop for loop, kind in zip(loops, kinds, strict=True) if kind != tvm_compat.REDUCED]
    if not others or not _writes_once(schedule.get(block)):
        return
    # With few steps before the last loop, the last is spread too, and reductions stay inside it.
    inner = others[-1:] if _steps(schedule, others[:-1]) >= _ENOUGH else []
    outer = others[: len(others) - len(inner)]
    schedule.reorder(*outer, *sums, *inner)
    schedule.parallel(schedule.fuse(*outer))
    if sums and inner:
        schedule.decompose_reduction(block, sums[0])


def _writes_once(block: Any) -> bool:
    """Whether each step writes another element: every axis but reductions is an index itself."""
    long = [v for v in block.iter_vars if tvm_compat.as_int(v.dom.extent) != 1]
    axes = [v.var for v in long if int(v.iter_type) != tvm_compat.REDUCED]
    indices = [[dim.min for dim in written.region] for written in block.writes]
    return all(any(axis.same_as(index) for index in each) for axis in axes for each in indices)


def _steps(schedule: Any, loops: list[Any]) -> int:
    return math.prod(tvm_compat.as_int(schedule.get(loop).extent) or 1 for loop in loops)
