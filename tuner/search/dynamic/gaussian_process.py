"""What a kernel costs on a shape, from few measurements: an estimate, and what it got wrong.

An analytic estimate knows the shape: how many tiles there are, how many chunks for how many cores,
what padding of every axis wastes, the reduction included (DietCode's adaptation cost, MLSys'22,
section 4.2, with the terms it leaves out). What it does not know is learned as the logarithm of
measured over estimated time, by a Gaussian process over pairs of a kernel and a shape. Its
covariance has a part for each way in which two pairs can be alike: what is the same of them on
their shapes, such as how much is padded, or which cache holds a panel; their kernels' settings; the
shapes themselves; and a kernel is like itself. So a kernel that was measured on one shape is
predicted well on others, and one that never was is predicted from its neighbours.

What a pair has for itself alone, be it the way its sizes divide or a machine that was busy when it
was timed, is mostly little and sometimes a lot: Student's t. A pair that contradicts its like says
less about them.

The shares and reaches are those of the greatest likelihood of what fourteen tunings of three
programs had measured; that of the traits on a shape is by far the largest, and a kernel's own next
to nothing. Predictions of the next pairs of these searches were off by 8.1 % with them in place of
9.1 %, without traits on shapes; those of finalists, of 27 tunings, by 11.4 in place of 14.1 %.

Sources: Rasmussen and Williams, "Gaussian Processes for Machine Learning" (2006), algorithm 2.1;
Lange, Little and Taylor, "Robust Statistical Modeling Using the t Distribution" (1989), whose
expectation and maximisation finds the weights.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tuner.arrays import Floats, Ints

_TRAITS, _KERNELS, _SHAPES = 3.4, 0.85, 0.15
"""Variances that pairs have in common, for each of what measured errors have: by their traits, by
their kernels' features, by shape. Together far more, since what was measured is alike."""
_OWN, _PAIR = 0.02, 0.05
"""Variances of each kernel's own, and of each pair's."""
_STRANGE = 0.8
"""How alike kernels of different spaces are, whose features and traits are the same: the same knobs
may stand for other loops there."""
_TRAITS_REACH, _KERNELS_REACH, _SHAPES_REACH = 2.1, 0.9, 0.1
"""How far what is learned reaches: of traits and features in their standard deviations, of shapes
in the unit cube of logarithms."""
_NOISE = 0.02
"""Standard deviation of a measurement's logarithm."""
_LEAST_SPREAD = 0.05
_FREEDOM = 4.0
"""Degrees of freedom of what a pair has for itself."""
_ROUNDS = 5


class Residuals:
    """Measurements of pairs, and what they say of others.

    Args:
        features: one row for each kernel.
        spaces: a number for each kernel, the same for kernels of one space.
        traits: of each kernel on each shape: kernels by shapes by traits.
        shapes: one row for each shape, the values of its dimensions.
        kernels: of each measured pair, the row of its kernel; `places` that of its shape.
        errors: logarithm of measured over estimated time of each pair.
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
    ) -> None:
        settings = _scaled(features, _KERNELS_REACH)
        self._alike = _likeness(settings, settings)
        self._akin = np.where(np.equal.outer(spaces, spaces), 1.0, _STRANGE)
        self._traits = _scaled(traits, _TRAITS_REACH)
        self._nearness = _shape_nearness(shapes)
        self._kernels = np.asarray(kernels, dtype=np.int64)
        self._places = np.asarray(places, dtype=np.int64)
        values = np.asarray(errors, dtype=np.float64)
        self._mean = float(np.median(values)) if len(values) else 0.0
        spread = float(values.std()) if len(values) > 2 else 0.3
        self._variance = max(spread, _LEAST_SPREAD) ** 2
        self._pair = np.zeros(len(values))
        shared = self._covariance(self._kernels, self._places)
        own = _own_variances(shared, values - self._mean, self._variance * _PAIR + _NOISE**2)
        self._pair = (own - _NOISE**2) / self._variance
        # A triangle of some hundred rows, asked about hundreds of pairs at a time: multiplying
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
        """Mean of the error of some pairs, without what their deviation takes."""
        return np.asarray(self._mean + self._covariance(kernels, places) @ self._weights)

    def _covariance(self, kernels: Ints, places: Ints) -> Floats:
        """Of some pairs with those that were measured: one row each."""
        known = np.ix_(kernels, self._kernels)
        here = _likeness(self._traits[kernels, places], self._traits[self._kernels, self._places])
        near = self._nearness[np.ix_(places, self._places)]
        same = kernels[:, None] == self._kernels[None, :]
        pair = same & (places[:, None] == self._places[None, :])
        shares = self._akin[known] * (_TRAITS * here + _KERNELS * self._alike[known])
        shares = shares + _SHAPES * near
        return np.asarray(self._variance * (shares + _OWN * same + self._pair * pair))


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


def _scaled(points: Floats, reach: float) -> Floats:
    """Points, their last axis the columns, of which those that vary are brought to one scale."""
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
