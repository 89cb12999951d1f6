"""The process of settings: estimates corrected by what alike settings took."""

from __future__ import annotations

import numpy as np
import pytest

from tuner.arrays import Features, Floats, Floats32, Ints32
from tuner.cost_models.base import ModelKind
from tuner.cost_models.checkpoints import Checkpoints
from tuner.cost_models.learner import FitPolicy
from tuner.cost_models.process import MOST_LEARNED, ProcessModel

NONE = np.zeros((0, 4), dtype=np.float32)


def settings(count: int, seed: int = 0) -> tuple[Features, Floats]:
    """Settings with two knobs, and their true times: the estimate does not know the second."""
    knobs = np.random.default_rng(seed).uniform(size=(count, 2))
    estimates_s = 1e-3 * (1 + knobs[:, 0])
    features = np.column_stack([np.ones(count), np.log2(estimates_s), knobs]).astype(np.float32)
    return features, estimates_s * 2.0 * np.exp(0.8 * knobs[:, 1])


def learn(count: int, seed: int = 0) -> ProcessModel:
    features, times_s = settings(count, seed)
    model = ProcessModel()
    model.fit(features, times_s.astype(np.float32), np.zeros(count, dtype=np.int32))
    return model


def test_a_few_times_correct_the_estimates_of_the_others() -> None:
    features, times_s = settings(200, seed=1)
    off = learn(20).means(features) - np.log(times_s)
    assert np.abs(off).mean() < 0.05
    assert np.abs(np.log(times_s) - np.log(2) * features[:, 1]).mean() > 0.5


def test_it_is_less_sure_of_what_is_far_from_all_that_was_measured() -> None:
    model = learn(20)
    near, _ = settings(20)
    far = near[:1] + np.array([[0, 0, 5.0, 5.0]], dtype=np.float32)
    assert model.spreads(far, NONE)[0] > 3 * model.spreads(near, NONE).max()


def test_what_is_being_measured_makes_it_surer_of_its_neighbours_only() -> None:
    model = learn(5)
    features, _ = settings(50, seed=1)
    before, after = model.spreads(features, NONE), model.spreads(features, features[:1])
    assert after[0] < 0.9 * before[0]
    assert (after <= before + 1e-9).all()


def test_one_strange_time_among_many_changes_little() -> None:
    features, times_s = settings(40)
    groups = np.zeros(40, dtype=np.int32)
    model, misled = ProcessModel(), ProcessModel()
    model.fit(features, times_s.astype(np.float32), groups)
    times_s[7] *= 3
    misled.fit(features, times_s.astype(np.float32), groups)
    others = np.delete(features, 7, axis=0)
    assert np.abs(misled.means(others) - model.means(others)).mean() < 0.05


def test_tasks_of_different_length_are_learned_together() -> None:
    features, times_s = settings(60)
    groups = (np.arange(60) % 2).astype(np.int32)
    times_s[groups == 1] *= 100
    model = ProcessModel()
    model.fit(features, times_s.astype(np.float32), groups)
    fresh, true_s = settings(50, seed=1)
    order = np.argsort(np.argsort(-model.predict(fresh)))
    assert np.corrcoef(order, np.argsort(np.argsort(true_s)))[0, 1] > 0.95


def test_of_very_many_it_learns_from_the_fastest_of_each_task() -> None:
    features, times_s = settings(3 * MOST_LEARNED)
    groups = (np.arange(len(times_s)) % 3).astype(np.int32)
    times_s = times_s * 10.0**groups
    model = ProcessModel()
    model.fit(features, times_s.astype(np.float32), groups)
    fastest = [np.flatnonzero(groups == g)[np.argmin(times_s[groups == g])] for g in range(3)]
    assert model.spreads(features[fastest], NONE).max() < 0.1


class TestCheckpoints:
    def rows(self, count: int) -> list[tuple[Features, Floats32]]:
        features, times_s = settings(count)
        half = count // 2
        latencies_s = times_s.astype(np.float32)
        return [(features[:half], latencies_s[:half]), (features[half:], latencies_s[half:])]

    def test_one_is_due_after_some_new_times(self) -> None:
        checkpoints = Checkpoints(FitPolicy(first=16, least=8, most=8, rest=0.0))
        due = [n for n in range(40) if checkpoints.take(n, lambda n=n: self.rows(n), None)]
        assert due == [16, 24, 32]

    def test_it_holds_the_process_of_all_tasks(self) -> None:
        taken = Checkpoints().take(40, lambda: self.rows(40), 0.7)
        assert taken is not None
        assert (taken.version, taken.records, taken.kind) == (1, 40, ModelKind.PROCESS)
        assert taken.pairwise_accuracy == pytest.approx(0.7)
        model, whole = ProcessModel(), ProcessModel()
        model.load(taken.model)
        groups: Ints32 = (np.arange(40) // 20).astype(np.int32)
        features, times_s = settings(40)
        whole.fit(features, times_s.astype(np.float32), groups)
        np.testing.assert_array_equal(model.predict(features), whole.predict(features))
