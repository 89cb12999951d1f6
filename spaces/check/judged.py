"""The outputs of a kernel that was found right at some elements, to compare others with wholly.

How far two right kernels may be apart is known at the elements that were computed. Elsewhere it is
estimated: in proportion to the element and to the size of the values around it, by the largest
proportion that is known, doubled. The size around an element is the output's, times that of each
slice which the element is in, relative to the output's: a row that one large input made large may
err by more.
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
_LEAST_SLICE = 64
"""Slices of fewer elements tell nothing of the size of the values around one."""
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
    largest = float(size.max(initial=0.0))
    around = np.zeros((1,) * size.ndim, size.dtype)
    if largest == 0.0:
        return around
    squares = np.square(size / size.dtype.type(largest))
    whole = math.sqrt(float(np.mean(squares, dtype=np.float64)))
    around += largest * whole
    for axis, extent in enumerate(size.shape):
        if extent == 1 or size.size // extent < _LEAST_SLICE:
            continue
        others = tuple(n for n in range(size.ndim) if n != axis)
        slices = np.sqrt(np.mean(squares, axis=others, keepdims=True, dtype=np.float64))
        around = around * (slices / whole).astype(size.dtype)
    return around
