"""Crowding: one where somebody is, none far off, whatever the units of the features."""

from __future__ import annotations

import numpy as np
import pytest

from tuner.arrays import Features
from tuner.search.diversity import crowding


def vector(*values: float) -> Features:
    return np.array(values, dtype=np.float32)


LINE = [vector(float(n), 5.0) for n in range(11)]


def test_the_same_place_is_fully_crowded_and_it_fades_with_distance() -> None:
    near = crowding(LINE, [LINE[0]])
    assert near[0] == 1.0
    assert near == sorted(near, reverse=True)
    assert near[-1] == 0.0


def test_the_nearest_of_those_taken_counts() -> None:
    near = crowding(LINE, [LINE[0], LINE[10]])
    assert near[0] == near[10] == 1.0
    assert min(near) == near[5] < 0.1


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e9])
def test_units_do_not_matter(unit: float) -> None:
    scaled = [vector(unit * float(f[0]), 5.0) for f in LINE]
    assert crowding(scaled, [scaled[3]]) == pytest.approx(crowding(LINE, [LINE[3]]), abs=1e-3)


def test_nothing_taken_crowds_nobody() -> None:
    assert crowding(LINE, []) == [0.0] * len(LINE)
    assert crowding([], LINE) == []


def test_vectors_of_another_length_are_far() -> None:
    assert crowding(LINE, [vector(0.0)]) == [0.0] * len(LINE)


def test_a_pool_in_one_place_is_crowded_by_that_place_only() -> None:
    same = [vector(1.0, 2.0)] * 3
    assert crowding(same, [same[0]]) == [1.0] * 3
    assert crowding(same, [vector(9.0, 9.0)]) == [0.0] * 3
    assert crowding(same[:1], [vector(1.0, 2.1)]) == [0.0]
