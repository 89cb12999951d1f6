"""Sums over several threads that keep their guard.

Where threads together sum up one element, TVM 0.27 has the last step, which writes it, keep those
clauses of the sum's guard that name no thread of the sum. It takes the guard apart at each `and`,
and loses one that has none: a matrix of 1000 rows, 16 to a block, is written to 1008.
"""

from __future__ import annotations

from typing import Any

from spaces.ir import rewrite, tvm_compat


def guard_sums(module: Any) -> Any:
    """A scheduled module, before TVM's passes, whose sums have a guard that TVM keeps: one without
    an `and` is joined to itself by one."""
    import tvm
    import tvm.s_tir
    from tvm_ffi import structural_mutate

    def realize(node: Any, mutator: Any) -> Any:
        node = mutator.default_mutate(node)
        guard = node.predicate
        if isinstance(guard, tvm.tirx.And) or tvm_compat.as_int(guard) is not None:
            return node
        if not any(int(axis.iter_type) == tvm_compat.REDUCED for axis in node.block.iter_vars):
            return node
        return tvm.s_tir.SBlockRealize(node.iter_values, tvm.tirx.And(guard, guard), node.block)

    looks = [(tvm.s_tir.SBlockRealize, realize)]
    return rewrite.with_prim_funcs(module, lambda f: f.with_body(structural_mutate(f.body, looks)))
