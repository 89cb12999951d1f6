"""What is known of kernels: measured times as they are, all others predicted from them."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from tests.tuner.search.dynamic.kernel_world import shape
from tuner.candidate import Candidate, CandidateKind, Draft
from tuner.generations import rung_of
from tuner.measure import Evaluated, OnShapes
from tuner.record import Measurement, Record, Status, Trial
from tuner.search.dynamic.kernel_table import Kernel, Kernels, kernel_of

SIZES = (1, 16, 128)
SHAPES = tuple((shape(size), weight) for size, weight in zip(SIZES, (1.0, 2.0, 5.0), strict=True))
ESTIMATE_S = (1.0, 2.0, 4.0)


def candidate(number: int) -> Candidate:
    return Candidate(CandidateKind.TRACE, json.dumps([number]), "test")


def kernel(number: int) -> Kernel:
    """The nearer the numbers, the more alike."""
    return Kernel(candidate(number), (float(number), 1.0), OnShapes(ESTIMATE_S, "rows"))


def kernels(count: int = 3) -> Kernels:
    table = Kernels(SHAPES)
    for number in range(count):
        assert table.add(kernel(number)) == number
    return table


def record(
    number: int, size: int, *samples_s: float, status: Status = Status.OK, rung: int = 0
) -> Record:
    trial = Trial("task", candidate(number), shape(size), rung)
    return Record(trial, Measurement(status, samples_s))


def forecast(table: Kernels, number: int, size: int) -> tuple[float, float]:
    place = table.place(shape(size))
    assert place is not None
    latencies_s, spreads = table.forecast([number], [place])
    return latencies_s.item(), spreads.item()


# Kernels and shapes by number.


def test_shapes_keep_their_order_and_weights() -> None:
    table = kernels()
    assert table.instances == tuple(shape(size) for size in SIZES)
    assert table.weights.tolist() == [1.0, 2.0, 5.0]
    assert [table.place(shape(size)) for size in (128, 1, 7)] == [2, 0, None]


def test_a_kernel_is_taken_in_once() -> None:
    table = kernels(2)
    assert table.add(kernel(0)) == 0
    assert len(table) == 2
    assert table[1].candidate == candidate(1)
    assert (table.number(candidate(1)), table.number(candidate(9))) == (1, None)


def test_an_answer_with_an_estimate_for_each_shape_is_a_kernel() -> None:
    draft = Draft("task", 1, 1)
    features = np.array([0.0, 1.0], dtype=np.float32)
    told = OnShapes((1.0,), "rows")
    answer = Evaluated(draft, candidate(0), features=features, on_shapes=told)
    assert kernel_of(answer) == Kernel(candidate(0), (0.0, 1.0), told)
    assert kernel_of(Evaluated(draft, candidate(0), on_shapes=told)) is not None
    assert kernel_of(Evaluated(draft, candidate(0), features=features)) is None
    assert kernel_of(Evaluated(draft, error="refused")) is None


def test_a_kernel_has_the_traits_that_its_answer_told_of_each_shape() -> None:
    traits = np.array([[0.5], [2.0]], dtype=np.float32)
    told = OnShapes((1.0, 2.0), traits=traits)
    found = kernel_of(Evaluated(Draft("task", 1, 1), candidate(0), on_shapes=told))
    assert found is not None
    assert found.on_shapes.traits is traits


# What was measured.


def test_before_any_measurement_the_estimates_are_all_there_is() -> None:
    latencies_s, spreads = kernels(2).forecast([1, 0], [2, 0])
    assert latencies_s.tolist() == [[4.0, 1.0], [4.0, 1.0]]
    assert (spreads > 0.1).all()


def test_a_measured_pair_is_as_measured_and_certain() -> None:
    table = kernels()
    table.observe(record(1, 16, 3.0, 3.5, 9.0))
    assert forecast(table, 1, 16) == (3.5, 0.0)
    assert table.time_s(1, 1) == 3.5
    assert table.time_s(1, 0) is None
    assert (table.measured, table.pairs) == ([1], 1)


def test_what_is_measured_of_one_pair_moves_the_others() -> None:
    """All take twice their estimate, as far as anyone knows; a stranger surely less so."""
    table = kernels(9)
    table.observe(record(0, 16, 2 * 2.0))
    for number, size, estimate_s in ((0, 128, 4.0), (1, 16, 2.0), (8, 1, 1.0)):
        assert forecast(table, number, size)[0] == pytest.approx(2 * estimate_s)
    spreads = [forecast(table, n, size)[1] for n, size in ((0, 16), (0, 128), (8, 128))]
    assert spreads == sorted(spreads)


def test_pairs_of_like_traits_are_expected_to_err_alike() -> None:
    """The second kernel is padded where the first is not, and slower than it seems there."""
    padding = ((1.0, 0.0, 0.0), (0.0, 0.0, 1.0), (0.0, 1.0, 0.0))
    table = Kernels(SHAPES)
    for number, shares in enumerate(padding):
        traits = np.array(shares, dtype=np.float32)[:, None]
        table.add(replace(kernel(number), on_shapes=OnShapes(ESTIMATE_S, "rows", traits)))
    for number, shares in enumerate(padding[:2]):
        for size, share, estimate_s in zip(SIZES, shares, ESTIMATE_S, strict=True):
            table.observe(record(number, size, estimate_s * (1.0 + share)))
    slower = [forecast(table, 2, size)[0] / e for size, e in zip(SIZES, ESTIMATE_S, strict=True)]
    assert slower[1] > 1.5
    assert max(slower[0], slower[2]) < 1.3


def test_a_kernel_that_came_later_is_predicted_as_well() -> None:
    table = kernels(2)
    table.observe(record(0, 16, 6.0))
    forecast(table, 1, 16)
    assert forecast(table, table.add(kernel(7)), 16)[0] == pytest.approx(6.0)


def test_nothing_asked_is_nothing_answered() -> None:
    latencies_s, spreads = kernels().forecast([], [0, 1])
    assert latencies_s.shape == spreads.shape == (0, 2)


def test_a_time_of_another_toolchain_is_forgotten_and_not_the_better_of_two() -> None:
    table = kernels()
    for rung, seconds in ((0, 3.0), (1, 1.0), (rung_of(1, 1), 2.5), (rung_of(1, 2), 2.0)):
        table.observe(record(0, 16, seconds, rung=rung))
    assert table.time_s(0, 1) == 2.0


def test_a_time_of_a_higher_rung_takes_the_place_of_one_of_the_search() -> None:
    table = kernels()
    table.observe(record(0, 16, 1.0))
    table.observe(record(0, 16, 5.0, rung=1))
    assert table.time_s(0, 1) == 5.0
    table.observe(record(0, 16, 2.0))
    assert table.time_s(0, 1) == 5.0, "the search has no say any more"


def test_what_finalists_take_does_not_move_the_others() -> None:
    """Each time would be learned from while the next is taken."""
    table = kernels()
    table.observe(record(0, 16, 4.0))
    before = forecast(table, 1, 128)
    table.observe(record(0, 16, 9.0, rung=1))
    table.observe(record(0, 128, 9.0, rung=1))
    assert forecast(table, 1, 128) == before
    assert forecast(table, 0, 128) == (9.0, 0.0)


def test_of_several_timings_of_a_finalist_the_best_counts() -> None:
    table = kernels()
    for rung, seconds in ((1, 5.0), (2, 4.0), (3, 6.0)):
        table.observe(record(0, 16, seconds, rung=rung))
    assert table.time_s(0, 1) == 4.0
    assert table.pairs == 1


def test_a_duplicate_has_the_time_of_its_program() -> None:
    table = kernels()
    table.observe(record(0, 16, 7.0, 8.0, status=Status.DUPLICATE))
    assert table.time_s(0, 1) == 7.0
    assert not table.failed(0)


def test_a_kernel_is_named_by_the_trace_that_was_built() -> None:
    table = kernels()
    built = record(0, 16, 2.0)
    candidate = replace(built.trial.candidate, trace="[[],[]]")
    table.observe(replace(built, trial=replace(built.trial, candidate=candidate)))
    assert table[0].candidate.trace == "[[],[]]"


def test_one_that_was_cut_off_is_as_slow_as_it_was_then() -> None:
    table = kernels()
    table.observe(record(0, 16, 7.0, status=Status.CENSORED))
    assert table.time_s(0, 1) == 7.0
    assert not table.failed(0)


@pytest.mark.parametrize("status", [s for s in Status if s.failed and s is not Status.LOST])
def test_one_that_failed_on_any_shape_is_no_kernel_any_more(status: Status) -> None:
    table = kernels()
    table.observe(record(0, 16, 2.0))
    table.observe(record(0, 128, status=status))
    assert table.failed(0)
    assert table.measured == []


@pytest.mark.parametrize(
    ("status", "sample_s"),
    [(Status.OK, math.nan), (Status.OK, 0.0), (Status.CENSORED, math.inf)],
)
def test_a_time_that_is_none_is_a_failure(status: Status, sample_s: float) -> None:
    table = kernels()
    table.observe(record(0, 16, sample_s, status=status))
    assert table.failed(0)
    assert table.pairs == 0


def test_what_the_machines_lost_says_nothing() -> None:
    table = kernels()
    table.observe(record(0, 16, status=Status.LOST))
    assert not table.failed(0)
    assert table.pairs == 0


def test_records_of_unknown_kernels_and_shapes_are_ignored() -> None:
    table = kernels()
    table.observe(record(9, 16, 1.0))
    table.observe(record(0, 17, 1.0))
    assert table.pairs == 0


def test_a_kernel_that_nobody_asks_about_does_not_change_the_others() -> None:
    """A stranger's features stretch the scale on which kernels are alike."""
    alone, dropped = kernels(4), kernels(4)
    dropped.drop([dropped.add(kernel(900))])
    for table in (alone, dropped):
        table.observe(record(0, 16, 6.0))
        table.observe(record(1, 16, 3.0))
    assert forecast(dropped, 2, 128) == forecast(alone, 2, 128)


def test_a_search_goes_by_the_sample_that_nothing_else_disturbed() -> None:
    medians, fastest = Kernels(SHAPES), Kernels(SHAPES, fastest=True)
    for table in (medians, fastest):
        table.add(kernel(0))
        table.observe(record(0, 16, 2.0, 7.0, 7.5))
    assert (medians.time_s(0, 1), fastest.time_s(0, 1)) == (7.0, 2.0)
