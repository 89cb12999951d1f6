"""Which keys a row of queries does not look at, as its scores tell without being computed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from spaces.ir import rewrite
from spaces.ir.element_types import is_float
from spaces.lowering.attention.description import Attention

_LOWEST = -1e30
"""Of scores whose weights are zero beside any other: float32 has powers of numbers above -104."""


def find_limit(attention: Attention) -> Any:
    """The last key that a row looks at, less the row: scores of later ones are minus infinity; or,
    where each row looks at the first key at least, a number as low as there may be.

    An expression of sizes, of places in the batch, and of what tensors have there; None where no
    comparison in the scores says so.
    """
    from tvm import sym

    a, analyzer = attention, sym.Analyzer()
    simplify = analyzer.simplify
    places, later = [a.rows.var, a.keys.var], a.keys.var - a.rows.var
    for comparison, at_most_zero in _find_comparisons(a.score):
        # It holds either up to a key of each row, or from one on.
        up_to, from_on = simplify(later - at_most_zero), simplify(at_most_zero + later)
        for limit, outcome in ((up_to, False), (simplify(from_on - 1), True)):
            if rewrite.uses(limit, places):
                continue
            sees_one = analyzer.can_prove(limit >= 0)
            beyond = simplify(_decide(a.score, comparison, outcome))
            if _is_lowest(beyond, _LOWEST if sees_one else -math.inf):
                return limit
    return None


def _find_comparisons(score: Any) -> Iterator[tuple[Any, Any]]:
    """Comparisons of whole numbers, each with what is at most zero where it holds."""
    import tvm_ffi
    from tvm import tirx

    found: list[Any] = []
    kinds = (tirx.LE, tirx.LT, tirx.GE, tirx.GT)
    tvm_ffi.structural_walk(score, [(kind, lambda node: found.append(node)) for kind in kinds])
    for node in found:
        if str(node.a.ty.dtype) != "int64":
            continue
        less, more = (node.a, node.b) if isinstance(node, kinds[:2]) else (node.b, node.a)
        yield node, less - more + (1 if isinstance(node, (tirx.LT, tirx.GT)) else 0)


def _decide(score: Any, comparison: Any, outcome: bool) -> Any:
    """A score where a comparison has an outcome."""
    from tvm import tirx
    from tvm_ffi import structural_mutate

    def look(node: Any, mutator: Any) -> Any:
        same = node.same_as(comparison)
        return tirx.const(outcome, "bool") if same else mutator.default_mutate(node)

    return structural_mutate(score, [(type(comparison), look)])


def _is_lowest(value: Any, lowest: float) -> bool:
    """Whether a score is at most a number, or has minus infinity added."""
    from tvm import tirx

    while isinstance(value, tirx.Cast) and is_float(str(value.value.ty.dtype)):
        value = value.value
    if isinstance(value, tirx.Add):
        return any(_is_lowest(term, -math.inf) for term in (value.a, value.b))
    return isinstance(value, tirx.FloatImm) and float(value.value) <= lowest
