"""Learners: when they fit, what they report, and that no failure stops them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest

from tuner.candidate import Candidate, CandidateKind
from tuner.cost_models.base import FittedModel
from tuner.cost_models.dataset import Dataset, Examples
from tuner.cost_models.fitter import MOST_ROWS, Fitter
from tuner.cost_models.learner import Accuracy, FitPolicy, InlineLearner, Learner, ProcessLearner
from tuner.cost_models.xgb import XgbModel
from tuner.process.outcome import DeadlinePassed
from tuner.record import Measurement, Record, Status, Trial

RANDOM = "tuner.cost_models.random_model:RandomModel"
EAGER = FitPolicy(rest=0.0)


class Clock:
    """Real time, and leaps on top."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead_s


def grow(dataset: Dataset, count: int, *, tasks: int = 1, columns: int = 6) -> None:
    """Add records whose latency follows from their features."""
    start = len(dataset)
    rng = np.random.default_rng(start)
    for i in range(start, start + count):
        features = rng.normal(size=columns).astype(np.float32)
        candidate = Candidate(CandidateKind.TRACE, f"payload {i}", "test")
        trial = Trial(f"task {i % tasks}", candidate)
        latency_s = float(np.exp(features[0] + 0.5 * features[1]))
        dataset.add(Record(trial, Measurement(Status.OK, (latency_s,))), features)


def wait(learner: Learner, dataset: Dataset, timeout_s: float = 60.0) -> FittedModel:
    until = time.monotonic() + timeout_s
    while time.monotonic() < until:
        learner.offer(dataset)
        if (fitted := learner.poll()) is not None:
            return fitted
        time.sleep(0.005)
    raise AssertionError("no model came")


def wait_until_gone(learner: ProcessLearner, dataset: Dataset, timeout_s: float = 30.0) -> None:
    """Poll until the learner has noticed that its child failed."""
    until = time.monotonic() + timeout_s
    while learner.pid is not None and time.monotonic() < until:
        learner.offer(dataset)
        assert learner.poll() is None
        time.sleep(0.005)
    assert learner.pid is None


class TestPolicy:
    def due(self, records: int, fitted: int, idle_s: float = 99.0, last_fit_s: float = 1.0) -> bool:
        return FitPolicy().due(records, fitted=fitted, idle_s=idle_s, last_fit_s=last_fit_s)

    def test_the_first_fit_waits_for_sixteen_records(self) -> None:
        assert not self.due(15, 0)
        assert self.due(16, 0)

    @pytest.mark.parametrize(
        ("fitted", "due_at"), [(16, 24), (40, 48), (100, 115), (200, 230), (1000, 1032)]
    )
    def test_then_a_share_of_what_there_was_but_neither_few_nor_many(
        self, fitted: int, due_at: int
    ) -> None:
        assert not self.due(due_at - 1, fitted)
        assert self.due(due_at, fitted)

    def test_rests_four_times_as_long_as_the_last_fit_took(self) -> None:
        assert not self.due(1000, 100, idle_s=3.9, last_fit_s=1.0)
        assert self.due(1000, 100, idle_s=4.0, last_fit_s=1.0)


class TestAccuracy:
    def test_waits_until_enough_pairs_came_together(self) -> None:
        accuracy = Accuracy(min_pairs=10)
        assert accuracy.add(4, 5) is None
        assert accuracy.add(4, 5) == 0.8
        assert accuracy.add(1, 5) is None


@pytest.fixture(params=["inline", "process"])
def learner(request: pytest.FixtureRequest) -> Iterator[Learner]:
    made: Learner = (
        InlineLearner(policy=EAGER) if request.param == "inline" else ProcessLearner(policy=EAGER)
    )
    yield made
    made.close()


