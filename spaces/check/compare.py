"""The comparison of a kernel's outputs with those of the program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from spaces.ir.element_types import limits_of

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]


def difference(
    got: Array, want: Array, bound: Array | None, places: Sequence[Array] = ()
) -> str | None:
    """The difference of two outputs, with the size of the error, in one line; None if they agree.

    Where NaN or infinity is wanted, the output must be NaN, or infinity of the same sign.

    Args:
        bound: the most that each element may differ by, see `spaces.check.error_bounds`; None
            where it must be equal.
        places: indices of the elements for each axis, where they are a grid out of a larger output.
    """
    wrong = wrong_elements(got, want, bound)
    if wrong is None:
        return None
    if got.dtype.kind in "iub":
        return _of_integers(np.atleast_1d(got), np.atleast_1d(want), wrong, places)
    with np.errstate(all="ignore"):
        return _of_floats(*_widen(got, want), bound, wrong, places)


def gaps(got: Array, want: Array) -> Array:
    """How far each element is from what it should be; infinite where one side alone is no finite
    number, or they are different ones."""
    ours, theirs = got.astype(np.float64), want.astype(np.float64)
    same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
    with np.errstate(invalid="ignore"):
        apart = np.where(same, 0.0, np.abs(ours - theirs))
    return np.where(np.isnan(apart), np.inf, apart)


def wrong_elements(got: Array, want: Array, bound: Array | None) -> Mask | None:
    """Which elements are wrong, see `difference`; None if none is."""
    if got.dtype.kind in "iub":
        return _wrong_integers(np.atleast_1d(got), np.atleast_1d(want), bound)
    computed, exact = _widen(got, want)
    with np.errstate(all="ignore"):
        if bound is None:
            near = computed == exact
        else:
            error = np.subtract(computed, exact)
            np.abs(error, out=error)
            near = error <= bound
            near &= np.isfinite(exact)  # an infinite bound is no excuse
        if near.all():
            return None
        return _wrong_floats(computed, exact, bound, near, float(limits_of(str(got.dtype)).max))


def _widen(got: Array, want: Array) -> tuple[Array, Array]:
    wide = np.float64 if got.dtype == np.float64 else np.float32
    return np.atleast_1d(got.astype(wide, copy=False)), np.atleast_1d(want.astype(wide, copy=False))


def _wrong_floats(
    got: Array, want: Array, bound: Array | None, near: Array, largest: float
) -> Mask | None:
    """The rule for outputs that are not all within their bounds."""
    finite = np.isfinite(want)
    allowed = np.zeros_like(want) if bound is None else np.atleast_1d(bound)
    same: Mask = np.where(finite, near, (got == want) | (np.isnan(got) & np.isnan(want)))
    # A value that may exceed the largest of its type may have become infinite.
    same |= (
        finite
        & np.isinf(got)
        & (np.sign(got) == np.sign(want))
        & (np.abs(want) + allowed > largest)
    )
    return None if same.all() else ~same


def _of_floats(
    got: Array, want: Array, bound: Array | None, wrong: Mask, places: Sequence[Array]
) -> str:
    finite = np.isfinite(want)
    special = ~finite & wrong
    if special.any():
        at = _first(special)
        return (
            f"{int(special.sum())} of {special.size} elements are not the NaN or infinity they "
            f"should be, at {_locate(at, places)} {got[at]} != {want[at]}"
        )
    broken = wrong & ~np.isfinite(got)
    if broken.any():
        at = _locate(_first(broken), places)
        return f"{int(broken.sum())} of {broken.size} elements are not finite, at {at}"
    error = np.where(wrong, np.abs(got - want), 0.0)
    at = tuple(int(i) for i in np.unravel_index(np.argmax(error), error.shape))
    allowed = 0.0 if bound is None else np.atleast_1d(bound)[at]
    return (
        f"largest error {error[at]:.3g} at {_locate(at, places)}: {got[at]:.6g} instead of "
        f"{want[at]:.6g}; {int(wrong.sum())} of {wrong.size} elements are off by more than they "
        f"may be, here by {allowed:.2g}"
    )


def _wrong_integers(got: Array, want: Array, bound: Array | None) -> Mask | None:
    wrong: Mask = got != want
    if not wrong.any():
        return None
    if bound is not None:
        where = np.nonzero(wrong)
        # As floats, differences of 64-bit integers are rounded, but far less than their bounds.
        apart = np.abs(got[where].astype(np.float64) - want[where].astype(np.float64))
        wrong[where] = apart > np.atleast_1d(bound)[where]
        if not wrong.any():
            return None
    return wrong


def _of_integers(got: Array, want: Array, wrong: Mask, places: Sequence[Array]) -> str:
    at = _first(wrong)
    where = _locate(at, places)
    return f"{int(wrong.sum())} of {wrong.size} integers differ, at {where} {got[at]} != {want[at]}"


def _first(wrong: Mask) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argwhere(wrong)[0])


def _locate(at: tuple[int, ...], places: Sequence[Array]) -> tuple[int, ...]:
    """The indices of an element in the whole output."""
    if not places:
        return at
    return tuple(int(indices[i]) for i, indices in zip(at, places, strict=True))
