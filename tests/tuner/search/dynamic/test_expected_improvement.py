"""The gain of a pair: what a measurement may save, and what it may spare."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.search.expected_improvement import compute_improvement, compute_saving


def test_what_is_known_saves_the_difference_and_never_less_than_nothing() -> None:
    gains = compute_improvement(np.array([[1.0, 3.0]]), np.zeros((1, 2)), np.array([2.0, 2.0]))
    assert gains.tolist() == [[0.5, 0.0]]


def test_what_is_uncertain_may_save_something_even_where_it_should_be_slower() -> None:
    narrow, wide = (
        compute_improvement(np.array([[1.2]]), np.array([[spread]]), np.array([1.0]))
        for spread in (0.05, 0.5)
    )
    assert 0.0 <= narrow.item() < wide.item() < 1.0


def test_a_shape_that_nothing_serves_is_all_gain() -> None:
    gains = compute_improvement(np.array([[5.0]]), np.array([[0.5]]), np.array([np.inf]))
    assert gains.item() == pytest.approx(1.0)


@given(st.floats(0.05, 20.0), st.floats(0.0, 1.0))
def test_the_gain_is_nearly_the_expected_improvement(ratio: float, spread: float) -> None:
    """Against an average over the distribution itself."""
    draws = np.exp(spread * np.random.default_rng(0).standard_normal(20_000))
    expected = np.maximum(1.0 - ratio * draws, 0.0).mean()
    gains = compute_improvement(np.array([[ratio]]), np.array([[spread]]), np.array([1.0]))
    assert gains.item() == pytest.approx(expected, abs=0.05)


def test_what_seems_the_best_is_worth_a_look_only_where_another_could_take_its_place() -> None:
    unsure = np.array([[0.1]])
    alone, far, near = (
        compute_saving(np.array([[1.0]]), unsure, np.array([next_s])).item()
        for next_s in (np.inf, 2.0, 1.05)
    )
    assert alone == 0.0
    assert 0.0 <= far < 0.01 * near
    assert compute_saving(np.array([[1.0]]), np.zeros((1, 1)), np.array([1.05])).item() == 0.0


@given(st.floats(0.2, 1.0), st.floats(0.0, 0.6))
def test_what_is_spared_is_nearly_the_expected_excess(ratio: float, spread: float) -> None:
    draws = np.exp(spread * np.random.default_rng(0).standard_normal(20_000))
    expected = np.maximum(3.0 * ratio * draws - 3.0, 0.0).mean()
    spared_s = compute_saving(np.array([[3.0 * ratio]]), np.array([[spread]]), np.array([3.0]))
    assert spared_s.item() == pytest.approx(expected, abs=0.1)
