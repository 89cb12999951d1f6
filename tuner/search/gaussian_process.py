"""Predicted time of a kernel on a shape: an analytic estimate, corrected from few measurements.

An analytic estimate knows the shape: how many tiles there are, how many chunks for how many cores,
how much padding wastes on every axis, the reduction included (DietCode's adaptation cost, MLSys'22,
section 4.2, with the terms it leaves out). Its error is learned as the logarithm of measured over
estimated time, by a Gaussian process over pairs of a kernel and a shape. The covariance has a part
for each way in which two pairs can be alike: their traits on their shapes, such as the share of
padding or the cache that holds a panel; their kernels' settings; the shapes themselves; and the
kernel, where it is the same. So a kernel that was measured on one shape is predicted well on
others, and a kernel that was never measured is predicted from its neighbours.

The error of a pair that it shares with no other, from the way its sizes divide or from a machine
that was busy when it was timed, is mostly small and sometimes large: Student's t. So a pair that
contradicts similar pairs says less about them.

The shares and reaches have the greatest likelihood on the measurements of fourteen tunings of three
programs; the share of the traits on a shape is by far the largest, and a kernel's own next to
nothing. Predictions of the next pairs of these searches were off by 8.1 %, and by 9.1 % without
traits on shapes; predictions of finalists, of 27 tunings, by 11.4 % in place of 14.1 %.

Sources: Rasmussen and Williams, "Gaussian Processes for Machine Learning" (2006), algorithm 2.1;
Lange, Little and Taylor, "Robust Statistical Modeling Using the t Distribution" (1989), whose
expectation maximisation finds the weights.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tuner.arrays import Floats, Ints

_TRAITS, _KERNELS, _SHAPES = 3.4, 0.85, 0.15
"""Variances that pairs share by their traits, by their kernels' features and by their shapes, as
multiples of the variance of measured errors. They add up to far more than 1, since measured pairs
are alike."""
_OWN, _PAIR = 0.02, 0.05
"""The kernel's own variance and the pair's own, as such multiples."""
_STRANGE = 0.8
"""The likeness of kernels of different spaces whose features and traits are equal: the same knobs
may stand for other loops."""
_TRAITS_REACH, _KERNELS_REACH, _SHAPES_REACH = 2.1, 0.9, 0.1
"""Length scales of the covariance: of traits and features in their standard deviations, of shapes
in the unit cube of logarithms."""
_NOISE = 0.02
"""Standard deviation of a measurement's logarithm."""
_LEAST_SPREAD = 0.05
_FREEDOM = 4.0
"""Degrees of freedom of the pairs' own errors."""
_ROUNDS = 5