class TestEveryLearner:
    def test_hands_over_models_by_version_that_score_like_a_fit_in_place(
        self, learner: Learner
    ) -> None:
        dataset = Dataset()
        learner.offer(dataset)
        assert learner.poll() is None
        grow(dataset, 64)
        first = wait(learner, dataset)
        grow(dataset, 64)
        second = wait(learner, dataset)
        assert (first.version, first.records) == (1, 64)
        assert (second.version, second.records) == (2, 128)
        assert second.fit_s > 0
        rows = dataset.snapshot()
        here, there = XgbModel(0), XgbModel(0)
        here.fit(rows.features, rows.latencies_s, rows.groups)
        there.load(second.model)
        np.testing.assert_array_equal(here.predict(rows.features), there.predict(rows.features))

    def test_judges_each_model_by_candidates_it_had_not_seen(self, learner: Learner) -> None:
        dataset = Dataset()
        grow(dataset, 128, tasks=2)
        assert wait(learner, dataset).pairwise_accuracy is None
        grow(dataset, 64, tasks=2)
        accuracy = wait(learner, dataset).pairwise_accuracy
        assert accuracy is not None
        assert 0.7 < accuracy < 1.0

    def test_does_nothing_without_new_records(self, learner: Learner) -> None:
        dataset = Dataset()
        grow(dataset, 16)
        wait(learner, dataset)
        for _ in range(20):
            learner.offer(dataset)
            assert learner.poll() is None

    def test_closes_twice_and_stays_closed(self, learner: Learner) -> None:
        learner.close()
        learner.close()
        assert learner.poll() is None
        assert learner.pid is None


def test_a_model_that_knows_nothing_is_seen_through() -> None:
    learner, dataset = InlineLearner(model=RANDOM, policy=EAGER), Dataset()
    grow(dataset, 100)
    wait(learner, dataset)
    grow(dataset, 100)
    accuracy = wait(learner, dataset).pairwise_accuracy
    assert accuracy is not None
    assert accuracy < 0.6


def test_versions_go_on_where_an_earlier_session_stopped() -> None:
    learner, dataset = InlineLearner(model=RANDOM, last_version=7), Dataset()
    grow(dataset, 16)
    assert wait(learner, dataset).version == 8


def test_a_fitter_that_lost_rows_says_so() -> None:
    dataset = Dataset()
    grow(dataset, 16)
    rows: Examples = dataset.snapshot()
    with pytest.raises(ValueError, match="0 rows are held, not 16"):
        Fitter(RANDOM, 0).fit(16, rows)


def test_a_model_is_fitted_and_judged_on_a_bounded_number_of_rows(flag: Path) -> None:
    import odd_models  # type: ignore[import-not-found]

    dataset = Dataset()
    grow(dataset, 5_000, columns=2)
    rows = dataset.snapshot()
    many = rows
    for _ in range(7):
        many = many.with_more(rows)
    fitter = Fitter("odd_models:Counting", 0)
    assert fitter.fit(0, rows).records == 5_000
    assert fitter.fit(5_000, many).records == 45_000
    assert odd_models.Counting.fitted == [5_000, MOST_ROWS]
    assert max(odd_models.Counting.asked) <= 2_000


ODD_MODELS = """
    import os, signal, sys, time
    from pathlib import Path
    from tuner.cost_models.random_model import RandomModel

    FLAG = Path(__file__).with_name("flag")

    class Odd(RandomModel):
        "Misbehaves in the first fit on real rows after the flag was set."
        def fit(self, features, latencies_s, groups, censored=None):
            super().fit(features, latencies_s, groups, censored)
            if len(features) > 8 and FLAG.exists():
                FLAG.unlink()
                self.misbehave()

    class Hanging(Odd):
        def misbehave(self):
            time.sleep(600)

    class Crashing(Odd):
        def misbehave(self):
            os.kill(os.getpid(), signal.SIGKILL)

    class Raising(Odd):
        def misbehave(self):
            raise RuntimeError("no")

    class Counting(RandomModel):
        "Notes how many rows it is given, and asked about."
        fitted, asked = [], []
        def fit(self, features, latencies_s, groups, censored=None):
            super().fit(features, latencies_s, groups, censored)
            self.fitted.append(len(features))
        def predict(self, features):
            self.asked.append(len(features))
            return super().predict(features)

    class TooSlow(RandomModel):
        "Never comes to an end with many rows."
        def fit(self, features, latencies_s, groups, censored=None):
            super().fit(features, latencies_s, groups, censored)
            if len(features) > 60:
                time.sleep(600)

    class Slow(RandomModel):
        def fit(self, features, latencies_s, groups, censored=None):
            super().fit(features, latencies_s, groups, censored)
            if len(features) > 8:
                time.sleep(0.5)
"""


@pytest.fixture
def flag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "odd_models.py").write_text(dedent(ODD_MODELS))
    monkeypatch.syspath_prepend(str(tmp_path))
    path = tmp_path / "flag"
    path.touch()
    return path


