"""Acquisition function of the dynamic search: chooses the next pair of a kernel and a shape.

It alternates two rules. Every other pair maximises the total expected improvement: the time that
its kernel is expected to save over the best set of kernels known so far, weighted over all shapes,
per second of building and measuring it. (This is the marginal gain of a set; DietCode judges a
kernel by its best shape alone.) The pairs in between do the same on one shape alone, the least
sampled for its weight. A third rule comes before both: each space gets a few trials where its
estimates are promising, whatever was learned of it.

Expected improvement counts the spread of a prediction, so uncertain kernels are tried, and a time
on one shape decides whether a kernel is measured on others. Kernels of one set share the layout of
weights that are packed ahead. So the best set of each layout is found with all predictions at their
optimistic end (a lower confidence bound), and the next pair has the layout whose set has the
smallest loss.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tuner.arrays import Floats
from tuner.search.dynamic.kernel_table import Kernels
from tuner.search.dynamic.retiming import LEAST
from tuner.search.dynamic.subset_selection import select, select_each
from tuner.search.expected_improvement import compute_improvement, compute_saving

_BASE_S, _RUNS = 0.05, 5.0
"""The duration of a trial: a constant in seconds, plus this number of runs of the kernel."""
_BUILD_S, _AT_ONCE = 0.3, 2
"""The assumed seconds of a build before any was seen, and the number of builds at once."""

_SPACE_TRIALS, _NEARLY = 4, 1.25
"""The trials that each space gets whatever was learned, each of another kernel on another shape,
and the factor of the best estimate of all spaces that its estimates must be within."""

Pair = tuple[int, int]
"""Numbers of a kernel and of a shape."""


@dataclass(slots=True)
class Prospects:
    """The kernels to choose the next pair from, and the state of that choice.

    Attributes:
        kernels: all known kernels, with their predictions and times.
        anchors: numbers of the shapes that are measured.
        weights: of the anchors.
        most: most kernels in the set that is searched.
        hope: standard deviations that the optimistic bound lies below the prediction.
        pool: kernels without a proposed pair.
        building: kernels whose first pair was proposed and has no record yet.
        proposed: pairs that are not proposed again.
        builds_s: durations of builds.
    """

    kernels: Kernels
    anchors: list[int]
    weights: Floats
    most: int
    hope: float
    pool: list[int] = field(default_factory=list)
    building: set[int] = field(default_factory=set)
    proposed: set[Pair] = field(default_factory=set)
    builds_s: list[float] = field(default_factory=list)

    def next_pair(self) -> Pair | None:
        """The pair with the largest expected improvement for its cost; None where none improves."""
        measured = self.kernels.measured
        numbers = [*measured, *self.pool]
        if not numbers:
            return None
        if (hedge := self._hedge()) is not None:
            return hedge
        latencies_s, spreads = self.kernels.forecast(numbers, self.anchors)
        hopeful = self._hopeful(latencies_s, spreads)
        layouts = [self.kernels[n].layout for n in numbers]
        goals = select_each(hopeful, self.weights, self.most, layouts)
        for group in sorted(goals, key=lambda group: goals[group].loss):
            rows = [row for row, layout in enumerate(layouts) if layout == group]
            mine = [numbers[row] for row in rows]
            gains = self._gains(mine, latencies_s[rows], spreads[rows], group)
            efforts = np.sqrt(_BASE_S + _RUNS * latencies_s[rows])
            for wanted in self._wanted(gains):
                pair = self._pick(mine, wanted, efforts)
                if pair is not None:
                    return pair
        return None

    def take(self, pair: Pair) -> bool:
        """Mark a pair as proposed. Return whether its kernel came from the pool, to be built."""
        number, _ = pair
        self.proposed.add(pair)
        if number not in self.pool:
            return False
        self.pool.remove(number)
        self.building.add(number)
        return True

    def settle(self, number: int, place: int | None, build_s: float) -> None:
        """Take in that a kernel was built, and measured on a shape (if `place` is not None)."""
        if build_s:
            self.builds_s.append(build_s)
        self.building.discard(number)
        if number in self.pool:
            self.pool.remove(number)
        if place is not None:
            self.proposed.add((number, place))

    def drop_worst(self, number: int) -> None:
        """Drop `number` kernels of the pool: those whose optimistic bound is farthest from the
        pool's best on every shape."""
        hopeful = self._hopeful(*self.kernels.forecast(self.pool, self.anchors))
        worth = (hopeful / hopeful.min(axis=0)).min(axis=1)
        worst = np.argsort(-worth, kind="stable")[:number].tolist()
        self.kernels.drop(self.pool[row] for row in worst)
        self.pool = [kernel for row, kernel in enumerate(self.pool) if row not in worst]

    def _wanted(self, gains: Floats) -> list[Floats]:
        """The gains to choose the next pair by, in order of preference.

        The gains on all shapes; every other time they come after those on one shape alone, the
        least sampled for its weight among the shapes with something to gain. Otherwise kernels that
        seem good for many shapes would always come first, and a kernel that only one shape needs
        would not be found.
        """
        promising = gains.max(axis=0) > LEAST * self.weights
        if len(self.proposed) % 2 == 0 or not promising.any():
            return [gains]
        samples = Counter(place for _, place in self.proposed)
        sampled = np.array([samples[place] + 1 for place in self.anchors]) / self.weights
        least = np.where(promising, sampled, np.inf).argmin()
        return [gains * (np.arange(len(sampled)) == least), gains]

    def _hedge(self) -> Pair | None:
        """A pair of a space that has had too few trials; None where each space has had its share.

        The estimates may be wrong about all kernels of a space, and its only trial may have been on
        the shape where it is worst, or of a bad kernel. So a space without any trial gets one, and
        a space whose estimates are near the best gets `_SPACE_TRIALS`, each on a shape that was
        not tried in it. Of these pairs, the one with the least estimate relative to the best of its
        shape is taken. Layouts that were not tried come first: once a set of one layout is known,
        a single kernel of another layout improves nothing.
        """
        known = [self.kernels[n] for n in {n for n, _ in self.proposed}]
        if not known or not self.pool:
            return None
        waiting = [self.kernels[number] for number in self.pool]
        trials = Counter(kernel.candidate.space for kernel in known)
        unknown = any(trials[kernel.candidate.space] == 0 for kernel in waiting)
        most, limit = (0, np.inf) if unknown else (_SPACE_TRIALS - 1, _NEARLY)
        estimates_s = self.kernels.estimates_s([*self.kernels.measured, *self.pool], self.anchors)
        lost = estimates_s[-len(self.pool) :] / estimates_s.min(axis=0)
        tried = {(self.kernels[n].candidate.space, place) for n, place in self.proposed}
        for row, kernel in enumerate(waiting):
            space = kernel.candidate.space
            new = [(space, place) not in tried for place in self.anchors]
            lost[row, ~((trials[space] <= most) & (lost[row] <= limit) & new)] = np.inf
        layouts = {kernel.layout for kernel in known}
        strange = np.array([kernel.layout not in layouts for kernel in waiting])
        if np.isfinite(lost[strange]).any():
            lost[~strange] = np.inf
        row, column = np.unravel_index(lost.argmin(), lost.shape)
        return (self.pool[row], self.anchors[column]) if np.isfinite(lost[row, column]) else None

    def _pick(self, numbers: Sequence[int], gains: Floats, efforts: Floats) -> Pair | None:
        """The pair of one layout with the largest gain for its cost; None where none gains.

        The kernel has the largest total gain per second of building it and a trial, among those
        with a shape left to measure; the shape has the kernel's largest gain per second of a trial
        there.
        """
        built = np.array([number not in self.pool for number in numbers])
        build_s = float(np.median(self.builds_s)) if self.builds_s else _BUILD_S
        efforts_s = _BASE_S + np.where(built, 0.0, build_s / _AT_ONCE)
        worth = gains.sum(axis=1) / efforts_s
        for row in np.argsort(-worth, kind="stable"):
            number = numbers[int(row)]
            if number in self.building:
                continue
            left = [
                (float(gains[row, column] / efforts[row, column]), -column)
                for column, place in enumerate(self.anchors)
                if (number, place) not in self.proposed
            ]
            if left and max(left)[0] > 0.0:
                return number, self.anchors[-max(left)[1]]
        return None

    def _hopeful(self, latencies_s: Floats, spreads: Floats) -> Floats:
        """The optimistic (lower) confidence bound of forecasts."""
        return np.asarray(latencies_s * np.exp(-self.hope * spreads))

    def _gains(
        self, numbers: Sequence[int], latencies_s: Floats, spreads: Floats, layout: str
    ) -> Floats:
        """The value of measuring each pair, kernels by shapes, weighted, as a share of the shape's
        time so far.

        For a kernel that does not serve the shape it is the expected improvement over the kernel
        that does. For the kernel that serves it, it is the expected loss avoided by taking the
        next best where that kernel turns out slower than it seems.
        """
        known = self.kernels.measured
        mine = [n for n in known if self.kernels[n].layout == layout] or known
        if not mine:
            return self.weights * compute_improvement(
                latencies_s, spreads, np.full(len(self.anchors), np.inf)
            )
        times_s = self.kernels.latencies_s(mine, self.anchors)
        chosen = np.array(select(times_s, self.weights, self.most).kernels)
        serving = chosen[times_s[chosen].argmin(axis=0)]
        shapes = np.arange(len(self.anchors))
        now_s = times_s[serving, shapes]
        times_s[serving, shapes] = np.inf
        next_s = times_s.min(axis=0)
        serves = np.asarray(numbers)[:, None] == np.asarray(mine)[serving]
        faster = compute_improvement(latencies_s, spreads, now_s)
        slower = compute_saving(latencies_s, spreads, next_s) / now_s
        return np.asarray(self.weights * np.where(serves, slower, faster))
