"""How near candidates are to others, by their features: what spreads a batch. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tuner.arrays import Features, Floats

_REACH = 0.4
"""Of the typical distance between candidates: what is within is a neighbour."""
_SAMPLE = 32
"""Rows that the typical distance is taken from: it need not be exact, and comes once a trial."""
_DIGITS = 4
"""Sums of floats differ between machines in their last digits, and choices must not."""


def crowding(waiting: Sequence[Features], taken: Sequence[Features]) -> list[float]:
    """How near each of those waiting is to the nearest of those taken.

    1 is the same place, 0 is far off: at half the typical distance between two of those waiting
    it is 0.21, at a quarter of it 0.68. Distances count in standard deviations of each
    feature, so all of them weigh the same.

    Args:
        waiting: vectors of one length.
        taken: likewise; those of another length are far from all.
    """
    if not waiting:
        return []
    taken = [t for t in taken if len(t) == len(waiting[0])]
    if not taken:
        return [0.0] * len(waiting)
    rows = np.asarray([*waiting, *taken], dtype=np.float64)
    rows -= rows.mean(axis=0)
    spread = rows.std(axis=0)
    rows = rows[:, spread > 0] / spread[spread > 0]
    here, there = rows[: len(waiting)], rows[len(waiting) :]
    typical = _typical(here)
    if typical <= 0:  # all in one place, or only one: any distance is a long way
        near = np.where(_squares(here, there) <= 0, 1.0, 0.0)
    else:
        near = np.exp(_squares(here, there) / (-(_REACH**2) * typical))
    return [round(float(max(row)), _DIGITS) for row in near]


def _typical(rows: Floats) -> float:
    """Median square of the distance between two different rows; 0 where there are none."""
    rows = rows[:: math.ceil(len(rows) / _SAMPLE)]
    apart = _squares(rows, rows)[np.triu_indices(len(rows), 1)]
    return float(np.median(apart)) if len(apart) else 0.0


def _squares(a: Floats, b: Floats) -> Floats:
    """Squares of the distances between rows; what rounding leaves of none is none."""
    products = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1)[None, :]
    # Not by BLAS, whose threads would spin on while a kernel is timed.
    squares: Floats = products - 2 * np.einsum("ik,jk->ij", a, b)
    squares[squares <= 1e-9 * np.maximum(products, 1.0)] = 0.0
    return squares
