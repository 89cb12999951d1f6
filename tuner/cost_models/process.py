"""The cost model of templates' settings: a Gaussian process on the error of the analytic estimate.

A setting's features hold its estimate, its knobs and its traits (`spaces.features.knob_features`).
What the estimate gets wrong, it gets wrong alike for alike settings. So a few measurements correct
thousands of estimates, and the model says how sure it is, which a search needs more than a score.
"""

from __future__ import annotations

import io
import math
from dataclasses import dataclass

import numpy as np

from tuner.arrays import Flags, Floats, Floats32, Ints32, Rows
from tuner.cost_models.gaussian_process import OWN_SHARE, Process, square_distances

ESTIMATE_COLUMN = 1
"""The column of a setting's features that holds the binary logarithm of its estimate, seconds."""
TRAITS_SHARE, KERNELS_SHARE, SHAPES_SHARE = 3.4, 0.85, 0.15
"""Variances that points share by their traits, by their settings, and by the shapes they are for,
as multiples of the variance of measured errors."""
TRAITS_REACH, KERNELS_REACH = 2.1, 0.9
"""Length scales of the covariance, in standard deviations."""
STRANGE = 0.8
"""The likeness of kernels of different spaces whose features and traits are equal: the same knobs
may stand for other loops."""
_DIGITS = 4
_WHOLE = TRAITS_SHARE + KERNELS_SHARE + SHAPES_SHARE + OWN_SHARE
_LEAST_SPREAD = 0.3
"""Of an estimate's error, as a logarithm: what is measured first is alike, and seems to say more of
the others than it does."""
MOST_LEARNED = 256
"""The most times that a process is fitted to, the fastest of their tasks, which decide: a search
waits for it."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Brings the columns of features to one scale.

    Attributes:
        mean: of each column.
        factor: one over each column's standard deviation and the root of the number of columns
            that vary; 0 for a column that does not.
    """

    mean: Floats32
    factor: Floats32

    def apply(self, features: Floats32) -> Floats32:
        """Points whose squared distance is the mean of their columns' halved squared distances."""
        return (features - self.mean) * self.factor


def scale_of(features: Floats32) -> Scale:
    """The scale of some settings, a row each."""
    spread = features.std(axis=0) if len(features) else np.zeros(features.shape[1])
    vary = spread > 1e-6
    root = math.sqrt(2.0 * max(1, int(vary.sum())))
    factor = np.divide(1.0, spread * root, out=np.zeros_like(spread), where=vary)
    mean = features.mean(axis=0) if len(features) else np.zeros(features.shape[1])
    return Scale(mean.astype(np.float32), factor.astype(np.float32))


