"""Kernels that a second look may put before those that were chosen for a set. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tuner.arrays import Floats
from tuner.search.dynamic.expected_improvement import saved

LEAST = 3e-3
"""A kernel that is expected to gain less than this part is worth no second look."""
_CLOSE = 5e-3
"""One that may gain as much on one shape alone is timed again there: it is slower by less than what
luck makes of a time."""
_LUCK = 0.05
"""Standard deviation of what a search measures, as a logarithm: samples are few."""


def rivals(
    latencies_s: Floats,
    spreads: Floats,
    weights: Floats,
    chosen: Sequence[int],
    alike: Sequence[int],
    room: int,
) -> list[list[int]]:
    """Who is timed again on each shape besides those chosen.

    Of at most `room` kernels that are likeliest to gain on the whole those that may gain something
    there, and the one that may gain most there.

    Args:
        latencies_s: medians, kernels by shapes; `spreads` of their logarithms.
        weights: of the shapes.
        alike: rows of the kernels that can be in one set with those of `chosen`.
    """
    others = [row for row in alike if row not in chosen]
    if not others:
        return [[] for _ in weights]
    now_s = latencies_s[list(chosen)].min(axis=0)
    gains = saved(latencies_s[others], np.maximum(spreads[others], _LUCK), now_s)
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
