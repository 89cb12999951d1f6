"""Interval analysis of floats that are computed from indices, as a resize does it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

Range = tuple[float, float]

_ROUNDING = frozenset(f"tirx.{name}" for name in ("floor", "ceil", "round", "trunc", "nearbyint"))
_SLACK = 1e-4
"""The share of a bound, and the constant, that rounding in single precision may add to it."""
_KINDS = ("float32", "float64")
"""Types that are precise enough for this analysis."""


def float_range(expression: Any, int_range: Callable[[Any], Range]) -> Range | None:
    """Bounds of a float of 32 or 64 bits; None where it depends on data or on unknown values.

    Args:
        int_range: gives the bounds of an integer, infinite ones where these are not known.
    """
    from tvm import tirx
    from tvm.ir import Call

    def of(node: Any) -> Range | None:
        if str(node.ty.dtype) not in _KINDS:
            return None
        if isinstance(node, tirx.FloatImm):
            return float(node.value), float(node.value)
        if isinstance(node, tirx.Cast):
            found = of(node.value) if _is_float(node.value) else int_range(node.value)
        elif isinstance(node, Call):
            found = _round(of(node.args[0])) if node.op.name in _ROUNDING else None
        elif isinstance(node, (tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Min, tirx.Max)):
            found = _combine(node, of(node.a), of(node.b))
        else:
            found = None
        return found if found is not None and all(map(math.isfinite, found)) else None

    return of(expression)


def _round(found: Range | None) -> Range | None:
    return None if found is None else (math.floor(found[0]), math.ceil(found[1]))


def _combine(node: Any, left: Range | None, right: Range | None) -> Range | None:
    from tvm import tirx

    if left is None or right is None:
        return None
    if isinstance(node, tirx.Div) and right[0] <= 0 <= right[1]:
        return None
    compute: dict[type, Callable[[float, float], float]] = {
        tirx.Add: lambda a, b: a + b,
        tirx.Sub: lambda a, b: a - b,
        tirx.Mul: lambda a, b: a * b,
        tirx.Div: lambda a, b: a / b,
        tirx.Min: min,
        tirx.Max: max,
    }
    ends = [compute[type(node)](a, b) for a in left for b in right]
    low, high = min(ends), max(ends)
    return low - _SLACK * (1 + abs(low)), high + _SLACK * (1 + abs(high))


def _is_float(expression: Any) -> bool:
    return "float" in str(expression.ty.dtype)
