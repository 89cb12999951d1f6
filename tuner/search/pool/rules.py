"""Rules that choose the next setting of a pool. Pure.

`Neighbours` needs no model: of the settings near the fastest it takes the best estimated.
`Improvement` predicts each setting's time by a Gaussian process over the errors of the estimate
(`tuner.cost_models.process`), and takes the one that is expected to save most (Jones, Schonlau
and Welch, "Efficient Global Optimization of Expensive Black-Box Functions", 1998).
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from tuner.arrays import Rows
from tuner.cost_models.process import ProcessModel
from tuner.search.expected_improvement import compute_improvement
from tuner.search.pool.settings_pool import SettingsPool

INCUMBENTS = 3
"""The fastest settings, near which others are looked for."""
_NEAR = 2
"""Knobs by which neighbours differ at most."""
_DRAWN_EVERY = 8
_WEIGHED = 512
"""Settings whose expected improvement is worked out: those with the least expected times."""


@dataclass(slots=True)
class Trials:
    """What was tried of a pool: each setting is one of these.

    Attributes:
        times_s: latency of each setting that has one; a bound where it was cut off.
        waiting: settings in flight.
        failed: settings that gave no time.
    """

    times_s: dict[int, float] = field(default_factory=dict)
    waiting: set[int] = field(default_factory=set)
    failed: set[int] = field(default_factory=set)

    def untried(self, pool: SettingsPool) -> Rows:
        """Numbers of the settings that were never proposed."""
        free = np.ones(len(pool), dtype=np.bool_)
        free[list(self.known)] = False
        return np.flatnonzero(free)

    def __len__(self) -> int:
        return len(self.times_s) + len(self.waiting) + len(self.failed)

    @property
    def known(self) -> set[int]:
        """Settings that were proposed."""
        return {*self.times_s, *self.waiting, *self.failed}

    def fastest(self, count: int) -> list[int]:
        """The fastest settings, fastest first."""
        return sorted(self.times_s, key=lambda number: self.times_s[number])[:count]


@dataclass(frozen=True, slots=True)
class Choice:
    """A setting to try, and the logarithm of the latency that a model expects of it."""

    number: int
    expected: float | None = None


class Rule(Protocol):
    """Chooses among the settings of a pool."""

    def choose(self, pool: SettingsPool, trials: Trials, untried: Rows) -> Choice:
        """The setting to try next: one of those that are untried, of which there are some."""


class Neighbours:
    """The best estimated setting near the fastest ones; of all, where none is near."""

    def choose(self, pool: SettingsPool, trials: Trials, untried: Rows) -> Choice:
        """See `Rule`."""
        near = _near(pool, trials.fastest(INCUMBENTS), untried, _NEAR)
        return Choice(pool.best_estimated(near))


class Improvement:
    """The setting with the largest expected improvement over the fastest as the process sees it:
    its mean, for a time alone may have been luck.

    Every second choice is among the neighbours of the fastest alone, by one knob, and every eighth
    is drawn in the order of the estimate: where the estimate is far off, the process is sure of
    what it has not seen (a depthwise convolution took 129 trials and more without these).
    """

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed

    def choose(self, pool: SettingsPool, trials: Trials, untried: Rows) -> Choice:
        """See `Rule`."""
        turn = len(trials)
        if not trials.times_s:
            return Choice(pool.best_estimated(untried))
        if turn % _DRAWN_EVERY == _DRAWN_EVERY - 1:
            return Choice(pool.draw(untried, random.Random(f"{self._seed} {turn}").random()))
        model = fit(pool, trials.times_s)
        known = np.asarray(list(trials.times_s), dtype=np.int64)
        expected = model.means(pool.features[known])
        if turn % 2 == 0:
            fastest = known[np.argsort(expected, kind="stable")[:INCUMBENTS]].tolist()
            untried = _near(pool, fastest, untried, 1)
        means = model.means(pool.features[untried])
        likely = np.argsort(means, kind="stable")[:_WEIGHED]
        waiting = pool.features[sorted(trials.waiting)]
        spreads = model.spreads(pool.features[untried[likely]], waiting)
        least_s = np.full(len(likely), math.exp(expected.min()))
        best = likely[np.argmax(compute_improvement(np.exp(means[likely]), spreads, least_s))]
        return Choice(int(untried[best]), float(means[best]))


def _near(pool: SettingsPool, fastest: Sequence[int], untried: Rows, knobs: int) -> Rows:
    """Of some settings those that differ from others by at most so many knobs; all where none
    does."""
    near = np.zeros(len(untried), dtype=np.bool_)
    for number in fastest:
        near |= pool.changes(number)[untried] <= knobs
    return untried[near] if near.any() else untried


def fit(pool: SettingsPool, times_s: Mapping[int, float]) -> ProcessModel:
    """The process that has learned from some times of a pool's settings."""
    numbers = list(times_s)
    model = ProcessModel(scale=pool.scale)
    latencies_s = np.array(list(times_s.values()), dtype=np.float32)
    model.fit(pool.features[numbers], latencies_s, np.zeros(len(numbers), dtype=np.int32))
    return model
