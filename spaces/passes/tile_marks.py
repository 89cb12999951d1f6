"""The loops over register tiles that a schedule marks, and the blocks within one tile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from spaces.ir import rewrite

TILE = "tuner.tile"
"""Annotation of a loop whose body computes one tile. Its value says how remainder tiles, which lack
rows, are computed; see `spaces.passes.tile_guards`."""
VERSIONED = 1
"""There are two versions of the tile, one for full tiles and one for remainder tiles."""
CLAMPED = 2
"""Every tile clamps its row index, full tiles too."""
SKIPPED = 3
"""Rows that are missing are computed, as what a tile reads has them; a tile without any row that is
stored is left out."""

Loops = list[tuple[Any, Any]]
"""Variables and extents of loops, in order."""


def with_tiles(function: Any, changed: Callable[[Any, Any], Any]) -> Any:
    """A PrimFunc with each marked loop replaced by `changed(loop, analyzer)`; the analyzer knows
    the ranges of the loops around it."""
    import tvm
    from tvm.sym import Analyzer
    from tvm_ffi import structural_mutate

    analyzer = Analyzer()

    def loop(node: Any, mutator: Any) -> Any:
        rewrite.bind_loop(analyzer, node)
        return changed(node, analyzer) if TILE in node.annotations else mutator.default_mutate(node)

    body = structural_mutate(function.body, [(tvm.tirx.For, loop)])
    return function if body.same_as(function.body) else function.with_body(body)


def each_block(statement: Any, look: Callable[[Any, Loops], Any]) -> Any:
    """A statement with each block realisation replaced by `look(realisation, loops)`; `loops` are
    the loops of the statement around the realisation."""
    import tvm
    from tvm_ffi import structural_mutate

    loops: Loops = []

    def loop(node: Any, mutator: Any) -> Any:
        loops.append((node.loop_var, node.extent))
        changed = mutator.default_mutate(node)
        loops.pop()
        return changed

    def realize(node: Any, _mutator: Any) -> Any:
        return look(node, loops)

    return structural_mutate(statement, [(tvm.tirx.For, loop), (tvm.s_tir.SBlockRealize, realize)])


def reach(expression: Any, loops: Loops, analyzer: Any) -> tuple[Any, Any] | None:
    """The values of an expression in the first and in the last step of some loops; None where it is
    not known to be non-decreasing in each of them."""
    first = last = expression
    for var, extent in loops:
        growth = rewrite.growth(analyzer, last, var)
        if growth is None or growth < 0:
            return None
        first = rewrite.substitute(first, [(var, rewrite.constant(0, var))])
        last = rewrite.substitute(last, [(var, extent - rewrite.constant(1, var))])
    return analyzer.simplify(first), analyzer.simplify(last)
