"""The cost model in use: gradient-boosted trees from xgboost, imported in this file only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tuner.arrays import Flags, Floats32, Ints32

_ROUNDS = 300
_FURTHER_ROUNDS = 200
"""Trees on top of a base model, fewer than from nothing: it knows most already."""
_PARAMETERS = {
    # A regression on log latency ranks held-out candidates better than xgboost's ranking
    # objective does, by 0.02 to 0.03 of pairwise accuracy.
    "objective": "reg:squarederror",
    "tree_method": "hist",
    "max_bin": 64,  # as accurate as the default of 256 on noisy times, and three times as fast
    "max_depth": 4,
    "eta": 0.05,
    # There are few rows and hundreds of related columns: sampling columns helps, and is quick.
    "colsample_bynode": 0.2,
    "subsample": 0.7,
    "verbosity": 0,
}
_SLOWEST = 20.0
"""The slowness, relative to the best of the task, at which merits are cut off: the order of
hopeless candidates does not matter, and as outliers they would cost accuracy near the top."""
_FAILED_WEIGHT = 0.1
"""The weight of a candidate without a time, which counts as hopelessly slow. Many failures are the
machine's, or cannot be seen from the features."""


class XgbModel:
    """Ranks candidates of a task by their predicted logarithm of speed.

    Speeds are relative to the best of the same task, so that tasks of any length can be mixed.
    Implements `CostModel`; the same seed and rows give the same model.

    Args:
        seed: of the sampling of rows and columns.
        threads: number of threads for fitting and predicting.
        base: a model as `dump` wrote it, over vectors of the same length, that every fit starts
            from; it is used as it is until the first fit.

    Raises:
        ValueError: the base is not from `dump`.
    """

    def __init__(self, seed: int = 0, *, threads: int = 1, base: bytes = b"") -> None:
        self._seed = seed % 2**31
        import xgboost  # here, so that making a model includes the import's time

        self._xgboost = xgboost
        self._threads = threads
        self._booster: Any = None
        self.load(base)
        self._base: Any = self._booster

    def fit(
        self,
        features: Floats32,
        latencies_s: Floats32,
        groups: Ints32,
        censored: Flags | None = None,
    ) -> None:
        """Learn from measured candidates; forgets earlier fits, but not the base.

        Where no task has two candidates of different latency there is nothing to learn: the model
        is then its base, or scores zero.
        """
        bounded = np.zeros(len(groups), dtype=np.bool_) if censored is None else censored
        merits = log_merits(latencies_s, groups, bounded)
        rows = np.isfinite(merits)
        self._booster = self._base
        if not merits[rows].any():
            return
        weights = np.where(_ran(latencies_s[rows]), 1.0, _FAILED_WEIGHT).astype(np.float32)
        data = self._xgboost.DMatrix(
            features[rows], merits[rows], weight=weights, nthread=self._threads
        )
        parameters = {**_PARAMETERS, "seed": self._seed, "nthread": self._threads}
        if self._base is not None:
            # xgboost does not reset the seed when it continues a model: without this, the same
            # rows would give another model each time.
            parameters["seed_per_iteration"] = True
        objective = None
        if bounded[rows].any():
            objective = _one_sided(merits[rows], weights, bounded[rows])
            if self._base is None:  # xgboost computes this for its own objectives only
                parameters["base_score"] = float(np.average(merits[rows], weights=weights))
        self._booster = self._xgboost.train(
            parameters,
            data,
            _ROUNDS if self._base is None else _FURTHER_ROUNDS,
            xgb_model=self._base,
            obj=objective,
        )

    def predict(self, features: Floats32) -> Floats32:
        """One score for each row; higher is better, comparable within a task."""
        if self._booster is None or len(features) == 0:
            return np.zeros(len(features), dtype=np.float32)
        scores: Floats32 = self._booster.inplace_predict(np.asarray(features, dtype=np.float32))
        return scores.astype(np.float32)

    def dump(self) -> bytes:
        """The model as xgboost's UBJSON; no bytes where nothing was learned."""
        return b"" if self._booster is None else bytes(self._booster.save_raw("ubj"))

    def load(self, data: bytes) -> None:
        """Become the model that `dump` wrote.

        Raises:
            ValueError: the bytes are not from `dump`.
        """
        self._booster = None
        if not data:
            return
        booster = self._xgboost.Booster({"nthread": self._threads})
        try:
            booster.load_model(bytearray(data))
        except self._xgboost.core.XGBoostError as error:
            raise ValueError("not a cost model") from error
        self._booster = booster


def _one_sided(
    merits: Floats32, weights: Floats32, bounded: Flags
) -> Callable[[Floats32, Any], tuple[Floats32, Floats32]]:
    """An objective: the squared error, which is 0 for a bound and any prediction below it.

    A candidate that was cut off has at most its merit: a lower prediction counts as right, a
    higher one is pushed down to the bound.
    """

    def objective(predicted: Floats32, _data: Any) -> tuple[Floats32, Floats32]:
        error = predicted - merits
        error[bounded & (error < 0)] = 0.0
        return weights * error, weights

    return objective


def log_merits(latencies_s: Floats32, groups: Ints32, censored: Flags | None = None) -> Floats32:
    """The value to learn for each row: minus the logarithm of its slowness in its task, bounded.

    Zero is the best of a task. A failure (no finite, positive time) is at the bound. Rows of a
    task in which none ran, or with only one row, are NaN: they tell no order. Slowness is relative
    to the fastest row that was not cut off, unless all were.
    """
    merits = np.full(len(latencies_s), np.nan, dtype=np.float32)
    ran = _ran(latencies_s)
    exact = ran if censored is None else ran & ~censored
    for group in np.unique(groups):
        rows = groups == group
        if rows.sum() < 2 or not (rows & ran).any():
            continue
        timed = rows & exact if (rows & exact).any() else rows & ran
        best_s = float(latencies_s[timed].min())
        slowness = np.where(ran[rows], latencies_s[rows] / best_s, _SLOWEST)
        merits[rows] = -np.log(np.clip(slowness, 1.0, _SLOWEST))
    return merits


def _ran(latencies_s: Floats32) -> Flags:
    return np.isfinite(latencies_s) & (latencies_s > 0)
