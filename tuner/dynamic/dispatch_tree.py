"""The choice of a kernel for a shape: a decision tree over the symbolic dimensions. Pure.

The tree is grown for cost, not for labels: each leaf takes the kernel that is best for all shapes
that reach it, weighted, and a split must save more than a leaf costs. With one dimension the best
tree of all is found, by dynamic programming over the places to split; with several, each split is
the best one alone. Shapes that nobody declared fall to the nearest leaf, so a tree has an answer
for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tuner.arrays import Floats, Ints

_LEAF = 0.002
"""The share of the loss that one more leaf must save."""
_MOST_PLACES = 256


@dataclass(frozen=True, slots=True)
class Leaf:
    """Take this kernel."""

    kernel: int


@dataclass(frozen=True, slots=True)
class Split:
    """Go to `below` where a dimension is at most `bound`, else to `above`."""

    dim: str
    bound: int
    below: Tree
    above: Tree


Tree = Leaf | Split


def grow(dims: Sequence[str], shapes: Ints, costs: Floats, *, leaf: float = _LEAF) -> Tree:
    """The tree of least cost.

    Args:
        dims: names of the dimensions.
        shapes: one row for each shape, a column for each dimension.
        costs: kernels by shapes: the loss of serving a shape with a kernel, weights included.
        leaf: the cost of one leaf, as a share of the loss of the best kernel for each shape.
    """
    penalty = leaf * float(costs.min(axis=0).sum())
    if len(dims) == 1:
        return _along(dims[0], shapes[:, 0], costs, penalty)
    return _greedy(dims, shapes, costs, penalty)


def _along(dim: str, values: Ints, costs: Floats, penalty: float) -> Tree:
    """The best partition of one dimension, as a balanced tree."""
    order = np.argsort(values, kind="stable")
    values, costs = values[order], costs[:, order]
    groups = np.flatnonzero(np.diff(values)) + 1
    starts = np.concatenate([[0], groups])
    uppers = values[np.concatenate([groups - 1, [len(values) - 1]])]
    merged = np.add.reduceat(costs, starts, axis=1)
    sums = np.concatenate([np.zeros((len(costs), 1)), merged.cumsum(axis=1)], axis=1)
    count = len(uppers)
    best = np.full(count + 1, np.inf)
    best[0] = 0.0
    came = np.zeros(count + 1, dtype=np.int64)
    for end in range(1, count + 1):
        pieces = (sums[:, end : end + 1] - sums[:, :end]).min(axis=0)
        totals = best[:end] + pieces + penalty
        came[end] = int(totals.argmin())
        best[end] = totals[came[end]]
    pieces_found: list[tuple[int, int]] = []
    end = count
    while end > 0:
        begin = int(came[end])
        kernel = int((sums[:, end] - sums[:, begin]).argmin())
        pieces_found.append((int(uppers[end - 1]), kernel))
        end = begin
    return _balance(dim, pieces_found[::-1])


def _balance(dim: str, pieces: list[tuple[int, int]]) -> Tree:
    """A tree over pieces, each given by its upper bound and its kernel."""
    if len(pieces) == 1:
        return Leaf(pieces[0][1])
    half = len(pieces) // 2
    bound = pieces[half - 1][0]
    return Split(dim, bound, _balance(dim, pieces[:half]), _balance(dim, pieces[half:]))


def _greedy(dims: Sequence[str], shapes: Ints, costs: Floats, penalty: float) -> Tree:
    totals = costs.sum(axis=1)
    leaf = Leaf(int(totals.argmin()))
    least, chosen = float(totals.min()) - penalty, None
    for column, dim in enumerate(dims):
        for bound in _places(shapes[:, column]):
            below = shapes[:, column] <= bound
            total = costs[:, below].sum(axis=1).min() + costs[:, ~below].sum(axis=1).min()
            if total < least:
                least, chosen = float(total), (dim, bound, below)
    if chosen is None:
        return leaf
    dim, bound, below = chosen
    return Split(
        dim,
        bound,
        _greedy(dims, shapes[below], costs[:, below], penalty),
        _greedy(dims, shapes[~below], costs[:, ~below], penalty),
    )


def _places(values: Ints) -> list[int]:
    """The values at which a dimension can be split: at most `_MOST_PLACES`, never its largest."""
    known = np.unique(values)[:-1]
    if len(known) > _MOST_PLACES:
        known = known[np.linspace(0, len(known) - 1, _MOST_PLACES).astype(np.int64)]
    return [int(v) for v in known]


def pick(tree: Tree, shape: Mapping[str, int]) -> int:
    """The kernel for a shape."""
    while isinstance(tree, Split):
        tree = tree.below if shape[tree.dim] <= tree.bound else tree.above
    return tree.kernel


def leaves(tree: Tree) -> Iterator[Leaf]:
    """All leaves, from left to right."""
    if isinstance(tree, Leaf):
        yield tree
        return
    yield from leaves(tree.below)
    yield from leaves(tree.above)


def renumber(tree: Tree, numbers: Mapping[int, int]) -> Tree:
    """The tree with other numbers for its kernels."""
    if isinstance(tree, Leaf):
        return Leaf(numbers[tree.kernel])
    return Split(tree.dim, tree.bound, renumber(tree.below, numbers), renumber(tree.above, numbers))


def tree_text(tree: Tree, indent: str = "") -> str:
    """A tree as people read it, a line for each decision."""
    if isinstance(tree, Leaf):
        return f"{indent}kernel {tree.kernel}"
    return (
        f"{indent}if {tree.dim} <= {tree.bound}:\n{tree_text(tree.below, indent + '    ')}\n"
        f"{indent}else:\n{tree_text(tree.above, indent + '    ')}"
    )