class Residuals:
    """The errors of measured pairs, and the prediction of other pairs' errors from them.

    Args:
        features: one row for each kernel.
        spaces: a number for each kernel, the same for kernels of one space.
        traits: of each kernel on each shape: kernels by shapes by traits.
        shapes: one row for each shape, the values of its dimensions.
        kernels: row of the kernel of each measured pair.
        places: row of the shape of each measured pair.
        errors: logarithm of measured over estimated time of each pair.
        least_spread: standard deviation that errors are taken to have at least: those measured so
            far may be of pairs that are all alike.
    """

    def __init__(
        self,
        features: Floats,
        spaces: Sequence[int],
        traits: Floats,
        shapes: Floats,
        kernels: Sequence[int],
        places: Sequence[int],
        errors: Sequence[float],
        least_spread: float = _LEAST_SPREAD,
    ) -> None:
        self._kernels = np.asarray(kernels, dtype=np.int64)
        # Kernels are compared with measured ones alone: there may be thousands of them.
        measured, self._columns = np.unique(self._kernels, return_inverse=True)
        settings, named = _scaled(features, _KERNELS_REACH), np.asarray(spaces)
        self._alike = _likeness(settings, settings[measured])
        self._akin = np.where(np.equal.outer(named, named[measured]), 1.0, _STRANGE)
        self._traits = _scaled(traits, _TRAITS_REACH)
        self._nearness = _shape_nearness(shapes)
        self._places = np.asarray(places, dtype=np.int64)
        values = np.asarray(errors, dtype=np.float64)
        self._mean = float(np.median(values)) if len(values) else 0.0
        spread = float(values.std()) if len(values) > 2 else 0.3
        self._variance = max(spread, least_spread) ** 2
        self._pair = np.zeros(len(values))
        shared = self._covariance(self._kernels, self._places)
        own = _own_variances(shared, values - self._mean, self._variance * _PAIR + _NOISE**2)
        self._pair = (own - _NOISE**2) / self._variance
        # A triangle of some hundred rows is applied to hundreds of pairs at a time: multiplying
        # with its inverse is ten times as fast as solving.
        self._inverse = np.linalg.inv(np.linalg.cholesky(shared + np.diag(own)))
        self._weights = self._inverse.T @ (self._inverse @ (values - self._mean))

    def predict(self, kernels: Ints, places: Ints) -> tuple[Floats, Floats]:
        """Mean and standard deviation of the error of some pairs, as logarithms."""
        across = self._covariance(kernels, places)
        explained = self._inverse @ across.T
        whole = _TRAITS + _KERNELS + _SHAPES + _OWN + _PAIR
        left = self._variance * whole - np.square(explained).sum(axis=0)
        return self._mean + across @ self._weights, np.sqrt(np.maximum(left, 0.0))

    def means(self, kernels: Ints, places: Ints) -> Floats:
        """Mean of the error of some pairs; spares the time that `predict` takes for deviations."""
        return np.asarray(self._mean + self._covariance(kernels, places) @ self._weights)

    def _covariance(self, kernels: Ints, places: Ints) -> Floats:
        """Covariance of some pairs with the measured ones, a row for each of the former."""
        known = np.ix_(kernels, self._columns)
        here = _likeness(self._traits[kernels, places], self._traits[self._kernels, self._places])
        near = self._nearness[np.ix_(places, self._places)]
        same = kernels[:, None] == self._kernels[None, :]
        pair = same & (places[:, None] == self._places[None, :])
        shares = self._akin[known] * (_TRAITS * here + _KERNELS * self._alike[known])
        shares = shares + _SHAPES * near
        return np.asarray(self._variance * (shares + _OWN * same + self._pair * pair))


def _own_variances(shared: Floats, values: Floats, usual: float) -> Floats:
    """The variance of each pair's own error, given the covariance of the shared errors.

    It is a little below `usual` for a pair that the others explain, and grows with the square of
    the residual for a pair that they contradict.
    """
    own = np.full(len(values), usual)
    for _ in range(_ROUNDS if len(values) > 2 else 0):
        inverse = np.linalg.inv(shared + np.diag(own))
        left = own * (inverse @ values)
        unsure = own - np.square(own) * np.diag(inverse)
        own = (_FREEDOM * usual + np.square(left) + unsure) / (_FREEDOM + 1.0)
    return own


def _scaled(points: Floats, reach: float) -> Floats:
    """Points without their constant columns (the last axis), the other columns at one scale."""
    if not points.size:
        return points
    others = tuple(range(points.ndim - 1))
    kept = points[..., np.ptp(points, axis=others) > 0]
    scale = kept.std(axis=others) * reach * np.sqrt(2.0 * kept.shape[-1])
    return np.asarray((kept - kept.mean(axis=others)) / scale)


def _likeness(some: Floats, others: Floats) -> Floats:
    """1 for equal points, falling off with their distance."""
    return np.asarray(np.exp(-_squared_distances(some, others)))


def _shape_nearness(shapes: Floats) -> Floats:
    """1 for equal shapes, falling off with the ratio of their sizes."""
    sizes = np.log2(1.0 + shapes)
    scaled = (sizes - sizes.min(axis=0)) / np.maximum(np.ptp(sizes, axis=0), 1e-9)
    scaled = scaled / (_SHAPES_REACH * np.sqrt(2.0))
    return _likeness(scaled, scaled)


def _squared_distances(some: Floats, others: Floats) -> Floats:
    squares = np.square(some).sum(axis=1)[:, None] + np.square(others).sum(axis=1)[None, :]
    return np.asarray(np.maximum(squares - 2.0 * some @ others.T, 0.0))
