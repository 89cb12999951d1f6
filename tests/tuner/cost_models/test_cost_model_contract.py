"""What every cost model promises, and what the one in use promises on top."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tuner.arrays import Floats32, Ints32
from tuner.cost_models.base import CostModel, pairwise_accuracy
from tuner.cost_models.random_model import RandomModel
from tuner.cost_models.xgb import XgbModel, log_merits

ROOT = Path(__file__).parents[3]
MODELS: dict[str, Callable[[int], CostModel]] = {"random": RandomModel, "xgb": XgbModel}

Rows = tuple[Floats32, Floats32, Ints32]


@pytest.fixture(params=list(MODELS))
def make(request: pytest.FixtureRequest) -> Callable[[int], CostModel]:
    return MODELS[request.param]


def rows(count: int, *, groups: int = 1, columns: int = 12, seed: int = 0) -> Rows:
    """Candidates whose latency follows from two columns and the task they belong to."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(count, columns)).astype(np.float32)
    numbers = np.arange(count, dtype=np.int32) % groups
    features[:, -1] = numbers
    merits = 0.5 * features[:, 0] - 0.5 * np.abs(features[:, 1])
    latencies = np.exp(5.0 * numbers - merits) * 1e-3
    return features, latencies.astype(np.float32), numbers


def failed(data: Rows, which: slice) -> Rows:
    features, latencies, groups = data
    latencies = latencies.copy()
    latencies[which] = np.inf
    return features, latencies, groups


class TestEveryModel:
    def test_scores_zero_before_it_was_fitted(self, make: Callable[[int], CostModel]) -> None:
        scores = make(1).predict(rows(5)[0])
        assert scores.dtype == np.float32
        assert scores.tolist() == [0.0] * 5

    @pytest.mark.parametrize(
        "data",
        [
            rows(200, groups=3),
            rows(8),
            rows(9, groups=9),
            rows(64, columns=2),
            (np.zeros((16, 4), np.float32), rows(16)[1], np.zeros(16, np.int32)),
            failed(rows(20), slice(None)),
            failed(rows(20, groups=2), slice(0, None, 2)),
            (rows(16)[0], np.full(16, 0.5, np.float32), np.zeros(16, np.int32)),
            (rows(16)[0], np.full(16, np.nan, np.float32), np.zeros(16, np.int32)),
        ],
        ids=[
            "many",
            "few",
            "singles",
            "narrow",
            "constant",
            "all-failed",
            "group-failed",
            "all-equal",
            "all-nan",
        ],
    )
    def test_takes_any_rows_and_scores_finitely(
        self, make: Callable[[int], CostModel], data: Rows
    ) -> None:
        model = make(3)
        model.fit(*data)
        scores = model.predict(data[0])
        assert scores.shape == (len(data[0]),)
        assert scores.dtype == np.float32
        assert np.isfinite(scores).all()

    def test_no_rows_no_scores(self, make: Callable[[int], CostModel]) -> None:
        model = make(3)
        model.fit(*rows(32))
        assert model.predict(np.zeros((0, 12), np.float32)).shape == (0,)

    def test_same_seed_and_rows_same_scores(self, make: Callable[[int], CostModel]) -> None:
        scores = []
        for _ in range(2):
            model = make(7)
            model.fit(*rows(100, groups=2))
            scores.append(model.predict(rows(50, seed=1)[0]))
        np.testing.assert_array_equal(scores[0], scores[1])

    def test_a_score_depends_on_its_own_row_only(self, make: Callable[[int], CostModel]) -> None:
        model = make(7)
        model.fit(*rows(100))
        features = rows(20, seed=1)[0]
        np.testing.assert_array_equal(model.predict(features)[5:6], model.predict(features[5:6]))

    @pytest.mark.parametrize("fitted", [True, False])
    def test_another_one_becomes_it_by_its_bytes(
        self, make: Callable[[int], CostModel], fitted: bool
    ) -> None:
        model, other = make(7), make(8)
        if fitted:
            model.fit(*rows(100, groups=2))
        other.fit(*rows(40, seed=5))
        other.load(model.dump())
        features = rows(50, seed=1)[0]
        np.testing.assert_array_equal(model.predict(features), other.predict(features))

    def test_refuses_bytes_that_are_no_model(self, make: Callable[[int], CostModel]) -> None:
        with pytest.raises(ValueError, match="not a cost model"):
            make(0).load(b"{ not a model")


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
