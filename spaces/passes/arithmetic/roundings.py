"""Floats that are rounded to even and become integers, in one instruction in place of two.

LLVM rounds to a float first, and cuts off its fraction, which is none, after that. Its `lrint` does
both, as the CPU's mode of rounding says, which nothing here changes: to even.
"""

from __future__ import annotations

from typing import Any

_REAL, _WIDE = "float32", "int32"
_ROUNDS = "llvm.lrint"


def with_rounding_casts(function: Any) -> Any:
    """A PrimFunc whose casts of what `nearbyint` gives, from float32 to int32, are `lrint`."""
    from tvm import tirx
    from tvm_ffi import structural_mutate

    def cast(node: Any, mutator: Any) -> Any:
        node = mutator.default_mutate(node)
        inner = node.value
        if str(node.ty.dtype) != _WIDE or str(inner.ty.dtype) != _REAL:
            return node
        if not str(getattr(getattr(inner, "op", None), "name", "")).endswith(".nearbyint"):
            return node
        return tirx.call_llvm_pure_intrin(_WIDE, _ROUNDS, inner.args[0])

    body = structural_mutate(function.body, [(tirx.Cast, cast)])
    return function if body.same_as(function.body) else function.with_body(body)
