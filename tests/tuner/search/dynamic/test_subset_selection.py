"""A few kernels for all shapes: never worse than one, and nearly as good as the best set."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tuner.search.dynamic.subset_selection import Selection, select, select_each

Floats = npt.NDArray[np.float64]


def loss(latencies_s: Floats, weights: Floats, chosen: tuple[int, ...]) -> float:
    """As its definition says."""
    ratios = latencies_s[list(chosen)].min(axis=0) / latencies_s.min(axis=0)
    return float((ratios * weights).sum() / weights.sum())


def least(latencies_s: Floats, weights: Floats, most: int) -> float:
    """Of all sets."""
    sets = combinations(range(len(latencies_s)), min(most, len(latencies_s)))
    return min(loss(latencies_s, weights, chosen) for chosen in sets)


def tiles(seed: int, kernels: int = 14, shapes: int = 9) -> tuple[Floats, Floats]:
    """Latencies as they are: whole tiles, each with its own speed, and noise."""
    rng = np.random.default_rng(seed)
    sizes = np.sort(rng.choice(np.arange(1, 257), shapes, replace=False))
    tile = rng.integers(1, 97, kernels)[:, None]
    speed = 1.0 + 8.0 / tile
    padded = -(-sizes[None, :] // tile) * tile
    noise = rng.uniform(1.0, 1.15, (kernels, shapes))
    return 1e-7 * (4.0 + padded * speed) * noise, rng.uniform(0.1, 3.0, shapes)


def test_each_of_two_shapes_gets_its_kernel() -> None:
    found = select(np.array([[1.0, 4.0], [2.0, 2.0], [4.0, 1.0]]), np.ones(2), 2)
    assert set(found.kernels) == {0, 2}
    assert found.loss == 1.0


def test_one_kernel_is_the_best_of_all() -> None:
    found = select(np.array([[1.0, 4.0], [2.0, 2.0], [4.0, 1.0]]), np.ones(2), 1)
    assert found == Selection((1,), (2.0,))


def test_weights_decide_whom_one_kernel_is_for() -> None:
    table = np.array([[1.0, 4.0], [4.0, 1.0]])
    assert select(table, np.array([9.0, 1.0]), 1).kernels == (0,)
    assert select(table, np.array([1.0, 9.0]), 1).kernels == (1,)


def test_a_slow_shape_counts_no_more_than_a_fast_one() -> None:
    """What counts is how many times slower than it could be."""
    table = np.array([[1.0e-6, 2.0e-3], [3.0e-6, 1.0e-3]])
    assert select(table, np.ones(2), 1).kernels == (0,)


def test_a_kernel_that_saves_next_to_nothing_is_left_out() -> None:
    table = np.array([[1.0, 1.0, 1.0002], [9.0, 9.0, 1.0]])
    assert select(table, np.ones(3), 3).kernels == (0,)


def test_the_first_choice_goes_where_two_others_do_better_together() -> None:
    """The middle one is the best alone, and in no best set of two."""
    table = np.array([[1.0, 1.1, 3.0, 3.1], [1.8, 1.8, 1.8, 1.8], [3.1, 3.0, 1.1, 1.0]])
    assert select(table, np.ones(4), 1).kernels == (1,)
    assert set(select(table, np.ones(4), 2).kernels) == {0, 2}


def test_a_kernel_that_cannot_serve_a_shape_is_joined_by_one_that_can() -> None:
    table = np.array([[1.0, np.inf], [3.0, 3.0]])
    assert select(table, np.ones(2), 1).kernels == (1,)
    assert set(select(table, np.ones(2), 2).kernels) == {0, 1}


def test_no_kernels_or_no_room_is_an_empty_set_that_serves_nothing() -> None:
    for found in (select(np.zeros((0, 3)), np.ones(3), 4), select(np.ones((2, 3)), np.ones(3), 0)):
        assert found.kernels == found.losses == ()
        assert found.loss == np.inf


def test_groups_are_never_mixed_and_the_better_one_wins() -> None:
    table = np.array([[1.0, 9.0], [9.0, 1.1], [1.2, 9.0], [9.0, 1.2]])
    found = select(table, np.ones(2), 2, ["a", "b", "b", "b"])
    assert set(found.kernels) == {1, 2}


def test_each_group_has_its_set_with_losses_against_the_best_of_all() -> None:
    table = np.array([[1.0, 1.0], [2.0, 4.0], [4.0, 2.0]])
    found = select_each(table, np.ones(2), 2, ["a", "b", "b"])
    assert found["a"] == Selection((0,), (1.0,))
    assert set(found["b"].kernels) == {1, 2}
    assert found["b"].losses == (3.0, 2.0)


_latencies = hnp.arrays(
    np.float64,
    hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=8),
    elements=st.floats(1e-6, 1e-2),
)


@given(_latencies, st.integers(1, 5), st.data())
def test_any_table_gets_a_sound_set(table: Floats, most: int, data: st.DataObject) -> None:
    kernels, shapes = table.shape
    weights = np.array(data.draw(st.lists(st.floats(0.1, 9), min_size=shapes, max_size=shapes)))
    groups = data.draw(st.lists(st.sampled_from("ab"), min_size=kernels, max_size=kernels))
    found = select(table, weights, most, groups)
    assert 1 <= len(found.kernels) <= most
    assert len(set(found.kernels)) == len(found.kernels) == len(found.losses)
    assert len({groups[kernel] for kernel in found.kernels}) == 1
    assert found.loss == pytest.approx(loss(table, weights, found.kernels))
    single = min(loss(table, weights, (kernel,)) for kernel in range(kernels))
    assert found.loss <= single * (1 + 1e-9)
    assert list(found.losses) == sorted(found.losses, reverse=True)
    assert len(set(found.losses)) == len(found.losses)


@given(_latencies, st.integers(1, 4))
def test_more_kernels_are_never_worse_and_start_from_the_best_single_one(
    table: Floats, most: int
) -> None:
    weights = np.ones(table.shape[1])
    smaller, larger = select(table, weights, most), select(table, weights, most + 1)
    assert larger.losses[: len(smaller.losses)] == smaller.losses
    assert larger.losses[0] == pytest.approx(least(table, weights, 1))


@pytest.mark.parametrize("most", [2, 3, 4])
def test_a_set_is_nearly_as_good_as_the_best_of_all(most: int) -> None:
    over = []
    for seed in range(25):
        table, weights = tiles(seed)
        found, best = select(table, weights, most), least(table, weights, most)
        assert found.loss >= best - 1e-9
        over.append(found.loss / best - 1.0)
    assert max(over) < 0.03
    assert np.mean(over) < 0.005
