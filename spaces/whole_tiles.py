"""Tiles whose rows are all there, told from the last ones before they are computed.

A tile of a ragged extent computes only the rows that there are, and asks for each of them in its
innermost loop. Here each tile is asked once: a whole one is computed without any question, and
only a last one, of less rows, with all of them. TVM's own partition of loops does the same where
tiles follow one another in a loop, and takes seconds to see it where they are blocked twice.
"""

from __future__ import annotations

from typing import Any

from spaces import names

WHOLE_TILES = "tuner.whole_tiles"
"""Annotation of a loop whose body computes one tile. Around more, what the tile is summed up in
would be as large as all of them."""

_Loops = list[tuple[Any, Any]]
"""Variables and extents of loops, in order."""


def with_whole_tiles(function: Any) -> Any:
    """A scheduled PrimFunc that computes the same, and asks once for a tile of a marked loop."""
    import tvm
    from tvm.sym import Analyzer
    from tvm_ffi import structural_mutate

    analyzer = Analyzer()

    def loop(node: Any, mutator: Any) -> Any:
        analyzer.bind(node.loop_var, tvm.ir.Range.from_min_extent(node.min, node.extent))
        if WHOLE_TILES not in node.annotations:
            return mutator.default_mutate(node)
        marks = {key: value for key, value in node.annotations.items() if key != WHOLE_TILES}
        return names.copied_loop(node, _asked_once(node, analyzer), marks=marks)

    body = structural_mutate(function.body, [(tvm.tirx.For, loop)])
    return function if body.same_as(function.body) else function.with_body(body)


def _asked_once(marked: Any, analyzer: Any) -> Any:
    """The body of a loop: whole where it is, else as it was."""
    from tvm.tirx import IfThenElse

    guards = _guards(marked, analyzer)
    if not guards:
        return marked.body
    whole = _without(marked, guards, analyzer)
    condition = names.conjunction([guard < names.constant(0, guard) for guard in guards])
    return IfThenElse(condition, whole, names.renewed(marked.body))


def _guards(marked: Any, analyzer: Any) -> list[Any]:
    """What has to be below zero for all steps of the sum in a tile to be carried out."""
    guards: list[Any] = []

    def look(realize: Any, loops: _Loops) -> Any:
        kinds = [int(axis.iter_type) for axis in realize.block.iter_vars]
        for condition in names.conjuncts(realize.predicate) if names.REDUCED in kinds else ():
            last = _last(condition, loops, analyzer)
            if last is not None and not _is_among(last, guards, analyzer):
                guards.append(last)
        return realize

    _each_block(marked, look)
    return guards


def _without(marked: Any, guards: list[Any], analyzer: Any) -> Any:
    """The body of a loop without the conditions that hold where these guards do."""
    import tvm

    def look(realize: Any, loops: _Loops) -> Any:
        left = []
        for condition in names.conjuncts(realize.predicate):
            last = _last(condition, loops, analyzer)
            if last is None or not _is_among(last, guards, analyzer):
                left.append(condition)
        predicate = names.conjunction(left)
        return tvm.s_tir.SBlockRealize(realize.iter_values, predicate, realize.block)

    return _each_block(marked, look)


def _each_block(marked: Any, look: Any) -> Any:
    """The body of a loop with each realisation of a block as `look` gives it, which is told the
    loops around it."""
    import tvm
    from tvm_ffi import structural_mutate

    loops: _Loops = []

    def loop(node: Any, mutator: Any) -> Any:
        loops.append((node.loop_var, node.extent))
        changed = mutator.default_mutate(node)
        loops.pop()
        return changed

    def realize(node: Any, _mutator: Any) -> Any:
        return look(node, loops)

    kinds = [(tvm.tirx.For, loop), (tvm.s_tir.SBlockRealize, realize)]
    return structural_mutate(marked.body, kinds)


def _last(condition: Any, loops: _Loops, analyzer: Any) -> Any | None:
    """What is below zero where a condition holds in the last step of the loops it grows with;
    None where it does not grow with any, or is of another form."""
    import tvm

    if not isinstance(condition, tvm.tirx.LT):
        return None
    difference = condition.a - condition.b
    grown = False
    for var, extent in loops:
        growth = names.growth(analyzer, difference, var)
        if growth is None or growth < 0:
            return None
        if growth:
            difference = names.replaced(difference, [(var, extent - names.constant(1, var))])
            grown = True
    return analyzer.simplify(difference) if grown else None


def _is_among(expression: Any, others: list[Any], analyzer: Any) -> bool:
    return any(analyzer.can_prove_equal(expression, other) for other in others)
