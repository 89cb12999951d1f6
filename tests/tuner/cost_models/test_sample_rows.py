"""Of many rows, those that a cost model is fitted on."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tuner.cost_models.dataset import Examples
from tuner.cost_models.sample_rows import sample_rows


def examples(sizes: list[int], seed: int = 0, failed: float = 0.2) -> Examples:
    """Rows of tasks of so many each, in a mixed order; some without a time."""
    rng = np.random.default_rng(seed)
    groups = rng.permutation(np.repeat(np.arange(len(sizes)), sizes)).astype(np.int32)
    times_s = rng.random(len(groups), dtype=np.float32) + 0.1
    times_s[rng.random(len(groups)) < failed] = np.inf
    features = np.arange(len(groups), dtype=np.float32)[:, None]
    return Examples(features, times_s, groups)


def sampled(rows: Examples, most: int) -> np.ndarray:
    return sample_rows(rows, most, np.random.default_rng(0))


@given(st.lists(st.integers(1, 40), min_size=1, max_size=8), st.integers(1, 120))
def test_as_many_as_may_be_each_once_and_in_order(sizes: list[int], most: int) -> None:
    rows = sampled(examples(sizes), most)
    assert len(rows) == min(most, sum(sizes))
    assert (np.diff(rows) > 0).all()


def test_small_tasks_are_whole_and_large_ones_share_the_rest() -> None:
    rows = examples([1000, 10, 1000])
    kept = np.bincount(rows.groups[sampled(rows, 210)])
    assert kept.tolist() == [100, 10, 100]


def test_the_fastest_and_the_newest_of_each_task_are_among_them_and_some_of_the_others() -> None:
    rows = examples([600, 900])
    kept = sampled(rows, 180)
    for task in (0, 1):
        mine = np.flatnonzero(rows.groups == task)
        fastest = mine[np.argsort(rows.latencies_s[mine])[:30]]
        assert np.isin(fastest, kept).all()
        assert np.isin(mine[-25:], kept).all()
        others = np.setdiff1d(np.intersect1d(mine, kept), np.union1d(fastest, mine[-30:]))
        assert len(others) >= 30
        assert np.isinf(rows.latencies_s[others]).any(), "failures are known, too"


def test_the_same_rows_give_the_same_sample() -> None:
    rows = examples([500, 500])
    assert (sampled(rows, 50) == sampled(rows, 50)).all()
