"""Infinities and NaN of the types whose literals TVM writes as text that no compiler knows.

TVM 0.27 writes an infinite bfloat16 as `__float2bfloat16_rn(inff)`, and floats of 8 bits likewise,
where it has `CUDART_INF_F` for others. As casts of float32 they are written right.
"""

from __future__ import annotations

import math
from typing import Any

_WRITTEN = frozenset({"float16", "float32", "float64"})
"""The types whose literals are right."""


def widen_infinities(function: Any) -> Any:
    """A function after all passes whose infinities and NaN are literals of float32."""
    import tvm
    from tvm_ffi import structural_mutate

    def widen(node: Any, mutator: Any) -> Any:
        dtype = str(node.ty.dtype)
        if math.isfinite(node.value) or dtype in _WRITTEN:
            return mutator.default_mutate(node)
        return tvm.tirx.Cast(dtype, tvm.tirx.FloatImm("float32", float(node.value)))

    return function.with_body(structural_mutate(function.body, [(tvm.tirx.FloatImm, widen)]))
