"""The comparison of a kernel's outputs with those of the program."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from spaces.ir.element_types import limits_of

Array = npt.NDArray[Any]


def difference(got: Array, want: Array, bound: Array | None) -> str | None:
    """The difference of two outputs, with the size of the error, in one line; None if they agree.

    Where NaN or infinity is wanted, the output must be NaN, or infinity of the same sign.

    Args:
        bound: the most that each element may differ by, see `spaces.check.error_bounds`; None
            where it must be equal.
    """
    if got.dtype.kind in "iub":
        return _of_integers(got, want, bound)
    wide = np.float64 if got.dtype == np.float64 else np.float32
    computed, exact = (np.atleast_1d(a.astype(wide, copy=False)) for a in (got, want))
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
        return _of_floats(computed, exact, bound, near, float(limits_of(str(got.dtype)).max))


def _of_floats(
    got: Array, want: Array, bound: Array | None, near: Array, largest: float
) -> str | None:
    """The rule for outputs that are not all within their bounds."""
    finite = np.isfinite(want)
    allowed = np.zeros_like(want) if bound is None else np.atleast_1d(bound)
    same = np.where(finite, near, (got == want) | (np.isnan(got) & np.isnan(want)))
    # A value that may exceed the largest of its type may have become infinite.
    same |= (
        finite
        & np.isinf(got)
        & (np.sign(got) == np.sign(want))
        & (np.abs(want) + allowed > largest)
    )
    if same.all():
        return None
    special = ~finite & ~same
    if special.any():
        at = _first(special)
        count = f"{int(special.sum())} of {special.size} elements"
        return (
            f"{count} are not the NaN or infinity they should be, at {at} {got[at]} != {want[at]}"
        )
    broken = finite & ~np.isfinite(got) & ~same
    if broken.any():
        return f"{int(broken.sum())} of {broken.size} elements are not finite, at {_first(broken)}"
    error = np.where(same, 0.0, np.abs(got - want))
    at = tuple(int(i) for i in np.unravel_index(np.argmax(error), error.shape))
    return (
        f"largest error {error[at]:.3g} at {at}: {got[at]:.6g} instead of {want[at]:.6g}; "
        f"{int((~same).sum())} of {same.size} elements are off by more than they may be, "
        f"here by {allowed[at]:.2g}"
    )


def _of_integers(got: Array, want: Array, bound: Array | None) -> str | None:
    got, want = np.atleast_1d(got), np.atleast_1d(want)
    wrong = got != want
    if not wrong.any():
        return None
    if bound is not None:
        where = np.nonzero(wrong)
        # As floats, differences of 64-bit integers are rounded, but far less than their bounds.
        apart = np.abs(got[where].astype(np.float64) - want[where].astype(np.float64))
        wrong[where] = apart > np.atleast_1d(bound)[where]
        if not wrong.any():
            return None
    at = _first(wrong)
    return f"{int(wrong.sum())} of {wrong.size} integers differ, at {at} {got[at]} != {want[at]}"


def _first(wrong: Array) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argwhere(wrong)[0])