class TestProcessLearner:
    @pytest.mark.parametrize("name", ["Crashing", "Raising", "Hanging"])
    def test_replaces_a_child_that_failed_and_fits_again(self, flag: Path, name: str) -> None:
        clock, pids = Clock(), list[int]()
        learner = ProcessLearner(
            model=f"odd_models:{name}",
            policy=EAGER,
            deadline_s=1.5 if name == "Hanging" else 60.0,
            on_start=pids.append,
            clock=clock,
        )
        try:
            dataset = Dataset()
            assert learner.pid is None, "there is nothing to learn from yet"
            grow(dataset, 32)
            learner.offer(dataset)
            wait_until_gone(learner, dataset)
            assert not flag.exists()
            assert learner.poll() is None
            assert learner.pid is None, "a new child waits for a while"
            clock.ahead_s += 60.0
            fitted = wait(learner, dataset)
            assert (fitted.version, fitted.records) == (1, 32)
            assert pids[-1] == learner.pid
            assert len(set(pids)) == 2
            with pytest.raises(ProcessLookupError):
                os.kill(pids[0], 0)
        finally:
            learner.close()

    def test_outlives_a_child_that_is_killed_while_idle(self) -> None:
        clock = Clock()
        learner, dataset = ProcessLearner(model=RANDOM, policy=EAGER, clock=clock), Dataset()
        try:
            grow(dataset, 16)
            wait(learner, dataset)
            assert learner.pid is not None
            os.kill(learner.pid, signal.SIGKILL)
            grow(dataset, 16)
            wait_until_gone(learner, dataset)
            clock.ahead_s += 60.0
            assert wait(learner, dataset).records == 32
        finally:
            learner.close()

    def test_one_fit_at_a_time_and_the_newest_rows_wait(self, flag: Path) -> None:
        learner, dataset = ProcessLearner(model="odd_models:Slow", policy=EAGER), Dataset()
        try:
            grow(dataset, 16)
            while len(dataset) < 200:
                learner.offer(dataset)
                first = learner.poll()
                if first is not None:
                    break
                time.sleep(0.02)
                if learner.fitting:
                    grow(dataset, 1)
            assert first is not None
            assert first.records == 16
            newest = len(dataset)
            assert newest >= 24
            assert wait(learner, dataset).records == newest
        finally:
            learner.close()

    def test_frozen_time_does_not_count_against_the_deadline(self, flag: Path) -> None:
        clock, frozen = Clock(), [0.0]
        learner = ProcessLearner(
            model="odd_models:Slow",
            policy=EAGER,
            deadline_s=30.0,
            frozen_s=lambda: frozen[0],
            clock=clock,
        )
        try:
            dataset = Dataset()
            grow(dataset, 16)
            while not learner.fitting:
                learner.offer(dataset)
                assert learner.poll() is None
                time.sleep(0.005)
            clock.ahead_s += 1000.0
            frozen[0] += 1000.0
            assert wait(learner, dataset).records == 16
        finally:
            learner.close()

    def test_a_fit_on_too_many_rows_is_tried_on_half_of_them_until_it_ends(
        self, flag: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        clock, dataset = Clock(), Dataset()
        learner = ProcessLearner(
            model="odd_models:TooSlow", policy=EAGER, least_rows=20, clock=clock
        )
        try:
            grow(dataset, 200)
            for _ in range(2):  # 200 rows, 100 rows
                while not learner.fitting:
                    learner.offer(dataset)
                    assert learner.poll() is None
                    time.sleep(0.005)
                clock.ahead_s += 61.0
                wait_until_gone(learner, dataset)
                clock.ahead_s += 60.0
            assert wait(learner, dataset).records == 200
            said = [m for m in caplog.messages if "at most" in m]
            assert [m.split()[-4] for m in said] == ["100", "50"]
        finally:
            learner.close()

    def test_says_why_a_child_went(self, flag: Path, caplog: pytest.LogCaptureFixture) -> None:
        clock = Clock()
        learner, dataset = ProcessLearner(model="odd_models:Hanging", clock=clock), Dataset()
        try:
            grow(dataset, 16)
            while not learner.fitting:
                learner.offer(dataset)
                assert learner.poll() is None
                time.sleep(0.005)
            clock.ahead_s += 61.0
            wait_until_gone(learner, dataset)
            assert str(DeadlinePassed(60.0)) in caplog.text
        finally:
            learner.close()
