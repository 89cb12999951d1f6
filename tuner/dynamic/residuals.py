"""What a kernel costs on a shape, from few measurements: an estimate, and what it got wrong.

An analytic estimate knows the shape: how many tiles there are, how many chunks for how many cores,
what padding of every axis wastes, the reduction included (DietCode's adaptation cost, MLSys'22,
section 4.2, with the terms it leaves out). What it does not know is learned as the logarithm of
measured over estimated time, by a Gaussian process over pairs of a kernel and a shape. Its
covariance has a part for each way in which two pairs can be alike: kernels with similar features
err alike, on similar shapes more so; all kernels err alike on similar shapes; and a kernel that was
measured errs like itself. So a kernel that was measured on one shape is predicted well on the
others, and one that never was is predicted from its neighbours.

What a pair has for itself alone, be it the way its sizes divide or a machine that was busy when it
was timed, is mostly little and sometimes a lot: Student's t. A pair that contradicts its like says
less about them.

Sources: Rasmussen and Williams, "Gaussian Processes for Machine Learning" (2006), algorithm 2.1;
Lange, Little and Taylor, "Robust Statistical Modeling Using the t Distribution" (1989), whose
expectation and maximisation finds the weights.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]

_ALIKE, _ALIKE_HERE, _SHAPE = 0.35, 0.15, 0.20
"""Shares of the variance that kernels have in common: by features, by features and shape, by
shape."""
_OWN, _OWN_HERE, _PAIR = 0.15, 0.07, 0.08
"""Shares of each kernel's own: on all shapes, on similar ones, on one shape alone."""
_NOISE = 0.02
"""Standard deviation of a measurement's logarithm."""
_LEAST_SPREAD = 0.05
_FREEDOM = 4.0
"""Degrees of freedom of what a pair has for itself."""
_ROUNDS = 5
_SHAPE_REACH = 0.3
"""Of shapes as points in the unit cube of logarithms: how far what is learned of one reaches."""


class Residuals:
    """Measurements of pairs, and what they say of others.

    Args:
        features: one row for each kernel.
        shapes: one row for each shape, the values of its dimensions.
        kernels: of each measured pair, the row of its kernel; `places` that of its shape.
        errors: logarithm of measured over estimated time of each pair.
    """

    def __init__(
        self,
        features: Floats,
        shapes: Floats,
        kernels: Sequence[int],
        places: Sequence[int],
        errors: Sequence[float],
    ) -> None:
        self._likeness = _kernel_likeness(features)
        self._nearness = _shape_nearness(shapes)
        self._kernels = np.asarray(kernels, dtype=np.int64)
        self._places = np.asarray(places, dtype=np.int64)
        values = np.asarray(errors, dtype=np.float64)
        self._mean = float(np.median(values)) if len(values) else 0.0
        spread = float(values.std()) if len(values) > 2 else 0.3
        self._variance = max(spread, _LEAST_SPREAD) ** 2
        self._pair = np.zeros(len(values))
        shared = self._covariance(self._kernels, self._places, self._kernels, self._places)
        own = _own_variances(shared, values - self._mean, self._variance * _PAIR + _NOISE**2)
        self._pair = (own - _NOISE**2) / self._variance
        # A triangle of some hundred rows, asked about hundreds of pairs at a time: multiplying
        # with its inverse is ten times as fast as solving.
        self._inverse = np.linalg.inv(np.linalg.cholesky(shared + np.diag(own)))
        self._weights = self._inverse.T @ (self._inverse @ (values - self._mean))

    def predict(self, kernels: Places, places: Places) -> tuple[Floats, Floats]:
        """Mean and standard deviation of the error of some pairs, as logarithms."""
        across = self._covariance(kernels, places, self._kernels, self._places)
        mean = self._mean + across @ self._weights
        explained = self._inverse @ across.T
        left = self._variance - np.square(explained).sum(axis=0)
        return mean, np.sqrt(np.maximum(left, 0.0))

    def means(self, kernels: Places, places: Places) -> Floats:
        """Means of all pairs of some kernels and shapes: kernels by shapes.

        The same as `predict` has. The covariance is made of products of what kernels and what
        shapes have in common, so hundreds of each take a few products of matrices.
        """
        alike = self._likeness[np.ix_(kernels, self._kernels)] * self._weights
        same = (kernels[:, None] == self._kernels[None, :]) * self._weights
        near = self._nearness[np.ix_(places, self._places)].T
        pair = (places[:, None] == self._places[None, :]).T
        apart = (_ALIKE * alike + _OWN * same).sum(axis=1, keepdims=True)
        here = (_ALIKE_HERE * alike + _OWN_HERE * same + _SHAPE * self._weights) @ near
        return np.asarray(self._mean + self._variance * (apart + here + same * self._pair @ pair))

    def _covariance(self, ka: Places, sa: Places, kb: Places, sb: Places) -> Floats:
        alike = self._likeness[np.ix_(ka, kb)]
        near = self._nearness[np.ix_(sa, sb)]
        same = ka[:, None] == kb[None, :]
        pair = sa[:, None] == sb[None, :]
        shares = alike * (_ALIKE + _ALIKE_HERE * near) + _SHAPE * near
        own = same * (_OWN + _OWN_HERE * near + self._pair * pair)
        return np.asarray(self._variance * (shares + own))


def _own_variances(shared: Floats, values: Floats, usual: float) -> Floats:
    """Variance of what each pair has for itself, given the covariance of what it shares.

    Of a pair whose value the others explain it is a little less than usual; of one that they
    contradict it is about the square of that.
    """
    own = np.full(len(values), usual)
    for _ in range(_ROUNDS if len(values) > 2 else 0):
        inverse = np.linalg.inv(shared + np.diag(own))
        left = own * (inverse @ values)
        unsure = own - np.square(own) * np.diag(inverse)
        own = (_FREEDOM * usual + np.square(left) + unsure) / (_FREEDOM + 1.0)
    return own


def _kernel_likeness(features: Floats) -> Floats:
    """1 for kernels of equal features, falling off with their distance."""
    varying = features[:, np.ptp(features, axis=0) > 0] if len(features) else features
    if not varying.shape[1]:
        return np.ones((len(features), len(features)))
    scaled = (varying - varying.mean(axis=0)) / varying.std(axis=0)
    return np.asarray(np.exp(-_squared_distances(scaled) / (2.0 * scaled.shape[1])))


def _shape_nearness(shapes: Floats) -> Floats:
    """1 for equal shapes, falling off with the ratio of their sizes."""
    sizes = np.log2(1.0 + shapes)
    scaled = (sizes - sizes.min(axis=0)) / np.maximum(np.ptp(sizes, axis=0), 1e-9)
    return np.asarray(np.exp(-_squared_distances(scaled) / (2.0 * _SHAPE_REACH**2)))


def _squared_distances(points: Floats) -> Floats:
    squares = np.square(points).sum(axis=1)
    return np.asarray(
        np.maximum(squares[:, None] + squares[None, :] - 2.0 * points @ points.T, 0.0)
    )
