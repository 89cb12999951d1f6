"""The contract of `tuner.measure.Measurer`, for every implementation."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass

import pytest

from tuner.candidate import Candidate
from tuner.measure import Measurer
from tuner.record import Record, Status, Trial

_PATIENCE_S = 120.0


@dataclass(frozen=True)
class Measuring:
    """A measurer, and what it can be asked to measure.

    Attributes:
        good: candidates that run, at least three.
        invalid: one that cannot be realised.
        twin: one that realises to the program of the first good one; None where nothing is built.
        setting: a setting of a template's knobs; None where nothing is built.
    """

    measurer: Measurer
    task_key: str
    good: tuple[Candidate, ...]
    invalid: Candidate
    twin: Candidate | None = None
    setting: Candidate | None = None

    def collect_all(self, count: int) -> list[Record]:
        """Records of everything in flight."""
        records: list[Record] = []
        until_s = time.monotonic() + _PATIENCE_S
        while len(records) < count:
            assert time.monotonic() < until_s, f"{len(records)} of {count} after a long while"
            records += self.measurer.collect(1.0)
        return records

    def wait_until_free(self) -> None:
        """Workers may take a while to start."""
        until_s = time.monotonic() + _PATIENCE_S
        while self.measurer.free() <= 0:
            assert time.monotonic() < until_s, "no slot became free"
            self.measurer.collect(0.2)


class MeasurerContract:
    """Subclass it as `Test...` with a fixture `measuring`."""

    def test_every_trial_comes_back_once(self, measuring: Measuring) -> None:
        measuring.wait_until_free()
        trials = [Trial(measuring.task_key, c) for c in (*measuring.good, measuring.invalid)]
        measuring.measurer.submit(trials)
        records = measuring.collect_all(len(trials))
        assert Counter(r.trial.key for r in records) == Counter(t.key for t in trials)
        assert measuring.measurer.collect(0.1) == []

    def test_a_good_candidate_has_samples_and_provenance(self, measuring: Measuring) -> None:
        measuring.wait_until_free()
        measuring.measurer.submit([Trial(measuring.task_key, measuring.good[0])])
        (record,) = measuring.collect_all(1)
        assert record.measurement.status is Status.OK
        assert len(record.measurement.samples_s) >= 3
        assert all(s > 0 for s in record.measurement.samples_s)
        assert record.provenance.worker
        assert record.provenance.device
        assert record.provenance.toolchain
        assert record.attempt == 1

    def test_what_cannot_be_realised_is_a_record_with_a_reason(self, measuring: Measuring) -> None:
        measuring.wait_until_free()
        measuring.measurer.submit([Trial(measuring.task_key, measuring.invalid)])
        (record,) = measuring.collect_all(1)
        assert record.measurement.status is Status.INVALID
        assert record.measurement.error
        assert record.latency_s is None

    def test_a_kernel_slower_than_the_cutoff_is_censored(self, measuring: Measuring) -> None:
        measuring.wait_until_free()
        measuring.measurer.submit([Trial(measuring.task_key, measuring.good[0])], cutoff_s=1e-9)
        (record,) = measuring.collect_all(1)
        assert record.measurement.status is Status.CENSORED
        assert record.latency_s is None
        assert record.measurement.samples_s

    def test_the_same_candidate_at_different_rungs_is_different_trials(
        self, measuring: Measuring
    ) -> None:
        measuring.wait_until_free()
        trials = [Trial(measuring.task_key, measuring.good[1], rung=rung) for rung in (0, 1, 2)]
        for trial in trials:
            measuring.measurer.submit([trial])
        records = measuring.collect_all(3)
        assert {r.trial.rung for r in records} == {0, 1, 2}

    def test_a_finalist_is_not_built_again(self, measuring: Measuring) -> None:
        measuring.wait_until_free()
        build_s = []
        for rung in (0, 1, 2):
            measuring.measurer.submit([Trial(measuring.task_key, measuring.good[1], rung=rung)])
            (record,) = measuring.collect_all(1)
            assert record.measurement.status is Status.OK
            build_s.append(record.measurement.build_s)
        assert build_s == [build_s[0]] * 3, "seconds of one and the same build"

    def test_another_candidate_of_a_measured_program_gets_its_samples(
        self, measuring: Measuring
    ) -> None:
        if measuring.twin is None:
            pytest.skip("nothing is built")
        measuring.wait_until_free()
        measuring.measurer.submit([Trial(measuring.task_key, measuring.good[0])])
        (first,) = measuring.collect_all(1)
        measuring.measurer.submit([Trial(measuring.task_key, measuring.twin)])
        (second,) = measuring.collect_all(1)
        assert second.measurement.status is Status.DUPLICATE
        assert second.code_hash == first.code_hash != ""
        assert second.measurement.samples_s
        measuring.measurer.submit([Trial(measuring.task_key, measuring.twin, rung=1)])
        (retimed,) = measuring.collect_all(1)
        assert retimed.measurement.status is Status.OK, "finalists are timed anew"

    def test_a_setting_comes_back_with_the_trace_that_was_built(self, measuring: Measuring) -> None:
        if measuring.setting is None:
            pytest.skip("nothing is built")
        measuring.wait_until_free()
        trial = Trial(measuring.task_key, measuring.setting)
        measuring.measurer.submit([trial])
        (record,) = measuring.collect_all(1)
        assert record.trial == trial
        written = record.trial.candidate.trace
        assert written
        again = Trial(measuring.task_key, record.trial.candidate, rung=1)
        measuring.measurer.submit([again])
        (replayed,) = measuring.collect_all(1)
        assert replayed.code_hash == record.code_hash
        assert replayed.trial.candidate.trace == written

    def test_it_says_what_kernels_are_compiled_with(self, measuring: Measuring) -> None:
        measuring.wait_until_free()
        measuring.measurer.submit([Trial(measuring.task_key, measuring.good[0])])
        (record,) = measuring.collect_all(1)
        assert measuring.measurer.toolchain() == record.provenance.toolchain

    def test_slots_are_taken_and_given_back(self, measuring: Measuring) -> None:
        measuring.wait_until_free()
        before = measuring.measurer.free()
        measuring.measurer.submit([Trial(measuring.task_key, measuring.good[2])])
        assert measuring.measurer.free() == before - 1
        measuring.collect_all(1)
        assert measuring.measurer.free() == before
