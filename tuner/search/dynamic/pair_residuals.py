"""Predicted time of a kernel on a shape: an analytic estimate, corrected from few measurements.

An analytic estimate knows the shape: how many tiles there are, how many chunks for how many cores,
how much padding wastes on every axis, the reduction included (DietCode's adaptation cost, MLSys'22,
section 4.2, with the terms it leaves out). Its error is learned by a Gaussian process over pairs of
a kernel and a shape (`tuner.cost_models.gaussian_process`). The covariance has a part for each way
in which two pairs can be alike: their traits on their shapes, such as the share of padding or the
cache that holds a panel; their kernels' settings; the shapes themselves; and the kernel, where it
is the same. So a kernel that was measured on one shape is predicted well on others, and a kernel
that was never measured is predicted from its neighbours.

The shares and reaches have the greatest likelihood on the measurements of fourteen tunings of three
programs; the share of the traits on a shape is by far the largest, and a kernel's own next to
nothing. Predictions of the next pairs of these searches were off by 8.1 %, and by 9.1 % without
traits on shapes; predictions of finalists, of 27 tunings, by 11.4 % in place of 14.1 %.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tuner.arrays import Floats, Ints
from tuner.cost_models.gaussian_process import OWN_SHARE, Process, rescale, square_distances
from tuner.cost_models.process import (
    KERNELS_REACH,
    KERNELS_SHARE,
    SHAPES_SHARE,
    STRANGE,
    TRAITS_REACH,
    TRAITS_SHARE,
)

_OWN = 0.02
"""The kernel's own variance, as a multiple of that of measured errors."""
_SHAPES_REACH = 0.1
"""Length scale of the covariance in the unit cube of logarithms of shapes."""
_WHOLE = TRAITS_SHARE + KERNELS_SHARE + SHAPES_SHARE + _OWN + OWN_SHARE


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
        self._kernels = np.asarray(kernels, dtype=np.int64)
        settings, named = rescale(features, KERNELS_REACH), np.asarray(spaces)
        self._alike = _likeness(settings, settings)
        self._akin = np.where(np.equal.outer(named, named), 1.0, STRANGE)
        self._traits = rescale(traits, TRAITS_REACH)
        self._nearness = _shape_nearness(shapes)
        self._places = np.asarray(places, dtype=np.int64)
        self._process = Process(self._shared(self._kernels, self._places), errors)

    def predict(self, kernels: Ints, places: Ints) -> tuple[Floats, Floats]:
        """Mean and standard deviation of the error of some pairs, as logarithms."""
        return self._process.predict(self._covariance(kernels, places), _WHOLE)

    def means(self, kernels: Ints, places: Ints) -> Floats:
        """Mean of the error of some pairs; spares the time that `predict` takes for deviations."""
        return self._process.means(self._covariance(kernels, places))

    def _covariance(self, kernels: Ints, places: Ints) -> Floats:
        """Covariance of some pairs with the measured ones, a row for each of the former."""
        same = kernels[:, None] == self._kernels[None, :]
        pair = same & (places[:, None] == self._places[None, :])
        return np.asarray(self._shared(kernels, places) + self._process.own * pair)

    def _shared(self, kernels: Ints, places: Ints) -> Floats:
        """The same, without what is a pair's own."""
        both = np.ix_(kernels, self._kernels)
        here = _likeness(self._traits[kernels, places], self._traits[self._kernels, self._places])
        shares = self._akin[both] * (TRAITS_SHARE * here + KERNELS_SHARE * self._alike[both])
        near = self._nearness[np.ix_(places, self._places)]
        same = kernels[:, None] == self._kernels[None, :]
        return np.asarray(shares + SHAPES_SHARE * near + _OWN * same)


def _likeness(some: Floats, others: Floats) -> Floats:
    """1 for equal points, falling off with their distance."""
    return np.asarray(np.exp(-square_distances(some, others)))


def _shape_nearness(shapes: Floats) -> Floats:
    """1 for equal shapes, falling off with the ratio of their sizes."""
    sizes = np.log2(1.0 + shapes)
    near = (sizes - sizes.min(axis=0)) / np.maximum(np.ptp(sizes, axis=0), 1e-9)
    near = near / (_SHAPES_REACH * np.sqrt(2.0))
    return _likeness(near, near)
