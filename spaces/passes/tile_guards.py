"""Hoist the bounds predicate out of a tile's sum; remainder tiles clamp their row index.

A tile of a ragged extent tests its rows against the extent in its innermost loop. Here each marked
tile tests that once (loop versioning). A full tile then runs without a predicate. A remainder tile
clamps its row index: where rows are missing its last row is computed again, so no step of the sum
has a predicate, and only rows within the extent are stored. Tiles marked `CLAMPED` have no version
for full tiles: every tile clamps. That is less code, and a little slower. Of tiles marked `SKIPPED`
sums have no predicate, and those that would store nothing are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from spaces.ir import rewrite, tvm_compat
from spaces.passes.tile_marks import SKIPPED, TILE, VERSIONED, Loops, each_block, reach, with_tiles


def with_whole_tiles(function: Any) -> Any:
    """A scheduled PrimFunc that computes the same, with no row predicates in the sums of marked
    tiles.

    Where accumulators are not a tile's own (see `spaces.passes.tile_accumulators`), a remainder
    tile keeps its predicate.
    """
    return with_tiles(function, _change)


@dataclass(frozen=True, slots=True)
class _Guard:
    """A predicate on the rows of a tile, as two expressions that are below zero where it holds.

    Attributes:
        first: expression for the first row; if it is below zero, the tile is not empty.
        last: expression for the last row; if it is below zero, the tile is full.
    """

    first: Any
    last: Any


def _change(marked: Any, analyzer: Any) -> Any:
    marks = {key: value for key, value in marked.annotations.items() if key != TILE}
    skips = int(marked.annotations[TILE]) == SKIPPED
    guards = _guards(marked, analyzer, of_sums=not skips)
    body = marked.body
    if guards and skips:
        body = _where([guard.first for guard in guards], body)
    elif guards:
        body = _where([guard.first for guard in guards], _clamp_rows(marked, guards, analyzer))
        if int(marked.annotations[TILE]) == VERSIONED:
            whole = _without(marked, guards, analyzer)
            body = _where([guard.last for guard in guards], whole, rewrite.renew_variables(body))
    return rewrite.copy_loop(marked, body, marks=marks)


def _where(below_zero: list[Any], then: Any, other: Any = None) -> Any:
    from tvm.tirx import IfThenElse

    conditions = [value < rewrite.constant(0, value) for value in below_zero]
    return IfThenElse(rewrite.conjunction(conditions), then, other)


def _guards(marked: Any, analyzer: Any, *, of_sums: bool) -> list[_Guard]:
    """The row predicates of the sums in a tile, or of what it stores, each once."""
    guards: list[_Guard] = []

    def look(realize: Any, loops: Loops) -> Any:
        kinds = [int(axis.iter_type) for axis in realize.block.iter_vars]
        wanted = (tvm_compat.REDUCED in kinds) == of_sums
        for condition in rewrite.conjuncts(realize.predicate) if wanted else ():
            guard = _guard(condition, loops, analyzer, of_sums=of_sums)
            if guard is not None and not _is_among(guard, guards, analyzer):
                guards.append(guard)
        return realize

    each_block(marked.body, look)
    return guards


def _without(marked: Any, guards: list[_Guard], analyzer: Any) -> Any:
    """The body of a loop for a full tile, without the predicates that the guards stand for."""
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


def _clamp_rows(marked: Any, guards: list[_Guard], analyzer: Any) -> Any:
    """The body of a loop for a remainder tile: the row index of sums is clamped to the last row in
    place of a predicate. Stores keep their predicates."""
    import tvm

    def look(realize: Any, loops: Loops) -> Any:
        values, left = list(realize.iter_values), []
        for condition in rewrite.conjuncts(realize.predicate):
            found = None
            if _is_guard(condition, guards, loops, analyzer):
                found = _clamp(realize, condition, loops, analyzer)
            if found is None:
                left.append(condition)
            else:
                place, last = found
                values[place] = tvm.tirx.Min(values[place], last)
        return tvm.s_tir.SBlockRealize(values, rewrite.conjunction(left), realize.block)

    return each_block(marked.body, look)


def _clamp(realize: Any, condition: Any, loops: Loops, analyzer: Any) -> tuple[int, Any] | None:
    """The axis of a block that a predicate bounds, and the largest value it allows; None where the
    predicate bounds several axes, or an axis that the block's stores are indexed by."""
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


def _guard(condition: Any, loops: Loops, analyzer: Any, *, of_sums: bool = True) -> _Guard | None:
    """The guard of a predicate: its value in the first and in the last step of the loops that it
    grows with; None where it has another form, or is of a sum and depends on no loop."""
    import tvm

    if not isinstance(condition, tvm.tirx.LT):
        return None
    difference = condition.a - condition.b
    if of_sums and not rewrite.uses(difference, [var for var, _ in loops]):
        return None
    ends = reach(difference, loops, analyzer)
    return None if ends is None else _Guard(*ends)


def _is_among(guard: _Guard, others: list[_Guard], analyzer: Any) -> bool:
    return any(analyzer.can_prove_equal(guard.last, other.last) for other in others)
