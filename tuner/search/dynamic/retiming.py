"""Challengers: kernels that are retimed because they may improve on the chosen set. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tuner.arrays import Floats
from tuner.search.expected_improvement import compute_improvement

LEAST = 3e-3
"""A kernel whose expected improvement is below this share is not retimed."""
_CLOSE = 5e-3
"""A kernel with this expected improvement on one shape is retimed on that shape alone: it is slower
than the best by less than the noise of one timing."""
_LUCK = 0.05
"""Standard deviation of the logarithm of a search's time, which has few samples."""


def rivals(
    latencies_s: Floats,
    spreads: Floats,
    weights: Floats,
    chosen: Sequence[int],
    alike: Sequence[int],
    room: int,
) -> list[list[int]]:
    """The kernels to retime on each shape besides those of the chosen set.

    At most `room` kernels are taken by their weighted mean expected improvement, each on the shapes
    where it may improve anything; then each shape adds the kernel with the largest expected
    improvement there, if that is at least `_CLOSE`.

    Args:
        latencies_s: medians, kernels by shapes.
        spreads: standard deviations of the latencies' logarithms.
        weights: of the shapes.
        alike: rows of the kernels of the same layout as those of `chosen`.

    Returns:
        Rows for each shape.
    """
    others = [row for row in alike if row not in chosen]
    if not others:
        return [[] for _ in weights]
    now_s = latencies_s[list(chosen)].min(axis=0)
    gains = compute_improvement(latencies_s[others], np.maximum(spreads[others], _LUCK), now_s)
    means = gains @ weights / weights.sum()
    order = np.argsort(-means, kind="stable")[:room].tolist()
    likeliest = [n for n in order if means[n] > LEAST]
    found = []
    for here in gains.T:
        more = [n for n in likeliest if here[n] > LEAST]
        first = int(here.argmax())
        if here[first] >= _CLOSE and first not in more:
            more.append(first)
        found.append([others[n] for n in more])
    return found
