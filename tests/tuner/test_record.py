"""Records, trials and what counts as a time."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from tuner.candidate import Candidate, CandidateKind, of_knobs
from tuner.record import Measurement, Provenance, Record, Status, Trial, record_from_json

TRIAL = Trial("t", Candidate(CandidateKind.TRACE, "[]", "space"), (("m", 4), ("n", 7)), 2)
RECORD = Record(
    TRIAL,
    Measurement(Status.OK, (2.0, 1.0, 9.0), "", 0.5, 0.25),
    Provenance("runner", "cpu", "tvm"),
    attempt=2,
    time_s=12.5,
)


def test_latency_is_the_median_of_the_samples() -> None:
    assert RECORD.latency_s == 2.0
    assert Measurement(Status.OK, (1.0, 2.0)).latency_s == 1.5


@pytest.mark.parametrize("status", [s for s in Status if s is not Status.OK])
def test_only_a_good_measurement_has_a_latency(status: Status) -> None:
    assert Measurement(status, (1.0,)).latency_s is None


@pytest.mark.parametrize("sample", [math.nan, math.inf, -math.inf, -1.0, 0.0])
def test_what_is_no_time_makes_no_latency(sample: float) -> None:
    assert Measurement(Status.OK, (1.0, 1.0, sample)).latency_s is None
    assert Measurement(Status.OK).latency_s is None


def test_a_budget_counts_programs_that_were_built_and_run_and_what_was_lost_for_good() -> None:
    spending = {status.value for status in Status if status.spends_budget}
    assert spending == {"ok", "censored", "wrong", "run_failed", "timeout", "lost"}


def test_a_candidate_failed_unless_its_program_has_a_time() -> None:
    assert {s.value for s in Status if not s.failed} == {"ok", "censored", "duplicate"}


def test_a_line_of_json_comes_back_as_the_record() -> None:
    assert record_from_json(json.dumps(RECORD.to_json())) == RECORD


def test_the_trace_that_a_setting_was_written_as_is_in_its_line() -> None:
    setting = replace(of_knobs({"rows": 6}, "kernel:a"), trace="[[],[]]")
    record = replace(RECORD, trial=replace(TRIAL, candidate=setting))
    again = record_from_json(json.dumps(record.to_json()))
    assert again == record
    assert again.trial.candidate.trace == "[[],[]]"
    assert "trace" not in RECORD.to_json()["candidate"]


def test_the_keys_of_a_line_are_the_documented_ones() -> None:
    line = RECORD.to_json()
    assert {"task", "candidate", "instance", "rung", "status", "seconds", "attempt", "worker"} <= (
        line.keys()
    )
    assert line["time"] == 12.5
    assert line["instance"] == {"m": 4, "n": 7}
    assert line["candidate"]["key"] == TRIAL.candidate.key


@pytest.mark.parametrize(
    "line",
    ["", "[]", "3", "{}", '{"task": "t"}', json.dumps(RECORD.to_json() | {"status": "fine"})],
)
def test_a_line_that_is_no_record_is_a_value_error(line: str) -> None:
    with pytest.raises(ValueError, match=r"not a record|not a valid Status"):
        record_from_json(line)


def test_a_trial_is_known_by_task_candidate_instance_and_rung() -> None:
    other_space = Candidate(CandidateKind.TRACE, "[]", "another space")
    other_kind = Candidate(CandidateKind.PINNED, "[]", "space")
    assert Trial("t", other_space, TRIAL.instance, 2).key == TRIAL.key
    assert Trial("t", other_kind, TRIAL.instance, 2).key != TRIAL.key
    assert Trial("t", TRIAL.candidate, (), 2).key != TRIAL.key
    assert Trial("t", TRIAL.candidate, TRIAL.instance, 0).key != TRIAL.key
