"""Sums of a program in an order that is quick without being clever.

An unscheduled matrix product runs down a column of one operand for each element of its result. To
compute what a program should give, no such patience is needed: with the sums moved outside of the
last spatial loop, each element still adds up the same terms in the same order.
"""

from __future__ import annotations

from typing import Any

from spaces import names
from spaces.guard import refusals
from spaces.realize import new_schedule


def interchanged(module: Any) -> Any:
    """A module that computes exactly the same, its reductions outside of its innermost loops.

    Blocks whose loops are not simply their axes stay as they are.
    """
    schedule = new_schedule(module)
    for block in names.stage_blocks(schedule):
        with refusals("a reference whose sums stay inside"):  # slow is right too
            _interchange(schedule, block)
    return schedule.mod


def _interchange(schedule: Any, block: Any) -> None:
    kinds = [int(v.iter_type) for v in schedule.get(block).iter_vars]
    loops = schedule.get_loops(block)
    if len(loops) != len(kinds) or names.REDUCED not in kinds:
        return
    sums = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == names.REDUCED]
    others = [loop for loop, kind in zip(loops, kinds, strict=True) if kind != names.REDUCED]
    if not others:
        return
    schedule.reorder(*others[:-1], *sums, others[-1])
    schedule.decompose_reduction(block, sums[0])
