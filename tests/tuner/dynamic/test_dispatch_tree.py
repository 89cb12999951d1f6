"""A tree that picks a kernel for each shape: of least cost, as small as it may be, with an answer
for every shape there is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.dynamic.dispatch_tree import Leaf, Split, Tree, grow, leaves, pick, renumber, tree_text

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

TREE = Split("M", 16, Leaf(2), Split("N", 8, Leaf(0), Leaf(2)))


def sizes(*values: int) -> Ints:
    return np.array(values, dtype=np.int64)[:, None]


def cost(tree: Tree, dims: Sequence[str], shapes: Ints, costs: Floats, leaf: float) -> float:
    """What `grow` makes small: what the shapes take with the tree's kernels, and its leaves."""
    rows = [pick(tree, dict(zip(dims, row, strict=True))) for row in shapes.tolist()]
    penalty = leaf * costs.min(axis=0).sum()
    return float(costs[rows, range(len(rows))].sum() + penalty * len(list(leaves(tree))))


def partitions(count: int) -> Iterator[list[range]]:
    """All ways to cut so many places into pieces."""
    for cuts in range(2 ** (count - 1)):
        ends = [place + 1 for place in range(count - 1) if cuts >> place & 1]
        edges = [0, *ends, count]
        yield [range(a, b) for a, b in pairwise(edges)]


def least_cost(values: Ints, costs: Floats, leaf: float) -> float:
    """Of all partitions of one dimension, each piece with its best kernel."""
    places = np.unique(values[:, 0])
    merged = np.stack([costs[:, values[:, 0] == place].sum(axis=1) for place in places], axis=1)
    penalty = leaf * float(costs.min(axis=0).sum())
    return min(
        sum(float(merged[:, list(piece)].sum(axis=1).min()) + penalty for piece in pieces)
        for pieces in partitions(len(places))
    )


# One dimension.


def test_each_range_gets_its_kernel() -> None:
    costs = np.array([[1.0, 1.0, 9.0, 9.0], [9.0, 9.0, 1.0, 1.0]])
    assert grow(["T"], sizes(4, 8, 16, 32), costs) == Split("T", 8, Leaf(0), Leaf(1))


def test_one_kernel_for_all_needs_no_split() -> None:
    costs = np.array([[1.0, 2.0, 3.0], [2.0, 3.0, 4.0]])
    assert grow(["T"], sizes(4, 8, 16), costs) == Leaf(0)


def test_one_shape_is_a_leaf() -> None:
    assert grow(["T"], sizes(64), np.array([[3.0], [1.0]])) == Leaf(1)


def test_a_split_that_saves_less_than_a_leaf_costs_is_not_made() -> None:
    costs = np.array([[1.0, 1.01], [1.01, 1.0]])
    assert isinstance(grow(["T"], sizes(4, 8), costs, leaf=0.1), Leaf)
    assert isinstance(grow(["T"], sizes(4, 8), costs, leaf=0.001), Split)


def test_the_order_of_the_shapes_does_not_matter() -> None:
    costs = np.array([[1.0, 1.0, 9.0, 9.0], [9.0, 9.0, 1.0, 1.0]])
    order = [2, 0, 3, 1]
    shuffled = grow(["T"], sizes(4, 8, 16, 32)[order], costs[:, order])
    assert shuffled == grow(["T"], sizes(4, 8, 16, 32), costs)


def test_a_kernel_may_serve_two_ranges_with_another_between() -> None:
    costs = np.array([[1.0, 9.0, 1.0], [9.0, 1.0, 9.0]])
    tree = grow(["T"], sizes(1, 2, 3), costs)
    assert [leaf.kernel for leaf in leaves(tree)] == [0, 1, 0]


def test_many_ranges_are_found_by_few_comparisons() -> None:
    costs = np.full((32, 32), 9.0)
    np.fill_diagonal(costs, 1.0)
    tree = grow(["T"], sizes(*range(1, 33)), costs)
    assert [pick(tree, {"T": size}) for size in range(1, 33)] == list(range(32))

    def depth(tree: Tree) -> int:
        return 0 if isinstance(tree, Leaf) else 1 + max(depth(tree.below), depth(tree.above))

    assert depth(tree) == 5


_costs = st.integers(1, 4).flatmap(
    lambda kernels: st.integers(1, 6).flatmap(
        lambda shapes: st.lists(
            st.lists(st.integers(1, 20).map(float), min_size=shapes, max_size=shapes),
            min_size=kernels,
            max_size=kernels,
        ).map(np.array)
    )
)


