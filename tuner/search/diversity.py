"""The nearness of candidates to others, by their features, which spreads a batch. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tuner.arrays import Features, Floats

_REACH = 0.4
"""The distance within which candidates are neighbours, as a share of the typical distance."""
_SAMPLE = 32
"""Rows that the typical distance is taken from: it is computed for each trial, not exactly."""
_DIGITS = 4
"""Nearness is rounded to these: float sums differ in their last digits between machines, and
choices must not."""


def crowding(waiting: Sequence[Features], taken: Sequence[Features]) -> list[float]:
    """The nearness of each waiting candidate to the nearest of the taken ones.

    It is 1 in the same place and 0 far off; at half the typical distance between two waiting
    candidates it is 0.21, at a quarter 0.68. Distances are in standard deviations of each feature,
    so that all features weigh the same.

    Args:
        waiting: feature vectors, all of one length.
        taken: feature vectors; those of another length are far from all.
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
    if typical <= 0:  # all in one place, or only one: any distance is far
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
    """Squares of the distances between rows; those that are rounding errors are set to 0."""
    products = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1)[None, :]
    # Not by BLAS, whose threads would spin on while a kernel is timed.
    squares: Floats = products - 2 * np.einsum("ik,jk->ij", a, b)
    squares[squares <= 1e-9 * np.maximum(products, 1.0)] = 0.0
    return squares
