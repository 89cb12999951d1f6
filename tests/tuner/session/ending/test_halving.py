"""Successive halving: fewer candidates and more rounds from stage to stage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.session.ending.halving import retimings, stages


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, []),
        (1, [(1, 1)]),
        (2, [(2, 1)]),
        (5, [(5, 1), (3, 1), (2, 2)]),
        (16, [(16, 1), (8, 1), (4, 2), (2, 4)]),
    ],
)
def test_stages(count: int, expected: list[tuple[int, int]]) -> None:
    assert [(s.candidates, len(s.rounds)) for s in stages(count)] == expected


@given(st.integers(1, 200))
def test_no_round_is_made_twice_or_left_out(count: int) -> None:
    rounds = [number for stage in stages(count) for number in stage.rounds]
    assert rounds == list(range(1, 1 + len(rounds)))


@given(st.integers(4, 200))
def test_no_stage_takes_longer_than_the_first(count: int) -> None:
    found = list(stages(count))
    assert all(s.candidates * len(s.rounds) <= 1.5 * count for s in found)
    assert retimings(count) == sum(s.candidates * len(s.rounds) for s in found)