class ProcessModel:
    """Predicts the times of settings, of one task or of several, whose errors are learned together.

    Implements `tuner.cost_models.base.CostModel`.

    Args:
        seed: of nothing: the same rows give the same model.
        scale: of the features; None takes that of the rows that are learned from.
    """

    def __init__(self, seed: int = 0, scale: Scale | None = None) -> None:
        del seed
        self._given = scale
        # Nothing is fitted to no rows: a search makes a model for each choice.
        none = np.zeros(0, dtype=np.float32)
        features = np.zeros((0, ESTIMATE_COLUMN + 1), dtype=np.float32)
        self._rows = MeasuredSettings(features, none, none.astype(np.int32))

    def fit(
        self,
        features: Floats32,
        latencies_s: Floats32,
        groups: Ints32,
        censored: Flags | None = None,
    ) -> None:
        """See `CostModel`. A lower bound counts as a time; a candidate that failed does not."""
        del censored
        self._rows = choose_timed(features, latencies_s, groups)
        learned = self._rows.fastest(MOST_LEARNED)
        self._scale = self._given or scale_of(learned.features)
        self._points = self._scale.apply(learned.features)
        errors, self._constant = learned.errors()
        self._process = Process(covariance(self._points, self._points), errors, _LEAST_SPREAD)

    def predict(self, features: Floats32) -> Floats32:
        """See `CostModel`."""
        if not len(self._rows.groups):
            return np.zeros(len(features), dtype=np.float32)
        # Sums differ in their last digits with the number of rows, and between machines.
        return np.asarray(np.round(-self.means(features), _DIGITS), dtype=np.float32)

    def means(self, features: Floats32) -> Floats:
        """Logarithms of the latencies that some settings are expected to have, once fitted."""
        across = covariance(self._scale.apply(features), self._points)
        return log_estimates(features) + self._constant + self._process.means(across)

    def spreads(self, features: Floats32, waiting: Floats32) -> Floats:
        """Standard deviations of these logarithms, once the times of other settings are known."""
        points, others = self._scale.apply(features), self._scale.apply(waiting)
        known = np.concatenate([self._points, others])
        shared, across = covariance(known, known), covariance(points, known)
        return self._process.spreads_beside(shared, across, _WHOLE)

    def dump(self) -> bytes:
        """See `CostModel`: the rows that were learned from, as an archive of NumPy's. Whoever loads
        it scales them by themselves."""
        return self._rows.dump()

    def load(self, data: bytes) -> None:
        """See `CostModel`."""
        with np.load(io.BytesIO(data), allow_pickle=False) as found:
            self.fit(found["features"], found["latencies_s"], found["groups"])


@dataclass(frozen=True, slots=True)
class MeasuredSettings:
    """Settings with their times, and the number of each one's task."""

    features: Floats32
    latencies_s: Floats32
    groups: Ints32

    def dump(self) -> bytes:
        """The model that learns from these rows, as `ProcessModel.load` takes it."""
        file = io.BytesIO()
        np.savez_compressed(
            file, features=self.features, latencies_s=self.latencies_s, groups=self.groups
        )
        return file.getvalue()

    def fastest(self, number: int) -> MeasuredSettings:
        """The rows that are the fastest beside the best of their tasks."""
        if len(self.groups) <= number:
            return self
        beside_best = self.latencies_s.astype(np.float64)
        for of_task in self._tasks():
            beside_best[of_task] /= beside_best[of_task].min()
        kept = np.sort(np.argsort(beside_best, kind="stable")[:number])
        return MeasuredSettings(self.features[kept], self.latencies_s[kept], self.groups[kept])

    def errors(self) -> tuple[Floats, float]:
        """The errors of the estimates without what all of a task have in common, and the mean of
        that over the tasks."""
        errors = np.log(self.latencies_s.astype(np.float64)) - log_estimates(self.features)
        common = []
        for of_task in self._tasks():
            common.append(float(np.median(errors[of_task])))
            errors[of_task] -= common[-1]
        return errors, float(np.mean(common)) if common else 0.0

    def _tasks(self) -> list[Rows]:
        return [np.flatnonzero(self.groups == group) for group in np.unique(self.groups)]


def choose_timed(features: Floats32, latencies_s: Floats32, groups: Ints32) -> MeasuredSettings:
    """Of the rows of a fit those that have a time: a candidate that failed has none."""
    rows = np.flatnonzero(np.isfinite(latencies_s))
    return MeasuredSettings(features[rows], latencies_s[rows], groups[rows])


def log_estimates(features: Floats32) -> Floats:
    return features[:, ESTIMATE_COLUMN].astype(np.float64) * math.log(2.0)


def covariance(some: Floats32, others: Floats32) -> Floats:
    """The covariance of settings' errors, without what is each one's own."""
    apart = square_distances(some, others)
    traits = TRAITS_SHARE * np.exp(apart * np.float32(-1 / TRAITS_REACH**2))
    kernels = KERNELS_SHARE * np.exp(apart * np.float32(-1 / KERNELS_REACH**2))
    return np.asarray(traits + kernels + np.float32(SHAPES_SHARE), dtype=np.float64)
