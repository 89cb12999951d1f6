"""What a measurer of one's own keeps to."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace

import pytest

from spaces.design_space.default_schedule import default_candidate
from spaces.testing import programs
from tuner.candidate import Candidate, CandidateKind
from tuner.measure import Measurer
from tuner.record import Record, Status, Trial
from tuner.task import Task

_PATIENCE_S = 120.0


class MeasurerContract:
    """Subclass it as `Test...` with `made`, which makes a measurer from the tasks; and with
    `target`, canonical JSON, where it does not measure on a CPU."""

    made: Callable[[Sequence[Task]], Measurer]
    target: str = programs.TARGET

    @pytest.fixture
    def measurer(self) -> Iterator[Measurer]:
        """A fresh one, of one task."""
        with closing(type(self).made([programs.task(self.target)])) as found:
            yield found

    def test_every_trial_comes_back_once(self, measurer: Measurer) -> None:
        trials = [self._trial(c) for c in (*_candidates(3, self.target), _NONSENSE)]
        records = _measure(measurer, trials)
        assert Counter(r.trial.key for r in records) == Counter(t.key for t in trials)
        assert measurer.collect(0.05) == []

    def test_what_runs_has_times_and_says_where(self, measurer: Measurer) -> None:
        (record,) = _measure(measurer, [self._default()])
        assert record.measurement.status is Status.OK, record.measurement.error
        assert all(0 < s < 10 for s in record.measurement.samples_s)
        assert record.latency_s is not None
        assert record.provenance.device
        assert measurer.toolchain() == record.provenance.toolchain

    def test_what_is_no_schedule_has_a_reason_and_no_time(self, measurer: Measurer) -> None:
        (record,) = _measure(measurer, [self._trial(_NONSENSE)])
        assert record.latency_s is None
        assert record.measurement.status.failed
        assert record.measurement.error

    def test_a_finalist_is_timed_again(self, measurer: Measurer) -> None:
        once = self._default()
        records = _measure(measurer, [once, replace(once, rung=1)])
        assert sorted(r.trial.rung for r in records) == [0, 1]
        assert {r.measurement.status for r in records} == {Status.OK}

    def test_slots_are_taken_and_given_back(self, measurer: Measurer) -> None:
        before = _free(measurer)
        assert before > 0
        measurer.submit([self._trial(_NONSENSE)])
        assert measurer.free() == before - 1
        _collect(measurer, 1)
        assert _free(measurer) == before

    def test_to_wait_for_nothing_ends(self, measurer: Measurer) -> None:
        started_s = time.monotonic()
        assert measurer.collect(0.1) == []
        assert time.monotonic() - started_s < 60

    def _trial(self, candidate: Candidate) -> Trial:
        return Trial(programs.task(self.target).key, candidate)

    def _default(self) -> Trial:
        return self._trial(default_candidate(programs.task(self.target)))


_NONSENSE = Candidate(CandidateKind.TRACE, "[[0],[]]", "rules:test")


def _candidates(count: int, target: str) -> list[Candidate]:
    drawn = [point.candidate for point in programs.points(count - 1, target)]
    return [default_candidate(programs.task(target)), *drawn]


def _free(measurer: Measurer) -> int:
    """Its free slots, once it has any: workers may take a while to start."""
    return _wait(measurer, [])


def _wait(measurer: Measurer, records: list[Record]) -> int:
    """Its free slots, once it has any; what it hands back meanwhile is added to the records."""
    until_s = time.monotonic() + _PATIENCE_S
    while (free := measurer.free()) <= 0 and time.monotonic() < until_s:
        records += measurer.collect(0.2)
    return free


def _measure(measurer: Measurer, trials: Sequence[Trial]) -> list[Record]:
    records: list[Record] = []
    for trial in trials:
        _wait(measurer, records)
        measurer.submit([trial])
        records += measurer.collect(0.0)
    return records + _collect(measurer, len(trials) - len(records))


def _collect(measurer: Measurer, count: int) -> list[Record]:
    records: list[Record] = []
    until_s = time.monotonic() + _PATIENCE_S
    while len(records) < count:
        assert time.monotonic() < until_s, f"{len(records)} of {count} after a long while"
        records += measurer.collect(1.0)
    return records
