"""Tiles whose rows are all there, told from the last ones before they are computed.

A tile of a ragged extent computes only the rows that there are, and asks for each of them in its
innermost loop. Here each tile is asked once, and the last of less rows computes its last row again
for each that it lacks: no step of a sum asks anything, and what was computed in vain is not
written. Where a tile is not even asked, the rows of every tile are looked up one by one: less code,
of which the pace is a little less.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from spaces.ir import rewrite, tvm_compat
from spaces.passes.tile_marks import ASKED_ONCE, TILE, Loops, each_block, reach, with_tiles


def with_whole_tiles(function: Any) -> Any:
    """A scheduled PrimFunc that computes the same, with no questions in the sums of marked tiles.

    Where sums are not a tile's own (see `spaces.passes.tile_accumulators`), a last tile asks as
    before.
    """
    return with_tiles(function, _changed)


@dataclass(frozen=True, slots=True)
class _Guard:
    """What a condition on the rows of a tile comes to.

    Attributes:
        first: below zero where the tile has a row at all.
        last: below zero where it has all of them.
    """

    first: Any
    last: Any


def _changed(marked: Any, analyzer: Any) -> Any:
    marks = {key: value for key, value in marked.annotations.items() if key != TILE}
    guards = _guards(marked, analyzer)
    body = marked.body
    if guards:
        body = _where([guard.first for guard in guards], _repeating(marked, guards, analyzer))
        if int(marked.annotations[TILE]) == ASKED_ONCE:
            whole = _without(marked, guards, analyzer)
            body = _where([guard.last for guard in guards], whole, rewrite.renewed(body))
    return rewrite.copied_loop(marked, body, marks=marks)


def _where(below_zero: list[Any], then: Any, other: Any = None) -> Any:
    from tvm.tirx import IfThenElse

    conditions = [value < rewrite.constant(0, value) for value in below_zero]
    return IfThenElse(rewrite.conjunction(conditions), then, other)


def _guards(marked: Any, analyzer: Any) -> list[_Guard]:
    """What has to hold for all steps of the sum in a tile to be carried out."""
    guards: list[_Guard] = []

    def look(realize: Any, loops: Loops) -> Any:
        kinds = [int(axis.iter_type) for axis in realize.block.iter_vars]
        for condition in (
            rewrite.conjuncts(realize.predicate) if tvm_compat.REDUCED in kinds else ()
        ):
            guard = _guard(condition, loops, analyzer)
            if guard is not None and not _is_among(guard, guards, analyzer):
                guards.append(guard)
        return realize

    each_block(marked.body, look)
    return guards


def _without(marked: Any, guards: list[_Guard], analyzer: Any) -> Any:
    """The body of a loop without the conditions that hold where these guards do."""
    import tvm

    def look(realize: Any, loops: Loops) -> Any:
        left = [
            condition
            for condition in rewrite.conjuncts(realize.predicate)
            if not _is_guard(condition, guards, loops, analyzer)
        ]
        predicate = rewrite.conjunction(left)
        return tvm.s_tir.SBlockRealize(realize.iter_values, predicate, realize.block)

    return each_block(marked.body, look)


def _repeating(marked: Any, guards: list[_Guard], analyzer: Any) -> Any:
    """The body of a loop that computes its last row again for each that is not there. That a row
    is written is asked as before."""
    import tvm

    def look(realize: Any, loops: Loops) -> Any:
        values, left = list(realize.iter_values), []
        for condition in rewrite.conjuncts(realize.predicate):
            found = None
            if _is_guard(condition, guards, loops, analyzer):
                found = _limited(realize, condition, loops, analyzer)
            if found is None:
                left.append(condition)
            else:
                place, last = found
                values[place] = tvm.tirx.Min(values[place], last)
        return tvm.s_tir.SBlockRealize(values, rewrite.conjunction(left), realize.block)

    return each_block(marked.body, look)


def _limited(realize: Any, condition: Any, loops: Loops, analyzer: Any) -> tuple[int, Any] | None:
    """The axis of a block that a condition is about, and the last value it allows; None where it
    is about more than one axis, or decides on what is written."""
    difference = condition.a - condition.b
    written = [dim.min for region in realize.block.writes for dim in region.region]
    for place, value in enumerate(realize.iter_values):
        last = analyzer.simplify(value - difference - rewrite.constant(1, value))
        axis = realize.block.iter_vars[place].var
        if rewrite.uses(last, [var for var, _ in loops]):
            continue
        return None if any(rewrite.uses(index, [axis]) for index in written) else (place, last)
    return None


def _is_guard(condition: Any, guards: list[_Guard], loops: Loops, analyzer: Any) -> bool:
    guard = _guard(condition, loops, analyzer)
    return guard is not None and _is_among(guard, guards, analyzer)


def _guard(condition: Any, loops: Loops, analyzer: Any) -> _Guard | None:
    """What a condition comes to in the first and the last step of the loops it grows with; None
    where it does not grow with any, or is of another form."""
    import tvm

    if not isinstance(condition, tvm.tirx.LT):
        return None
    difference = condition.a - condition.b
    if not rewrite.uses(difference, [var for var, _ in loops]):
        return None
    ends = reach(difference, loops, analyzer)
    return None if ends is None else _Guard(*ends)


def _is_among(guard: _Guard, others: list[_Guard], analyzer: Any) -> bool:
    return any(analyzer.can_prove_equal(guard.last, other.last) for other in others)
