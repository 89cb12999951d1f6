"""The outputs of a kernel that was found right at some elements, to compare others with wholly.

How far two right kernels may be apart is known at the elements that were computed. Elsewhere it is
estimated: in proportion to the element and to the size of the values around it, by the largest
proportion that is known, doubled. The size around an element is the output's, times that of each
slice which the element is in, relative to the output's: a row that one large input made large may
err by more. Sizes are upper quartiles.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from spaces.check.case import Case
from spaces.check.compare import wrong_elements
from spaces.check.draws import Array
from spaces.check.elements.places import near_places
from spaces.check.sampled_program import Sample
from spaces.check.stored import Places

_MARGIN = 2.0
_LEAST_SLICE = 32
"""Slices of fewer elements tell nothing of the size of the values around one."""
_QUARTILE, _ENOUGH = 0.75, 1024
"""What stands for the elements of a slice, and how many of them are looked at."""
_WORST = 64
"""Elements that may be looked at together."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A kernel's outputs, with what was computed in the place of what it wrote.

    Attributes:
        by: digest of the kernel.
        case: its outputs, and estimated bounds; both are computed ones where there are such.
    """

    by: bytes
    case: Case

    def put(self, position: int, sample: Sample) -> None:
        """Note what was computed of an output."""
        _put(self.case, position, sample)

    def far_places(self, position: int, got: Array, most: int) -> Places:
        """A grid of elements of an output, those that differ by most among them.

        Raises:
            ValueError: none differs by more than it may.
        """
        want, bound = self.case.outputs[position], self.case.bounds[position]
        wrong = wrong_elements(got, want, bound)
        if wrong is None:
            raise ValueError("nothing differs")
        found = np.argwhere(wrong)[:, : got.ndim]
        at = tuple(found.T)
        with np.errstate(all="ignore"):
            apart = np.abs(got[at].astype(np.float64) - want[at].astype(np.float64))
            far = apart if bound is None else apart / bound[at]
        far[np.isnan(far)] = math.inf
        order = np.argsort(-far, kind="stable")[:_WORST]
        return near_places(found[order], got.shape, most)


def judge(
    by: bytes, case: Case, samples: Mapping[int, Sample], outputs: Mapping[int, Array]
) -> Judged:
    """What a kernel wrote that is right at the elements of these samples.

    Args:
        case: the inputs of the draw.
        outputs: by position; they become the case's own.
    """
    bounds = {i: _bound(outputs[i], sample) for i, sample in samples.items()}
    whole = Case(case.arguments, case.initial, dict(outputs), bounds)
    for i, sample in samples.items():
        _put(whole, i, sample)
    return Judged(by, whole)


def _put(case: Case, position: int, sample: Sample) -> None:
    case.outputs[position][sample.where] = sample.want
    bound = case.bounds[position]
    if bound is not None and sample.bound is not None:
        bound[sample.where] = sample.bound


def _bound(output: Array, sample: Sample) -> Array | None:
    """How far right kernels may be apart; None where they must be equal."""
    if sample.bound is None:
        return None
    known = sample.bound[np.isfinite(sample.bound)]
    if output.dtype.kind in "iub":
        return np.full(output.shape, known.max(initial=0.0), sample.bound.dtype)
    size = np.abs(output.astype(sample.bound.dtype))
    size[~np.isfinite(size)] = 0.0
    size += _around(size)
    with np.errstate(all="ignore"):
        shares = sample.bound / size[sample.where]
    largest = shares[np.isfinite(shares)].max(initial=0.0)
    bound: Array = size * (_MARGIN * largest)
    return bound


def _around(size: Array) -> Array:
    """The size of the values around each element, of an array that it can be added to."""
    if size.size == 0:
        return size
    whole = _typical(_thin(size, axis=None).reshape(1, -1))[0]
    if whole == 0.0:
        whole = float(size.max(initial=0.0))
    around = np.full((1,) * size.ndim, whole, size.dtype)
    for axis, extent in enumerate(size.shape):
        slices = np.moveaxis(_thin(size, axis), axis, 0).reshape(extent, -1)
        if extent == 1 or whole == 0.0 or slices.shape[1] < _LEAST_SLICE:
            continue
        share = _typical(slices) / whole
        share[share == 0.0] = 1.0
        around = around * share.astype(size.dtype).reshape(
            [-1 if n == axis else 1 for n in range(size.ndim)]
        )
    return around


def _typical(slices: Array) -> Array:
    """A size that three in four of each row's elements do not reach: a few that are far larger do
    not matter, nor do zeros, of which there may be as many as others."""
    found: Array = np.quantile(slices, _QUARTILE, axis=1)
    return found


def _thin(size: Array, axis: int | None) -> Array:
    """Evenly spread elements, some of each axis and all of one."""
    others = max(size.ndim - (axis is not None), 1)
    most = max(int(_ENOUGH ** (1 / others)), 2)
    steps = (1 if n == axis else -(-extent // most) for n, extent in enumerate(size.shape))
    return size[tuple(slice(None, None, max(step, 1)) for step in steps)]
