"""A Gaussian process over the errors of an analytic estimate, fitted to few measurements. Pure.

An error is the logarithm of measured over estimated time. What errors share is the caller's to say:
of pairs of a kernel and a shape (`tuner.search.dynamic.pair_residuals`), or of the settings of
templates (`tuner.cost_models.process`).

The error of a point that it shares with no other, from the way its sizes divide or from a machine
that was busy when it was timed, is mostly small and sometimes large: Student's t. So a point that
contradicts similar points says less about them.

Sources: Rasmussen and Williams, "Gaussian Processes for Machine Learning" (2006), algorithm 2.1;
Lange, Little and Taylor, "Robust Statistical Modeling Using the t Distribution" (1989), whose
expectation maximisation finds the weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from tuner.arrays import Floats

OWN_SHARE = 0.05
"""A point's own variance, as a multiple of the variance of measured errors. What points share adds
up to far more than 1, since measured ones are alike."""
_NOISE = 0.02
"""Standard deviation of a measurement's logarithm."""
_LEAST_SPREAD = 0.05
FREEDOM = 4.0
"""Degrees of freedom of the points' own errors."""
_ROUNDS = 5
TO_DEVIATION = 1.4826
"""The standard deviation of normal noise over the median of its absolute values."""

_T = TypeVar("_T", np.float32, np.float64)


class Process:
    """The errors of measured points, and the prediction of other points' errors from them.

    Covariances are given and kept as multiples of the variance of measured errors.

    Args:
        shared: covariance of the measured points' errors, without what is each one's own.
        errors: of the measured points.
        least_spread: standard deviation that errors are taken to have at least: those measured so
            far may be of points that are all alike.

    Attributes:
        own: each measured point's own variance, without a measurement's noise.
    """

    def __init__(
        self, shared: Floats, errors: Sequence[float] | Floats, least_spread: float = _LEAST_SPREAD
    ) -> None:
        values = np.asarray(errors, dtype=np.float64)
        self._mean = float(np.median(values)) if len(values) else 0.0
        spread = float(values.std()) if len(values) > 2 else 0.3
        self._variance = max(spread, least_spread) ** 2
        self._noise = _NOISE**2 / self._variance
        own = _own_variances(
            shared, (values - self._mean) / np.sqrt(self._variance), OWN_SHARE + self._noise
        )
        self.own = own - self._noise
        # A triangle of some hundred rows is applied to hundreds of points at a time: multiplying
        # with its inverse is ten times as fast as solving.
        self._inverse = _inverse(shared + np.diag(own))
        self._weights = self._inverse.T @ (self._inverse @ (values - self._mean))

    def means(self, across: Floats) -> Floats:
        """Mean of the error of some points.

        Args:
            across: their covariance with the measured points, a row for each of the former.
        """
        return np.asarray(self._mean + across @ self._weights)

    def predict(self, across: Floats, whole: float) -> tuple[Floats, Floats]:
        """Mean and standard deviation of the error of some points, as logarithms.

        Args:
            across: as for `means`.
            whole: the variance of a point's error before anything was measured.
        """
        return self.means(across), self._spreads(self._inverse, across, whole)

    def spreads_beside(self, shared: Floats, across: Floats, whole: float) -> Floats:
        """Standard deviation of the error of some points once others are measured too. Means stay
        as they are: what is still measured is expected to come as predicted.

        Args:
            shared: covariance of the measured points, followed by those others.
            across: of some points with all of these.
        """
        more = len(shared) - len(self.own)
        own = np.append(self.own, np.full(more, OWN_SHARE)) + self._noise
        return self._spreads(_inverse(shared + np.diag(own)), across, whole)

    def _spreads(self, inverse: Floats, across: Floats, whole: float) -> Floats:
        explained = np.square(inverse @ across.T).sum(axis=0)
        return np.asarray(np.sqrt(self._variance * np.maximum(whole - explained, 0.0)))


def _inverse(covariance: Floats) -> Floats:
    """The inverse of the lower triangle of a covariance."""
    return np.asarray(np.linalg.inv(np.linalg.cholesky(covariance)))


def _own_variances(shared: Floats, values: Floats, usual: float) -> Floats:
    """The variance of each point's own error, given the covariance of the shared errors.

    It is a little below `usual` for a point that the others explain, and grows with the square of
    the residual for a point that they contradict.
    """
    own = np.full(len(values), usual)
    for _ in range(_ROUNDS if len(values) > 2 else 0):
        inverse = np.linalg.inv(shared + np.diag(own))
        left = own * (inverse @ values)
        unsure = own - np.square(own) * np.diag(inverse)
        own = (FREEDOM * usual + np.square(left) + unsure) / (FREEDOM + 1.0)
    return own


def square_distances(some: npt.NDArray[_T], others: npt.NDArray[_T]) -> npt.NDArray[_T]:
    """Squares of the distances between rows of two matrices."""
    squares = np.square(some).sum(axis=1)[:, None] + np.square(others).sum(axis=1)[None, :]
    apart: npt.NDArray[_T] = np.maximum(squares - 2.0 * some @ others.T, 0.0)
    return apart


def rescale(points: Floats, reach: float) -> Floats:
    """Points without their constant columns (the last axis), the other columns at one scale."""
    if not points.size:
        return points
    others = tuple(range(points.ndim - 1))
    kept = points[..., np.ptp(points, axis=others) > 0]
    scale = kept.std(axis=others) * reach * np.sqrt(2.0 * kept.shape[-1])
    return np.asarray((kept - kept.mean(axis=others)) / scale)
