"""Split a predicated vector store into a full vector and a masked tail.

TVM takes a vectorised loop apart where its predicate depends on its own steps, as that of the last
columns of a padded tile does, and tests the predicate for each lane. Here one test says whether the
full vector may be stored. Where it may not, at the end of a row, the remaining lanes are stored
under a mask where the stored value is plain arithmetic (`spaces.passes.masked_stores`), and by a
scalar loop where it is not.
"""

from __future__ import annotations

from typing import Any

from spaces.ir import rewrite, tvm_compat
from spaces.passes.masked_stores import mask_store

_VECTORISED = 2


def with_ragged_ends(function: Any) -> Any:
    """A scheduled PrimFunc that stores the same, by full vectors wherever these fit."""
    import tvm
    from tvm.sym import Analyzer
    from tvm_ffi import structural_mutate

    analyzer = Analyzer()
    maskable = () if _is_partitioned(function) else function.params

    def loop(node: Any, mutator: Any) -> Any:
        realize = node.body
        if int(node.kind) != _VECTORISED or not isinstance(realize, tvm.s_tir.SBlockRealize):
            return mutator.default_mutate(node)
        if _binds(realize.block):
            return node
        conditions = rewrite.conjuncts(realize.predicate)
        own = [c for c in conditions if rewrite.uses(c, [node.loop_var])]
        limits = [_limit(analyzer, node, condition) for condition in own]
        if not own or None in limits:
            return node
        others = [c for c in conditions if not rewrite.uses(c, [node.loop_var])]
        return _split(node, rewrite.conjunction(others), limits, maskable)

    body = structural_mutate(function.body, [(tvm.tirx.For, loop)])
    return function if body.same_as(function.body) else function.with_body(body)


def _is_partitioned(function: Any) -> bool:
    """Whether TVM will partition loops of a function: that fails where they hold masked stores."""
    import tvm
    import tvm_ffi

    def look(loop: Any) -> Any:
        return (
            tvm_ffi.VisitInterrupt(loop) if tvm_compat.PARTITION_HINT in loop.annotations else None
        )

    return tvm_ffi.structural_walk(function.body, (tvm.tirx.For, look)) is not None


def _binds(block: Any) -> bool:
    """Whether a block has variables of its own besides its axes: none may be bound twice."""
    import tvm
    import tvm_ffi

    def look(node: Any) -> Any:
        return tvm_ffi.VisitInterrupt(node)

    if block.alloc_buffers or block.match_buffers or block.init is not None:
        return True
    kinds = (tvm.tirx.For, tvm.tirx.Let, tvm.tirx.Bind)
    return tvm_ffi.structural_walk(block.body, (kinds, look)) is not None


def _limit(analyzer: Any, loop: Any, condition: Any) -> Any | None:
    """The number of steps of a loop, from the first on, that a predicate allows; None where the
    predicate has another form."""
    import tvm

    if not isinstance(condition, tvm.tirx.LT):
        return None
    left = condition.b - condition.a
    if rewrite.growth(analyzer, left, loop.loop_var) != -1:
        return None
    start = rewrite.substitute(left, [(loop.loop_var, rewrite.constant(0, loop.loop_var))])
    return analyzer.simplify(start)


def _split(loop: Any, others: Any, limits: list[Any], maskable: Any) -> Any:
    """The loop as a full vector where all limits allow it, else as many lanes as they allow.

    A masked store could write full vectors too; testing for them first is a few percent faster.

    Args:
        others: the predicates that do not depend on the loop.
        limits: the number of lanes that each of the other predicates allows.
        maskable: parameters that may be stored under a mask.
    """
    from tvm import tirx
    from tvm.s_tir import SBlockRealize

    realize, extent = loop.body, loop.extent
    least = limits[0]
    for limit in limits[1:]:
        least = tirx.Min(least, limit)
    whole = tirx.For(
        loop.loop_var,
        loop.min,
        extent,
        loop.kind,
        SBlockRealize(realize.iter_values, others, realize.block),
    )
    masked = mask_store(loop, others, least, maskable)
    if masked is not None:
        return tirx.IfThenElse(least >= extent, whole, masked)
    var = tirx.Var(f"{loop.loop_var.name}_end", loop.loop_var.ty)
    # A block may name the loop itself, as one that reads a tile's sums does (`tile_accumulators`).
    moved = rewrite.substitute(realize, [(loop.loop_var, var)])
    end = tirx.For(
        var,
        loop.min,
        tirx.Max(tirx.Min(least, extent), rewrite.constant(0, extent)),
        tirx.ForKind.SERIAL,
        SBlockRealize(moved.iter_values, others, rewrite.copy_block(moved.block)),
    )
    return tirx.IfThenElse(least >= extent, whole, end)
