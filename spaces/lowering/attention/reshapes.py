"""Indices into tensors of some shape as those into others with as many elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spaces.ir import tvm_compat
from spaces.ir.symbolic import variables

Digits = list[tuple[Any, Any]]
"""Places along dimensions, each with the dimension, the innermost last."""


def is_one(dim: Any) -> bool:
    """Whether a dimension has one element."""
    return tvm_compat.as_int(dim) == 1


def reshape_index(
    shape: Sequence[Any], to: Sequence[Any], index: Sequence[Any]
) -> list[Any] | None:
    """An index into a shape as one into another with as many elements; None where that is not seen.

    Dimensions are matched in groups of equal products, so that those which stay keep their index.
    What one reshape has joined, another takes apart again.
    """
    analyzer = _know_sizes([*shape, *to])
    groups = _match(analyzer, shape, to)
    if groups is None:
        return None
    found: list[Any] = [0 for _ in to]
    for own, theirs in groups:
        digits = [(index[dim], shape[dim]) for dim in own]
        for dim in reversed(theirs[1:]):
            found[dim] = _take(analyzer, digits, to[dim])
        found[theirs[0]] = _join(analyzer, digits)
    return found


def _take(analyzer: Any, digits: Digits, size: Any) -> Any:
    """The place along an innermost dimension of some size, which is taken from the digits."""
    place: Any = 0
    taken: Any = 1
    while not is_one(size) and digits:
        index, extent = digits.pop()
        if _divides(analyzer, extent, size):
            size = analyzer.simplify(size // extent)
        elif _divides(analyzer, size, extent):
            high, index = _split(analyzer, index, size)
            digits.append((high, analyzer.simplify(extent // size)))
            extent, size = size, 1
        else:
            whole = _join(analyzer, [*digits, (index, extent)])
            digits[:] = [(whole // size, 1)]
            return whole % size if is_one(taken) else (whole % size) * taken + place
        place, taken = index * taken + place, extent * taken
    return _simplify(analyzer, place)


def _join(analyzer: Any, digits: Digits) -> Any:
    """The place along one dimension of that along several."""
    (whole, _), *others = digits or [(0, 1)]
    for index, extent in others:
        whole = whole * extent + index
    return _simplify(analyzer, whole)


def _split(analyzer: Any, index: Any, size: Any) -> tuple[Any, Any]:
    """A place by a size, and what is left: by the terms of a sum that `_join` or `_take` wrote, of
    which the second is less than the size; else a quotient and a remainder."""
    from tvm import tirx

    if isinstance(index, tirx.Add):
        for product, rest in ((index.a, index.b), (index.b, index.a)):
            if isinstance(product, tirx.Mul):
                for place, by in ((product.a, product.b), (product.b, product.a)):
                    if analyzer.can_prove_equal(by, size):
                        return place, rest
    return index // size, index % size


def _simplify(analyzer: Any, place: Any) -> Any:
    return place if isinstance(place, int) else analyzer.simplify(place)


def _know_sizes(dims: Sequence[Any]) -> Any:
    """An analyzer that knows that open sizes are positive: of no elements there is no index."""
    from tvm import ir, sym, tirx

    analyzer = sym.Analyzer()
    for dim in dims:
        for variable in variables(dim):
            one = tirx.const(1, str(variable.ty.dtype))
            analyzer.bind(variable, ir.Range.from_min_extent(one, one * (1 << 30)))
    return analyzer


def _match(
    analyzer: Any, shape: Sequence[Any], to: Sequence[Any]
) -> list[tuple[list[int], list[int]]] | None:
    """Dimensions of two shapes, those of one element left out, in groups of equal products."""
    own, theirs = ([n for n, dim in enumerate(dims) if not is_one(dim)] for dims in (shape, to))
    groups = []
    while own and theirs:
        left, right = [own.pop(0)], [theirs.pop(0)]
        a, b = shape[left[0]], to[right[0]]
        while not analyzer.can_prove_equal(a, b):
            if own and _divides(analyzer, a, b):
                left.append(own.pop(0))
                a = a * shape[left[-1]]
            elif theirs and _divides(analyzer, b, a):
                right.append(theirs.pop(0))
                b = b * to[right[-1]]
            else:
                return None
        groups.append((left, right))
    return None if own or theirs else groups


def _divides(analyzer: Any, a: Any, b: Any) -> bool:
    """Whether a size is known to be a part of another."""
    return tvm_compat.as_int(analyzer.simplify(b % a)) == 0
