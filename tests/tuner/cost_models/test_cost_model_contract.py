"""Our cost models, and that of the example, keep to the contract; more of the one in use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tuner.cost_models.base import pairwise_accuracy
from tuner.cost_models.prior import PriorModel
from tuner.cost_models.process import ProcessModel
from tuner.cost_models.random_model import RandomModel
from tuner.cost_models.xgb import XgbModel, log_merits
from tuner.testing import CostModelContract
from tuner.testing.cost_model import Rows, failed, rows
from tuner.user_code.find import find_layer
from tuner.user_code.load import load

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "own_cost_model.py"


class TestRandom(CostModelContract):
    made = RandomModel


class TestXgb(CostModelContract):
    made = XgbModel


class TestProcess(CostModelContract):
    made = ProcessModel


class TestPrior(CostModelContract):
    made = PriorModel


class TestTheExamples(CostModelContract):
    made = load(find_layer(str(EXAMPLE), "cost_model"))


class TestXgbModel:
    def accuracy(self, train: Rows, test: Rows) -> float:
        model = XgbModel(0)
        model.fit(*train)
        accuracy = pairwise_accuracy(model.predict(test[0]), test[1], test[2])
        assert accuracy is not None
        return accuracy

    def test_learns_an_order_that_can_be_learned(self) -> None:
        assert self.accuracy(rows(300), rows(100, seed=1)) > 0.85

    def test_tasks_of_very_different_length_do_not_drown_each_other(self) -> None:
        train, test = rows(600, groups=3), rows(300, groups=3, seed=1)
        assert train[1][train[2] == 2].min() > train[1][train[2] == 0].max()
        for group in range(3):
            mine = test[2] == group
            assert self.accuracy(train, (test[0][mine], test[1][mine], test[2][mine])) > 0.85

    def test_failures_that_show_in_the_features_rank_last(self) -> None:
        features, latencies, groups = rows(300)
        doomed = features[:, 4] > 0.5
        latencies[doomed] = np.inf
        model = XgbModel(0)
        model.fit(features, latencies, groups)
        fresh = rows(100, seed=1)[0]
        scores = model.predict(fresh)
        bad = fresh[:, 4] > 0.6
        assert np.median(scores[bad]) < np.quantile(scores[~bad], 0.05)

    def test_failures_that_do_not_show_hardly_cost_accuracy(self) -> None:
        clean, test = rows(300), rows(100, seed=1)
        assert self.accuracy(failed(clean, slice(0, None, 10)), test) > (
            self.accuracy(clean, test) - 0.05
        )

    def test_a_hopeless_outlier_does_not_distort(self) -> None:
        clean, test = rows(300), rows(100, seed=1)
        features, latencies, groups = clean
        slowed = latencies.copy()
        slowed[:15] *= 1e6
        assert self.accuracy((features, slowed, groups), test) > self.accuracy(clean, test) - 0.05

    def test_a_candidate_that_was_cut_off_is_at_least_so_slow(self) -> None:
        """The slow half was cut at one bound; half of it shows by a column of its own."""
        features, latencies, groups = rows(400, columns=4)
        features[:, 2] = np.arange(400) % 2
        latencies = np.where(features[:, 2] > 0, 1e-3 * 16, 1e-3).astype(np.float32)
        cut = np.arange(400) % 4 == 1  # of the slow ones, every other was cut early
        latencies[cut] = 1e-3 * 2
        naive, knowing = XgbModel(0), XgbModel(0)
        naive.fit(features, latencies, groups)
        knowing.fit(features, latencies, groups, cut)
        slow = features[features[:, 2] > 0]
        truth = -np.log(16)
        assert np.abs(knowing.predict(slow) - truth).mean() < 0.2
        assert np.abs(naive.predict(slow) - truth).mean() > 0.5

    def test_a_bound_pushes_a_prediction_down_to_it(self) -> None:
        features = np.array([[0.0], [1.0]] * 100, np.float32)
        latencies = np.array([1.0, 8.0] * 100, np.float32)
        model = XgbModel(0)
        model.fit(features, latencies, np.zeros(200, np.int32), np.array([False, True] * 100))
        fast, cut = model.predict(features[:2])
        assert cut - fast == pytest.approx(-np.log(8), abs=0.1)

    def test_what_was_cut_off_is_no_measure_for_others(self) -> None:
        merits = log_merits(
            np.array([2, 4, 1], np.float32),
            np.zeros(3, np.int32),
            np.array([False, False, True]),
        )
        np.testing.assert_allclose(merits, [0, -np.log(2), 0], atol=1e-6)

    def test_what_it_learns_is_relative_to_the_best_of_each_task(self) -> None:
        latencies = np.array([1, 2, np.inf, 1000, 10, 30, np.inf, 5], np.float32)
        groups = np.array([0, 0, 0, 0, 1, 1, 2, 3], np.int32)
        merits = np.exp(-log_merits(latencies, groups))
        np.testing.assert_allclose(merits[:6], [1, 2, 20, 20, 1, 3], rtol=1e-5)
        assert np.isnan(merits[6:]).all()

    def test_importing_it_does_not_import_xgboost(self) -> None:
        code = "import sys, tuner.cost_models.xgb; sys.exit('xgboost' in sys.modules)"
        assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


class TestPairwiseAccuracy:
    def test_counts_pairs_within_groups_and_ties_half(self) -> None:
        latencies = np.array([1, 2, 3, 1, 9], np.float32)
        groups = np.array([0, 0, 0, 1, 2], np.int32)
        ordered = np.array([3, 2, 1, 0, 0], np.float32)
        assert pairwise_accuracy(ordered, latencies, groups) == 1.0
        assert pairwise_accuracy(-ordered, latencies, groups) == 0.0
        assert pairwise_accuracy(0 * ordered, latencies, groups) == 0.5

    def test_a_pair_whose_faster_one_was_cut_off_is_not_decided(self) -> None:
        latencies, groups = np.array([1, 2, 3], np.float32), np.zeros(3, np.int32)
        scores, cut = np.array([3, 1, 2], np.float32), np.array([False, True, False])
        assert pairwise_accuracy(scores, latencies, groups) == pytest.approx(2 / 3)
        assert pairwise_accuracy(scores, latencies, groups, cut) == 1.0

    def test_says_nothing_where_there_is_no_pair(self) -> None:
        one = np.ones(3, np.float32)
        assert pairwise_accuracy(one, one, np.zeros(3, np.int32)) is None
        assert pairwise_accuracy(one, np.full(3, np.inf, np.float32), one.astype(np.int32)) is None
