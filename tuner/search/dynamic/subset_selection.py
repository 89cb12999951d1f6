"""Weighted k-median: the few kernels that serve all shapes best. Pure.

The loss of a set of kernels is the weighted mean, over shapes, of the set's best latency over the
best of any kernel: 1 is as good as a separate kernel for each shape. The set of at most k kernels
with the least loss is found by greedy additions with swaps, which come within a percent of the
optimum here; swaps make up for what greed missed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tuner.arrays import Floats

_WORTH = 1e-3
"""A kernel that lowers the loss by less than this is not added."""


@dataclass(frozen=True, slots=True)
class Selection:
    """A set of kernels.

    Attributes:
        kernels: rows of the matrix, in the order in which they were found worth adding.
        losses: loss of the best set of one kernel, of two, and so on.
    """

    kernels: tuple[int, ...]
    losses: tuple[float, ...]

    @property
    def loss(self) -> float:
        """The loss of the whole set; infinite for an empty one."""
        return self.losses[-1] if self.losses else float("inf")


def select(
    latencies_s: Floats,
    weights: Floats,
    most: int,
    groups: Sequence[str] | None = None,
    *,
    best_s: Floats | None = None,
) -> Selection:
    """The best set of at most `most` kernels, all of one group.

    Args:
        latencies_s: kernels by shapes; infinite where a kernel cannot serve a shape.
        weights: of the shapes.
        groups: group of each kernel, such as its layout; a set has kernels of one group only.
        best_s: latency that each shape's is compared with; None is the best of these kernels.
    """
    found = select_each(latencies_s, weights, most, groups, best_s=best_s)
    return min(found.values(), key=lambda selection: selection.loss, default=Selection((), ()))


def select_each(
    latencies_s: Floats,
    weights: Floats,
    most: int,
    groups: Sequence[str] | None = None,
    *,
    best_s: Floats | None = None,
) -> dict[str, Selection]:
    """The best set of each group, see `select`; losses are against the best of all groups."""
    if not len(latencies_s) or most < 1:
        return {}
    best_s = latencies_s.min(axis=0) if best_s is None else best_s
    costs = latencies_s / best_s * (weights / weights.sum())
    names = list(groups) if groups is not None else [""] * len(costs)
    return {
        group: _of_group(costs, [i for i, name in enumerate(names) if name == group], most)
        for group in dict.fromkeys(names)
    }


def _of_group(costs: Floats, rows: Sequence[int], most: int) -> Selection:
    """The best set of some kernels: each size is grown from the one before, then improved."""
    mine = costs[list(rows)]
    chosen: list[int] = []
    losses: list[float] = []
    while len(chosen) < min(most, len(mine)):
        served = mine[chosen].min(axis=0) if chosen else np.full(mine.shape[1], np.inf)
        totals = np.minimum(mine, served).sum(axis=1)
        grown = _swap(mine, [*chosen, int(totals.argmin())])
        loss = float(mine[grown].min(axis=0).sum())
        if losses and not loss < losses[-1] - _WORTH:
            break
        chosen, losses = grown, [*losses, loss]
    return Selection(tuple(rows[i] for i in chosen), tuple(losses))


def _swap(costs: Floats, chosen: list[int]) -> list[int]:
    """Exchange single kernels of a set for others as long as that makes its loss smaller."""
    improved = True
    while improved:
        improved = False
        for place in range(len(chosen)):
            others = [k for i, k in enumerate(chosen) if i != place]
            served = costs[others].min(axis=0) if others else np.full(costs.shape[1], np.inf)
            totals = np.minimum(costs, served).sum(axis=1)
            better = int(totals.argmin())
            if totals[better] < totals[chosen[place]] - 1e-9:
                chosen = [*chosen[:place], better, *chosen[place + 1 :]]
                improved = True
    return chosen
