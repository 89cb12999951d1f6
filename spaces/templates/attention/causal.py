"""Which keys a row of queries does not look at, as its scores tell without being computed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from spaces.ir import rewrite
from spaces.ir.element_types import is_float
from spaces.lowering.attention.description import Attention

_LOWEST = float("-inf")


def find_limit(attention: Attention) -> Any:
    """The last key that a row looks at, less the row: scores of later ones are minus infinity.

    An expression of sizes; None where no comparison in the scores says so.
    """
    from tvm import sym

    a, simplify = attention, sym.Analyzer().simplify
    places = [axis.var for axis in (*a.batch, a.rows, a.keys)]
    later = a.keys.var - a.rows.var
    for comparison, at_most_zero in _find_comparisons(a.score):
        # It holds either up to a key of each row, or from one on.
        up_to, from_on = simplify(later - at_most_zero), simplify(at_most_zero + later)
        for limit, outcome in ((up_to, False), (simplify(from_on - 1), True)):
            if rewrite.uses(limit, places) or rewrite.reads(limit):
                continue
            if _is_lowest(simplify(_decide(a.score, comparison, outcome))):
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


def _is_lowest(value: Any) -> bool:
    """Whether a score is minus infinity, or has that added."""
    from tvm import tirx

    while isinstance(value, tirx.Cast) and is_float(str(value.value.ty.dtype)):
        value = value.value
    if isinstance(value, tirx.Add):
        return _is_lowest(value.a) or _is_lowest(value.b)
    return isinstance(value, tirx.FloatImm) and float(value.value) == _LOWEST
