"""What is known of templates' settings before a task is measured: a process that learned from many.

It has the covariance of `tuner.cost_models.process`, and thousands of rows of hundreds of tasks. So
it keeps some of them as landmarks, and their weights, which all rows together fix: a subset of
regressors (Rasmussen and Williams, "Gaussian Processes for Machine Learning", 2006, section 8.3.1).
Predictions cost as much as with so few rows. How far to believe the rows they say themselves: of
some noises the one with the greatest marginal likelihood is taken (the same, section 5.4.1). Errors
of one's own have Student's t, as in `tuner.cost_models.gaussian_process`.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from tuner.arrays import Flags, Floats, Floats32, Ints32, Rows
from tuner.cost_models.gaussian_process import FREEDOM, TO_DEVIATION
from tuner.cost_models.process import (
    Scale,
    choose_timed,
    covariance,
    log_estimates,
    scale_of,
)

_LANDMARKS = 512
_NOISES = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
"""Variances that a row's own error may have, as multiples of that of what errors share."""
_MOST = 1.0
"""The largest error that noise is judged by: more is a machine that was busy."""
_ROUNDS = 3
_JITTER = 1e-4
_BLOCK = 128
"""Settings that are predicted at once: their covariances fit a core's cache."""
_DIGITS = 4

Priors = Mapping[str, "PriorModel"]
"""By form of template, see `tuner.candidate.form_of`."""
NO_PRIORS: Priors = MappingProxyType({})


class PriorModel:
    """Predicts the times of settings of one form of template, for tasks that it has not seen.

    Implements `tuner.cost_models.base.CostModel`.

    Args:
        seed: of the landmarks.
    """

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._forget()

    def _forget(self) -> None:
        nothing = np.zeros((0, 2), dtype=np.float32)
        self._keep(np.zeros((2, 2), dtype=np.float32), nothing, np.zeros(0), 0.0)

    def _keep(self, scale: Floats32, landmarks: Floats32, weights: Floats, constant: float) -> None:
        self._scale = Scale(*scale.astype(np.float32))
        self._landmarks = landmarks.astype(np.float32)
        self._weights, self._constant = weights, constant

    def fit(
        self,
        features: Floats32,
        latencies_s: Floats32,
        groups: Ints32,
        censored: Flags | None = None,
    ) -> None:
        """See `CostModel`. A lower bound counts as a time; a candidate that failed does not."""
        del censored
        rows = choose_timed(features, latencies_s, groups)
        if not len(rows.groups):
            self._forget()
            return
        errors, constant = rows.errors()
        scale = scale_of(rows.features)
        points = scale.apply(rows.features)
        chosen = points[_choose(len(points), self._seed)]
        landmarks: Floats32 = chosen.astype(np.float16).astype(np.float32)  # as they are kept
        weights = _weigh(covariance(points, landmarks), covariance(landmarks, landmarks), errors)
        self._keep(np.array([scale.mean, scale.factor]), landmarks, weights, constant)

    def predict(self, features: Floats32) -> Floats32:
        """See `CostModel`."""
        if not len(self._weights):
            return np.zeros(len(features), dtype=np.float32)
        return np.asarray(np.round(-self.means(features), _DIGITS), dtype=np.float32)

    def means(self, features: Floats32) -> Floats:
        """Logarithms of the latencies that some settings are expected to have."""
        estimates = log_estimates(features) + self._constant
        if not len(self._weights):
            return estimates
        points = self._scale.apply(features)
        for first in range(0, len(points), _BLOCK):
            block = slice(first, first + _BLOCK)
            estimates[block] += covariance(points[block], self._landmarks) @ self._weights
        return estimates

    def dump(self) -> bytes:
        """See `CostModel`: an archive of NumPy's."""
        file = io.BytesIO()
        np.savez_compressed(
            file,
            scale=np.array([self._scale.mean, self._scale.factor]),
            landmarks=self._landmarks.astype(np.float16),
            weights=self._weights.astype(np.float32),
            constant=np.array(self._constant),
        )
        return file.getvalue()

    def load(self, data: bytes) -> None:
        """See `CostModel`."""
        with np.load(io.BytesIO(data), allow_pickle=False) as found:
            self._keep(
                found["scale"],
                found["landmarks"],
                found["weights"].astype(np.float64),
                float(found["constant"]),
            )


def load_priors(data: Mapping[str, bytes]) -> Priors:
    """The priors of a base model (`tuner.cost_models.pretrained`)."""
    found = {}
    for form, dumped in data.items():
        found[form] = PriorModel()
        found[form].load(dumped)
    return found


def _weigh(across: Floats, among: Floats, errors: Floats) -> Floats:
    """The weights of landmarks that predict errors; a row that contradicts alike rows says less.

    Args:
        across: covariance of rows with landmarks, `among` of these with each other.
    """
    among = among + _JITTER * np.eye(len(among))
    noise = _likeliest_noise(across, among, np.clip(errors, -_MOST, _MOST))
    weights: Floats = np.zeros(len(among))
    beliefs: Floats = np.ones(len(errors))
    for _ in range(_ROUNDS):
        believed = across * beliefs[:, None]
        normal = believed.T @ across + noise * among
        weights = np.asarray(np.linalg.solve(normal, believed.T @ errors), dtype=np.float64)
        off = errors - across @ weights
        usual = TO_DEVIATION * float(np.median(np.abs(off)))
        beliefs = (FREEDOM + 1.0) / (FREEDOM + np.square(off / max(usual, _JITTER)))
    return weights.astype(np.float32).astype(np.float64)


def _likeliest_noise(across: Floats, among: Floats, errors: Floats) -> float:
    """Of some noises the one with the greatest marginal likelihood."""
    reduced = np.linalg.solve(np.linalg.cholesky(among), across.T)
    values, directions = np.linalg.eigh(reduced @ reduced.T)
    along = directions.T @ (reduced @ errors)
    others = len(errors) - len(values)

    def unlikeliness(noise: float) -> float:
        squares = float(errors @ errors - np.sum(along**2 / (values + noise)))
        spread = np.log(max(squares, _JITTER) / noise / len(errors))
        size = np.log(np.maximum(values, 0.0) + noise).sum() + others * np.log(noise)
        return float(len(errors) * spread + size)

    return min(_NOISES, key=unlikeliness)


def _choose(number: int, seed: int) -> Rows:
    """Some of so many rows, or all."""
    order = np.random.default_rng(seed).permutation(number)
    return np.sort(order[:_LANDMARKS])
