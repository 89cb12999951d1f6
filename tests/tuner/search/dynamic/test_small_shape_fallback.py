"""Small shapes: however rare they are, they do not get a kernel that is bad for them, if there is
room for one that is good."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tuner.dynamic.dispatch_tree import Leaf, Split, Tree, grow, leaves, pick
from tuner.search.dynamic.small_shape_fallback import SLOWER, smallest, with_fallback
from tuner.task import Instance

Floats = npt.NDArray[np.float64]

SIZES = (1, 2, 8, 64)
LINE: tuple[Instance, ...] = tuple((("T", size),) for size in SIZES)
GRID: tuple[Instance, ...] = tuple((("M", m), ("N", n)) for m in (1, 4, 32) for n in (1, 4, 32))
LARGE, SMALL = [3.0, 3.0, 3.0, 3.0], [1.0, 1.0, 3.5, 9.0]
"""Two kernels on the shapes of a line."""


def picked(tree: Tree, instances: tuple[Instance, ...]) -> list[int]:
    return [pick(tree, dict(instance)) for instance in instances]


def test_the_smallest_shape_is_that_of_least_volume() -> None:
    assert smallest(LINE) == 0
    assert smallest(LINE[::-1]) == 3
    assert smallest(((("M", 1), ("N", 9)), (("M", 2), ("N", 3)))) == 1


def test_small_shapes_get_a_kernel_that_is_good_for_them() -> None:
    """As far as it is the better one."""
    tree = with_fallback(Leaf(0), LINE, np.array([LARGE, SMALL]), [0, 1], 2)
    assert tree == Split("T", 2, Leaf(1), Leaf(0))


def test_where_there_is_no_room_they_do_without() -> None:
    assert with_fallback(Leaf(0), LINE, np.array([LARGE, SMALL]), [0, 1], 1) == Leaf(0)


def test_a_kernel_that_the_tree_has_already_needs_no_room() -> None:
    """It was not worth a leaf for so little weight."""
    tree = Split("T", 8, Leaf(0), Leaf(1))
    table = np.array([[3.0, 3.0, 3.0, 3.0], [1.0, 4.0, 4.0, 1.0]])
    assert picked(with_fallback(tree, LINE, table, [0, 1], 2), LINE) == [1, 0, 0, 1]


def test_what_is_hardly_slower_is_left_alone() -> None:
    table = np.array([[1.0 + SLOWER, 1.0, 1.0, 1.0], [1.0, 2.0, 2.0, 2.0]])
    assert with_fallback(Leaf(0), LINE, table, [0, 1], 2) == Leaf(0)


def test_a_kernel_that_may_not_join_is_left_out() -> None:
    """It is of another layout."""
    assert with_fallback(Leaf(0), LINE, np.array([LARGE, SMALL]), [0], 2) == Leaf(0)


def test_a_leaf_where_it_is_better_for_all_is_given_over() -> None:
    tree = Split("T", 8, Leaf(0), Leaf(1))
    table = np.array([LARGE, [9.0, 9.0, 9.0, 1.0], [1.0, 1.0, 1.0, 9.0]])
    assert with_fallback(tree, LINE, table, [0, 1, 2], 3) == Split("T", 8, Leaf(2), Leaf(1))


def test_with_several_dimensions_it_is_a_corner() -> None:
    small = [1.0 if dict(i)["M"] * dict(i)["N"] <= 4 else 9.0 for i in GRID]
    tree = with_fallback(Leaf(0), GRID, np.array([[2.0] * 9, small]), [0, 1], 2)
    good = {i for i, kernel in zip(GRID, picked(tree, GRID), strict=True) if kernel == 1}
    assert GRID[0] in good
    assert len(good) == 2, "the row or the column of four, and no shape that would lose"


_tables = hnp.arrays(np.float64, (4, len(GRID)), elements=st.floats(1.0, 10.0))


@settings(deadline=None)
@given(_tables, st.integers(1, 4), st.booleans())
def test_no_shape_loses_and_the_smallest_is_served_well(
    table: Floats, most: int, on_a_line: bool
) -> None:
    instances = LINE if on_a_line else GRID
    table = table[:, : len(instances)]
    values = np.array([[size for _, size in i] for i in instances])
    dims = [name for name, _ in instances[0]]
    before = grow(dims, values, table[:1])
    after = with_fallback(before, instances, table, range(4), most)
    assert len({leaf.kernel for leaf in leaves(after)}) <= most
    columns = range(len(instances))
    was, is_now = (table[picked(tree, instances), columns] for tree in (before, after))
    assert (is_now <= was).all()
    assert most == 1 or is_now[0] <= (1.0 + SLOWER) * table[:, 0].min()
    assert pick(after, {"T": 0, "M": 0, "N": 0}) == pick(after, dict(instances[0]))


def test_one_shape_is_no_special_case() -> None:
    assert with_fallback(Leaf(0), LINE[:1], np.array([[3.0], [1.0]]), [0, 1], 2) == Leaf(1)
