"""Programs that have a time already."""

from __future__ import annotations

from dataclasses import replace

from tuner.candidate import of_knobs
from tuner.measure import MeasuredPrograms
from tuner.record import Measurement, Record, Status, Trial

SHAPE = (("n", 4),)
TIMED = Record(
    Trial("task", of_knobs({"rows": 1}, "kernel:a"), SHAPE),
    Measurement(Status.OK, (2.0, 3.0)),
    code_hash="code",
)
TWIN = Trial("task", of_knobs({"rows": 2}, "kernel:a"), SHAPE)


def test_the_twin_of_a_timed_candidate_gets_its_samples() -> None:
    reused = MeasuredPrograms([TIMED]).reused(TWIN, "code", 0.5)
    assert reused == Measurement(Status.DUPLICATE, (2.0, 3.0), build_s=0.5)


def test_another_program_task_or_shape_has_no_time() -> None:
    programs = MeasuredPrograms([TIMED])
    assert programs.reused(TWIN, "other code", 0.5) is None
    assert programs.reused(TWIN, "", 0.5) is None
    assert programs.reused(replace(TWIN, task_key="other"), "code", 0.5) is None
    assert programs.reused(replace(TWIN, instance=()), "code", 0.5) is None


def test_finalists_and_repeated_trials_are_timed_anew() -> None:
    programs = MeasuredPrograms([TIMED])
    assert programs.reused(replace(TWIN, rung=1), "code", 0.5) is None
    assert programs.reused(TIMED.trial, "code", 0.5) is None


def test_only_times_of_the_search_are_given_on() -> None:
    retimed = replace(TIMED, trial=replace(TIMED.trial, rung=1))
    wrong = replace(TIMED, measurement=Measurement(Status.WRONG))
    assert MeasuredPrograms([retimed, wrong]).reused(TWIN, "code", 0.5) is None
