"""A fallback kernel for the smallest shape, whatever its weight. Pure.

A set that minimises a weighted loss may leave the smallest shapes to a kernel with large tiles,
which is several times slower on them: where they weigh little, that adds nothing to the loss, and
shapes below the smallest declared one fare no better. So the leaf of the dispatch tree that serves
the smallest shape is split: the sizes around that shape go to the kernel that is fastest on it.
This is done where the shape would lose more than a tenth, and the kernel is in the set already or
the set has room for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

import numpy as np

from tuner.arrays import Flags, Floats, Ints
from tuner.dynamic.dispatch_tree import Leaf, Split, Tree, leaves, pick
from tuner.task import Instance

SLOWER = 0.1
"""The share by which the smallest shape may be slower than with its fastest kernel."""


def smallest(instances: Sequence[Instance]) -> int:
    """The place of the smallest shape: the one with the least product of its sizes."""
    return min(range(len(instances)), key=lambda i: prod(size for _, size in instances[i]))


def with_fallback(
    tree: Tree, instances: Sequence[Instance], latencies_s: Floats, able: Sequence[int], most: int
) -> Tree:
    """A dispatch tree with a fast kernel for the smallest shape and those around it.

    Args:
        tree: dispatch tree whose leaves hold rows of the latencies.
        latencies_s: kernels by shapes.
        able: rows of the kernels that may join those of the tree.
        most: most kernels that the tree may have.

    Returns:
        The same tree where the smallest shape loses little, or there is no room.
    """
    place = smallest(instances)
    taken = pick(tree, dict(instances[place]))
    fallback = min(able, key=lambda row: latencies_s[row, place])
    if latencies_s[taken, place] <= (1.0 + SLOWER) * latencies_s[fallback, place]:
        return tree
    used = {leaf.kernel for leaf in leaves(tree)}
    if fallback not in used and len(used) >= most:
        return tree
    here = [i for i, instance in enumerate(instances) if _alike(tree, instance, instances[place])]
    values = np.array([[size for _, size in instances[i]] for i in here])
    gains = latencies_s[fallback, here] <= latencies_s[taken, here]
    bounds = _bounds(values, gains, here.index(place))
    cuts = [
        (dim, bound)
        for (dim, _), bound, largest in zip(
            instances[place], bounds, values.max(axis=0), strict=True
        )
        if bound < largest
    ]
    return _graft(tree, dict(instances[place]), cuts, fallback)


def _alike(tree: Tree, one: Instance, other: Instance) -> bool:
    """Whether two shapes reach the same leaf."""
    while isinstance(tree, Split):
        below = dict(one)[tree.dim] <= tree.bound
        if below != (dict(other)[tree.dim] <= tree.bound):
            return False
        tree = tree.below if below else tree.above
    return True


def _bounds(values: Ints, gains: Flags, place: int) -> list[int]:
    """The upper sizes of the largest box of shapes, from zero up to the sizes of one of them, that
    holds the shape at `place` and in which every shape gains."""
    boxes = [(values <= corner).all(axis=1) for corner in values]
    good = [i for i, box in enumerate(boxes) if box[place] and gains[box].all()]
    best = max(good, key=lambda i: int(boxes[i].sum()))
    return [int(size) for size in values[best]]


def _graft(
    tree: Tree, shape: Mapping[str, int], cuts: Sequence[tuple[str, int]], kernel: int
) -> Tree:
    """The tree with the leaf of a shape split: another kernel up to a size of each dimension."""
    if isinstance(tree, Split):
        if shape[tree.dim] <= tree.bound:
            return replace(tree, below=_graft(tree.below, shape, cuts, kernel))
        return replace(tree, above=_graft(tree.above, shape, cuts, kernel))
    grafted: Tree = Leaf(kernel)
    for dim, bound in cuts:
        grafted = Split(dim, bound, grafted, tree)
    return grafted
