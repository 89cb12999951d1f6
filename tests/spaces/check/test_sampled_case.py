"""Who is wrong where two kernels differ is decided by what the program computes there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from spaces.check.case import Case
from spaces.check.draws import Argument, Array
from spaces.check.elements.places import choose_places, near_places
from spaces.check.elements.stages import Unevaluable
from spaces.check.sampled_case import SampledCase
from spaces.check.sampled_program import Sample
from spaces.check.stored import Places

SHAPE = (40, 50)
BOUND = 1e-3


class Program:
    """Knows all elements, and what it was asked for; `bounds` are relative to the elements."""

    def __init__(self, dtype: str = "float32", exact: bool = False) -> None:
        random = np.random.default_rng(0)
        self.want = random.uniform(10, 100, SHAPE).astype(dtype)
        self.bounds = None if exact else np.abs(self.want).astype(np.float32) * BOUND
        self.asked: list[int] = []
        self.most = 1 << 30

    def sample(self, places: Places) -> Sample:
        where = np.ix_(*places)
        bound = None if self.bounds is None else self.bounds[where]
        return Sample(places, self.want[where], bound)

    def compute(self, wanted: Mapping[int, Places]) -> dict[int, Sample]:
        (places,) = wanted.values()
        count = int(np.prod([len(indices) for indices in places]))
        if count > self.most:
            raise Unevaluable("it would take long")
        self.asked.append(count)
        return {1: self.sample(places)}

    def case(self, most: int = 16) -> SampledCase:
        dtype = str(self.want.dtype)
        arguments = (Argument("x", (1,), dtype, False), Argument("y", SHAPE, dtype, True))
        inputs = Case(arguments, (np.ones(1, dtype), None), {}, {})
        samples = {1: self.sample(choose_places(SHAPE, "seed", most))}
        return SampledCase(inputs, samples, self.compute)


def unknown(case: SampledCase) -> tuple[int, int]:
    """An element that is not among those that are known."""
    rows, columns = (set(indices.tolist()) for indices in case._samples[1].places)
    return min(set(range(40)) - rows), min(set(range(50)) - columns)


def changed(array: Array, at: tuple[int, int], by: float) -> Array:
    found = array.copy()
    found[at] += by
    return found


@pytest.mark.parametrize("exact", [False, True])
def test_before_any_kernel_was_judged_known_elements_decide(exact: bool) -> None:
    program = Program("int32" if exact else "float32", exact)
    case = program.case()
    at = (0, SHAPE[1] - 1)
    assert case.wrong(1, program.want) is None
    assert case.wrong(1, changed(program.want, unknown(case), 50)) is None
    error = case.wrong(1, changed(program.want, at, 50))
    assert error is not None
    assert str(at) in error, "named by its place in the whole output"
    assert case.whole is None


@pytest.mark.parametrize("exact", [False, True])
def test_the_one_that_is_off_is_wrong(exact: bool) -> None:
    program = Program("int32" if exact else "float32", exact)
    case = program.case()
    case.keep(b"right", {1: program.want.copy()})
    error = case.wrong(1, changed(program.want, unknown(case), 50))
    assert error is not None
    assert str(unknown(case)) in error
    assert case.is_by(b"right")
    assert case.take_disproved() == set()
    assert len(program.asked) == 1


@pytest.mark.parametrize("exact", [False, True])
def test_the_judged_one_may_be_the_one_that_is_off(exact: bool) -> None:
    program = Program("int32" if exact else "float32", exact)
    case = program.case()
    case.keep(b"faulty", {1: changed(program.want, unknown(case), 50)})
    assert case.wrong(1, program.want) is None
    assert case.take_disproved() == {b"faulty"}
    assert case.take_disproved() == set()
    assert case.whole is None


def test_one_that_never_wrote_an_element_is_wrong() -> None:
    program = Program()
    case = program.case()
    case.keep(b"right", {1: program.want.copy()})
    assert case.wrong(1, changed(program.want, unknown(case), np.nan)) is not None


def test_right_kernels_may_differ_more_where_they_may_err_more() -> None:
    """Errors of a kind that no known element shows: they are computed once, and known then."""
    program = Program()
    case = program.case()
    at = unknown(case)
    assert program.bounds is not None
    program.bounds[at[0]] *= 100
    case.keep(b"right", {1: program.want.copy()})
    other = changed(program.want, at, float(program.bounds[at]) * 0.9)
    assert case.wrong(1, other) is None
    assert case.wrong(1, other) is None
    assert len(program.asked) == 1
    assert case.wrong(1, changed(program.want, at, float(program.bounds[at]) * 1.1)) is not None


def test_a_row_that_is_large_may_err_more() -> None:
    program = Program()
    program.want[7] *= 1000
    program.want[7, 20] = 0.1
    program.bounds = np.full(SHAPE, BOUND, np.float32)
    program.bounds[7] *= 1000
    case = program.case()
    case.keep(b"right", {1: program.want.copy()})
    assert case.wrong(1, changed(program.want, (7, 20), 0.5)) is None
    assert program.asked == [], "it was within what is estimated"


def test_fewer_elements_are_computed_where_more_would_take_long() -> None:
    program = Program()
    case = program.case()
    case.keep(b"right", {1: program.want.copy()})
    program.most = 4
    spoilt = program.want.copy()
    spoilt[20:, 20:] += 50
    assert case.wrong(1, spoilt) is not None
    assert max(program.asked) <= 4


def test_kernels_that_differ_everywhere_are_settled_in_a_few_rounds() -> None:
    program = Program()
    case = program.case()
    case.keep(b"right", {1: program.want.copy()})
    assert program.bounds is not None
    program.bounds *= 100
    assert case.wrong(1, program.want * np.float32(1 + 50 * BOUND)) is None
    assert len(program.asked) <= 4


@pytest.mark.parametrize(
    "shape", [(4096, 4096), (8, 128, 56, 56), (1, 7), (1 << 20,), (3, 1, 5), ()]
)
def test_places_have_both_ends_of_each_axis_and_are_not_too_many(shape: tuple[int, ...]) -> None:
    places = choose_places(shape, "seed", 4096)
    assert np.prod([len(indices) for indices in places]) <= 4096
    for extent, indices in zip(shape, places, strict=True):
        assert {0, extent - 1} <= set(indices.tolist()) <= set(range(extent))
        assert (np.diff(indices) > 0).all()
    again, other = choose_places(shape, "seed", 4096), choose_places(shape, "other", 4096)
    assert all(map(np.array_equal, places, again))
    if max(shape, default=0) > 1000:
        assert not all(map(np.array_equal, places, other))


def test_places_lie_on_both_sides_of_the_boundaries_of_tiles() -> None:
    sides: set[Any] = set()
    for seed in range(20):
        (rows, _) = choose_places((1000, 1000), str(seed), 1024)
        sides |= {(tile, int(row % tile)) for row in rows for tile in (16, 32, 64, 128)}
    assert {(t, side) for t in (16, 32, 64, 128) for side in (0, t - 1)} <= sides


def test_near_places_hold_the_first_of_what_was_found() -> None:
    found = np.array([[3, 4], [3, 9], [8, 4], [0, 0]])
    assert [each.tolist() for each in near_places(found, (10, 10), 1)] == [[3], [4]]
    assert [each.tolist() for each in near_places(found, (10, 10), 4)] == [[3, 8], [4, 9]]
