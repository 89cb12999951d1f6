"""Which keys a row of queries does not look at, as its scores tell without being computed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from spaces.ir import rewrite
from spaces.ir.element_types import is_float
from spaces.lowering.attention.description import Attention

_LOWEST = -1e30
"""Of scores whose weights are zero beside any other: float32 has powers of numbers above -104."""


def find_limit(attention: Attention) -> Any:
    """The last key that a row may look at, less the row: scores of later ones are minus infinity;
    or, where each row looks at one key at least, a number as low as there may be.

    An expression of sizes; None where no comparison in the scores says so.
    """
    from tvm import sym, tirx

    a, simplify = attention, sym.Analyzer().simplify
    places = [axis.var for axis in (*a.batch, a.rows, a.keys)]
    later = a.keys.var - a.rows.var
    for comparison, at_most_zero in _find_comparisons(a.score):
        # It holds either up to a key of each row, or from one on.
        up_to, from_on = simplify(later - at_most_zero), simplify(at_most_zero + later)
        for limit, outcome in ((up_to, False), (simplify(from_on - 1), True)):
            bound, sees_one = _bound(limit, places)
            if bound is None:
                continue
            beyond = simplify(_decide(a.score, comparison, outcome))
            if _is_lowest(beyond, -math.inf):
                return bound
            if sees_one and _is_lowest(beyond, _LOWEST):
                # A row that looks at no key weighs all of them alike.
                return tirx.Select(bound >= 0, bound, rewrite.cast("int64", a.keys.extent))
    return None


def _bound(limit: Any, places: Sequence[Any]) -> tuple[Any, bool]:
    """An expression of sizes that a limit does not exceed, None where that is not seen; and whether
    the limit is at least zero where the expression is."""
    from tvm import sym, tirx

    def is_of_sizes(value: Any) -> bool:
        return not rewrite.uses(value, places) and not rewrite.reads(value)

    if is_of_sizes(limit):
        return limit, True
    if isinstance(limit, tirx.Min):
        for bound, other in ((limit.a, limit.b), (limit.b, limit.a)):
            if is_of_sizes(bound):
                return bound, sym.Analyzer().can_prove(other >= 0)
    return None, False


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
