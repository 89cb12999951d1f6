"""Means, spreads and ratios of comparisons."""

from __future__ import annotations

import pytest

from benchmarks.figures import (
    geometric_mean,
    quotient,
    rank_correlation,
    rate_per_s,
    ratio,
    reached_s,
    spread,
)


def test_the_geometric_mean_of_a_ratio_and_its_inverse_is_one() -> None:
    assert geometric_mean([4.0, 0.25]) == pytest.approx(1.0)
    assert geometric_mean([2.0, 2.0, 16.0]) == pytest.approx(4.0)


@pytest.mark.parametrize("values", [[], [1.0, 0.0], [1.0, -2.0], [1.0, float("inf")]])
def test_there_is_no_geometric_mean_of_nothing_or_of_what_is_no_ratio(values: list[float]) -> None:
    assert geometric_mean(values) is None


def test_a_spread_has_the_median_and_the_quartiles() -> None:
    assert spread([5.0, 1.0, 2.0, 4.0, 3.0], scale=10.0) == {
        "median": 30.0,
        "low": 20.0,
        "high": 40.0,
        "rounds": 5,
    }
    assert spread([7.0])["low"] == 7.0


def test_a_ratio_is_of_medians_and_its_spread_of_rounds() -> None:
    both = ratio([2.0, 4.0, 60.0], [1.0, 1.0, 30.0])
    assert both["of_medians"] == 4.0
    assert both["low"] == 2.0
    assert both["high"] == 3.0
    assert both["rounds"] == 3


def test_a_rate_leaves_out_the_first_events_and_what_came_before_them() -> None:
    times = [100.0, 200.0, 201.0, 202.0, 204.0]
    assert rate_per_s(times, skip=2) == pytest.approx(3 / 4)


@pytest.mark.parametrize("times", [[], [1.0], [1.0, 2.0], [1.0, 2.0, 2.0]])
def test_there_is_no_rate_of_too_few_events_or_of_no_time(times: list[float]) -> None:
    assert rate_per_s(times, skip=2) is None


def test_a_goal_is_reached_by_the_first_that_is_as_fast() -> None:
    timed = [(3.0, 0.5), (1.0, 0.9), (2.0, 0.6), (4.0, 0.1)]
    assert reached_s(timed, 0.6) == 2.0
    assert reached_s(timed, 0.05) is None


def test_a_quotient_of_the_unknown_is_unknown() -> None:
    assert quotient(3.0, 2.0) == 1.5
    assert quotient(None, 2.0) is None
    assert quotient(3.0, None) is None
    assert quotient(3.0, 0.0) is None


def test_ranks_agree_whatever_the_scale_and_equal_values_share_a_place() -> None:
    assert rank_correlation([1.0, 2.0, 9.0], [10.0, 20.0, 21.0]) == pytest.approx(1.0)
    assert rank_correlation([1.0, 2.0, 9.0], [3.0, 2.0, 1.0]) == pytest.approx(-1.0)
    # As scipy.stats.spearmanr says.
    assert rank_correlation([1, 2, 2, 3], [1, 3, 2, 4]) == pytest.approx(0.9486832980505138)
    assert rank_correlation([1.0, 1.0], [3.0, 2.0]) is None
    assert rank_correlation([1.0], [3.0]) is None
