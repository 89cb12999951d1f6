"""A time that contradicts what was expected is taken once more before it counts."""

from __future__ import annotations

import pytest

from tests.tuner.search.dynamic.kernel_world import kernel_candidate, shape
from tuner.record import Measurement, Record, Status, Trial
from tuner.session.remeasure import Remeasurements

TRIAL = Trial("gemm", kernel_candidate((8, 2, "rows")), shape(24))


def timed(latency_s: float, build_s: float = 0.0) -> Record:
    return Record(TRIAL, Measurement(Status.OK, (latency_s,) * 3, build_s=build_s, run_s=0.1))


def failed(status: Status) -> Record:
    samples_s = (9.0,) if status is Status.CENSORED else ()
    return Record(TRIAL, Measurement(status, samples_s, error="why", run_s=0.1))


def test_the_faster_of_two_times_counts_and_all_that_was_spent() -> None:
    for first, second in ((2.0, 1.0), (1.0, 2.0)):
        held = Remeasurements()
        assert held.begin(timed(first, build_s=0.5))
        record = held.settle(timed(second))
        assert record.latency_s == 1.0
        assert record.measurement.build_s == 0.5
        assert record.measurement.run_s == pytest.approx(0.2)
        assert held.left() == []


def test_there_is_no_third_look() -> None:
    held = Remeasurements()
    assert held.begin(timed(2.0))
    assert not held.begin(timed(2.0))


def test_what_was_not_doubted_counts_as_it_is() -> None:
    assert Remeasurements().settle(timed(1.0)) == timed(1.0)


@pytest.mark.parametrize("status", [Status.WRONG, Status.RUN_FAILED, Status.TIMEOUT])
def test_a_kernel_that_fails_the_second_time_has_failed(status: Status) -> None:
    held = Remeasurements()
    held.begin(timed(2.0))
    assert held.settle(failed(status)).measurement.status is status


@pytest.mark.parametrize("status", [Status.LOST, Status.CENSORED])
def test_a_second_look_that_tells_no_better_leaves_the_first(status: Status) -> None:
    held = Remeasurements()
    held.begin(timed(2.0))
    record = held.settle(failed(status))
    assert record.latency_s == 2.0
    assert record.measurement.error == ""


def test_one_that_was_cut_off_for_the_machine_s_sake_gets_its_time() -> None:
    held = Remeasurements()
    held.begin(failed(Status.CENSORED))
    assert held.settle(timed(1.0)).latency_s == 1.0
    held.begin(failed(Status.CENSORED))
    assert held.settle(failed(Status.CENSORED)).measurement.status is Status.CENSORED


def test_who_had_no_second_look_is_not_lost() -> None:
    held = Remeasurements()
    held.begin(timed(2.0))
    assert held.left() == [timed(2.0)]
    assert held.left() == []
