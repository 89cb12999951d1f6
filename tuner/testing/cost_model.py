"""What every cost model keeps to."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tuner.arrays import Floats32, Ints32
from tuner.cost_models.base import CostModel

Rows = tuple[Floats32, Floats32, Ints32]


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


class CostModelContract:
    """Subclass it as `Test...` with `made`, which makes a cost model from a seed."""

    made: Callable[[int], CostModel]

    @pytest.fixture
    def make(self) -> Callable[[int], CostModel]:
        """Makes a cost model from a seed."""
        return type(self).made

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
        with pytest.raises(ValueError):  # noqa: PT011 - in words of its own
            make(0).load(b"{ not a model")
