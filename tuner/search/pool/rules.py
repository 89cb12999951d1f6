"""Rules that choose the next setting of a pool. Pure.

`Neighbours` needs no model: of the settings near the fastest it takes the best estimated.
`Improvement` predicts each setting's time by a Gaussian process over the errors of the estimate
(`tuner.search.gaussian_process`), and takes the one that is expected to save most (Jones, Schonlau
and Welch, "Efficient Global Optimization of Expensive Black-Box Functions", 1998).
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from tuner.arrays import Floats, Rows
from tuner.search.expected_improvement import saved
from tuner.search.gaussian_process import Residuals
from tuner.search.pool.settings_pool import SettingsPool

INCUMBENTS = 3
"""The fastest settings, near which others are looked for."""
_NEAR = 2
"""Knobs by which neighbours differ at most."""
_DRAWN_EVERY = 8
_LEAST_SPREAD = 0.3
"""Of an estimate's error, as a logarithm: what is measured first is alike, and seems to say more of
the others than it does."""
_MOST_LEARNED = 256
"""The most times that a process is fitted to: the fastest, which decide."""


@dataclass(slots=True)
class Trials:
    """What was tried of a pool.

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

    @property
    def known(self) -> set[int]:
        """Settings that were proposed."""
        return {*self.times_s, *self.waiting, *self.failed}

    def fastest(self, count: int) -> list[int]:
        """The fastest settings, fastest first."""
        return sorted(self.times_s, key=lambda number: self.times_s[number])[:count]


class Rule(Protocol):
    """Chooses among the settings of a pool."""

    def choose(self, pool: SettingsPool, trials: Trials, untried: Rows) -> int:
        """The setting to try next: one of those that are untried, of which there are some."""


class Neighbours:
    """The best estimated setting near the fastest ones; of all, where none is near."""

    def choose(self, pool: SettingsPool, trials: Trials, untried: Rows) -> int:
        """See `Rule`."""
        return pool.best_estimated(_near(pool, trials.fastest(INCUMBENTS), untried, _NEAR))


class Improvement:
    """The setting with the largest expected improvement over the fastest as the process sees it:
    its mean, for a time alone may have been luck.

    Every second choice is among the neighbours of the fastest alone, by one knob, and every eighth
    is drawn in the order of the estimate: where the estimate is far off, the process is sure of
    what it has not seen (a depthwise convolution took 129 trials and more without these).
    """

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed

    def choose(self, pool: SettingsPool, trials: Trials, untried: Rows) -> int:
        """See `Rule`."""
        turn = len(trials.known)
        if not trials.times_s:
            return pool.best_estimated(untried)
        if turn % _DRAWN_EVERY == _DRAWN_EVERY - 1:
            return pool.draw(untried, random.Random(f"{self._seed} {turn}").random())
        known, process = fit(pool, trials.times_s, trials.waiting)
        means_s = pool.estimates_s[known] * np.exp(_predict(process, known)[0])
        if turn % 2 == 0:
            fastest = known[np.argsort(means_s, kind="stable")[:INCUMBENTS]].tolist()
            untried = _near(pool, fastest, untried, 1)
        means, spreads = _predict(process, untried)
        latencies_s = pool.estimates_s[untried] * np.exp(means)
        gains = saved(latencies_s, spreads, np.full(len(untried), means_s.min()))
        return int(untried[np.argmax(gains)])


def _near(pool: SettingsPool, fastest: Sequence[int], untried: Rows, knobs: int) -> Rows:
    """Of some settings those that differ from others by at most so many knobs; all where none
    does."""
    near = np.zeros(len(untried), dtype=np.bool_)
    for number in fastest:
        near |= pool.changes(number)[untried] <= knobs
    return untried[near] if near.any() else untried


def fit(
    pool: SettingsPool, times_s: Mapping[int, float], waiting: Sequence[int] | set[int] = ()
) -> tuple[Rows, Residuals]:
    """The settings that a process learned from, and the process.

    Settings in flight count as if they had taken what is predicted of them: nothing near them is
    tried before their times are known.
    """
    fastest = sorted(times_s, key=lambda number: times_s[number])[:_MOST_LEARNED]
    errors = [math.log(times_s[n] / pool.estimates_s[n]) for n in fastest]
    process = _residuals(pool, fastest, errors)
    numbers = sorted(waiting)
    if numbers:
        means, _ = _predict(process, np.asarray(numbers, dtype=np.int64))
        process = _residuals(pool, [*fastest, *numbers], [*errors, *means.tolist()])
    return np.asarray(fastest, dtype=np.int64), process


def _residuals(pool: SettingsPool, numbers: Sequence[int], errors: Sequence[float]) -> Residuals:
    features = pool.features.astype(np.float64)
    one_shape = np.zeros((1, 1))
    return Residuals(
        features,
        pool.spaces.tolist(),
        features[:, None, :],
        one_shape,
        numbers,
        [0] * len(numbers),
        errors,
        _LEAST_SPREAD,
    )


def _predict(process: Residuals, numbers: Rows) -> tuple[Floats, Floats]:
    return process.predict(numbers, np.zeros(len(numbers), dtype=np.int64))