@given(_costs, st.data(), st.sampled_from([0.0, 0.002, 0.05, 0.5]))
def test_no_partition_of_one_dimension_is_better(
    costs: Floats, data: st.DataObject, leaf: float
) -> None:
    count = costs.shape[1]
    values = sizes(*data.draw(st.lists(st.integers(1, 8), min_size=count, max_size=count)))
    tree = grow(["T"], values, costs, leaf=leaf)
    found = cost(tree, ["T"], values, costs, leaf)
    assert found == pytest.approx(least_cost(values, costs, leaf))


# Several dimensions.


def test_the_dimension_that_matters_is_split() -> None:
    shapes = np.array([[m, n] for m in (1, 64) for n in (1, 64)], dtype=np.int64)
    costs = np.array([[1.0, 9.0, 1.0, 9.0], [9.0, 1.0, 9.0, 1.0]])
    assert grow(["M", "N"], shapes, costs) == Split("N", 1, Leaf(0), Leaf(1))


def test_each_side_of_a_split_is_split_by_what_matters_there() -> None:
    shapes = np.array([[m, n] for m in (1, 64) for n in (1, 64)], dtype=np.int64)
    costs = np.array([[1.0, 1.0, 9.0, 9.0], [9.0, 9.0, 1.0, 9.0], [9.0, 9.0, 9.0, 1.0]])
    tree = grow(["M", "N"], shapes, costs)
    assert tree == Split("M", 1, Leaf(0), Split("N", 1, Leaf(1), Leaf(2)))


@given(_costs, st.data(), st.sampled_from([0.0, 0.002, 0.1]))
def test_a_tree_is_never_worse_than_one_kernel(
    costs: Floats, data: st.DataObject, leaf: float
) -> None:
    count = costs.shape[1]
    row = st.lists(st.integers(1, 5), min_size=2, max_size=2)
    shapes = np.array(data.draw(st.lists(row, min_size=count, max_size=count)), dtype=np.int64)
    tree = grow(["M", "N"], shapes, costs, leaf=leaf)
    alone = cost(Leaf(int(costs.sum(axis=1).argmin())), ["M", "N"], shapes, costs, leaf)
    assert cost(tree, ["M", "N"], shapes, costs, leaf) <= alone + 1e-9


def test_thousands_of_values_are_split_at_some_of_them() -> None:
    count = 2000
    shapes = np.stack([np.arange(1, count + 1), np.ones(count, dtype=np.int64)], axis=1)
    costs = np.where(np.arange(count) < 700, np.array([[1.0], [5.0]]), np.array([[5.0], [1.0]]))
    tree = grow(["M", "N"], shapes, costs)
    served = [pick(tree, {"M": size, "N": 1}) for size in range(1, count + 1)]
    assert costs[served, range(count)].mean() < 1.05


# What a tree is.


def test_shapes_between_and_beyond_the_declared_ones_have_an_answer() -> None:
    """Between two of them the larger one's, beyond the last the last one's."""
    costs = np.array([[1.0, 9.0, 9.0], [9.0, 1.0, 9.0], [9.0, 9.0, 1.0]])
    tree = grow(["T"], sizes(8, 64, 128), costs)
    assert [pick(tree, {"T": size}) for size in (1, 8)] == [0, 0]
    assert [pick(tree, {"T": size}) for size in (9, 64)] == [1, 1]
    assert [pick(tree, {"T": size}) for size in (65, 128, 1_000_000)] == [2, 2, 2]


@pytest.mark.parametrize(("m", "n", "kernel"), [(16, 99, 2), (17, 8, 0), (17, 9, 2), (1, 1, 2)])
def test_the_kernel_of_a_shape(m: int, n: int, kernel: int) -> None:
    assert pick(TREE, {"M": m, "N": n}) == kernel


def test_leaves_from_left_to_right() -> None:
    assert [leaf.kernel for leaf in leaves(TREE)] == [2, 0, 2]
    assert list(leaves(Leaf(7))) == [Leaf(7)]


def test_other_numbers_for_the_same_tree() -> None:
    other = renumber(TREE, {0: 5, 2: 1})
    assert other == Split("M", 16, Leaf(1), Split("N", 8, Leaf(5), Leaf(1)))
    assert renumber(Leaf(3), {3: 0}) == Leaf(0)


def test_a_tree_is_written_as_people_read_it() -> None:
    assert tree_text(Leaf(3)) == "kernel 3"
    assert tree_text(TREE).splitlines() == [
        "if M <= 16:",
        "    kernel 2",
        "else:",
        "    if N <= 8:",
        "        kernel 0",
        "    else:",
        "        kernel 2",
    ]
