"""Vectors that reach beyond the end of what they write: whole ones first.

A vectorised loop under a condition on its own steps, as the last columns of a padded tile are, TVM
takes apart, and asks for each lane. Here it asks once whether the whole vector may be written. At
the end of a row, where it may not, as many lanes are written as there are: under a mask where what
is written is plain arithmetic, one by one where it is not.
"""

from __future__ import annotations

from typing import Any

from spaces.ir import rewrite, tvm_compat
from spaces.passes.masked_stores import masked_store

_VECTORISED = 2


def with_ragged_ends(function: Any) -> Any:
    """A scheduled PrimFunc that writes the same, by whole vectors wherever these fit."""
    import tvm
    from tvm.sym import Analyzer
    from tvm_ffi import structural_mutate

    analyzer = Analyzer()
    masks = () if _is_partitioned(function) else function.params

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
        return _split(node, rewrite.conjunction(others), limits, masks)

    body = structural_mutate(function.body, [(tvm.tirx.For, loop)])
    return function if body.same_as(function.body) else function.with_body(body)


def _is_partitioned(function: Any) -> bool:
    """Whether TVM will partition loops of it: it fails where these hold masks."""
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
    """How many steps of a loop a condition allows, from the first on; None where it is of
    another form."""
    import tvm

    if not isinstance(condition, tvm.tirx.LT):
        return None
    left = condition.b - condition.a
    if rewrite.growth(analyzer, left, loop.loop_var) != -1:
        return None
    start = rewrite.replaced(left, [(loop.loop_var, rewrite.constant(0, loop.loop_var))])
    return analyzer.simplify(start)


def _split(loop: Any, others: Any, limits: list[Any], masks: Any) -> Any:
    """The loop as a vector where all limits allow it, else as many steps as they allow.

    Under a mask even whole vectors could be written; asking first is a few percent faster.

    Args:
        masks: parameters that may be written under one.
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
    masked = masked_store(loop, others, least, masks)
    if masked is not None:
        return tirx.IfThenElse(least >= extent, whole, masked)
    var = tirx.Var(f"{loop.loop_var.name}_end", loop.loop_var.ty)
    values = [rewrite.replaced(value, [(loop.loop_var, var)]) for value in realize.iter_values]
    block = rewrite.copied_block(realize.block)
    end = tirx.For(
        var,
        loop.min,
        tirx.Max(tirx.Min(least, extent), rewrite.constant(0, extent)),
        tirx.ForKind.SERIAL,
        SBlockRealize(values, others, block),
    )
    return tirx.IfThenElse(least >= extent, whole, end)
