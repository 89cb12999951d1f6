"""Rules that choose the next setting of a pool. Pure.

`Neighbours` needs no model: of the settings near the fastest it takes the best estimated.
`Improvement` predicts each setting's time by a Gaussian process over the errors of the estimate
(`tuner.search.gaussian_process`), and takes the one that is expected to save most (Jones, Schonlau
and Welch, "Efficient Global Optimization of Expensive Black-Box Functions", 1998).
"""

from __future__ import annotations

import math
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
        for numbers in (self.times_s, self.waiting, self.failed):
            free[list(numbers)] = False
        return np.flatnonzero(free)

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
        fastest = trials.fastest(INCUMBENTS)
        near = [untried[pool.changes(number)[untried] <= _NEAR] for number in fastest]
        found = np.unique(np.concatenate(near)) if near else untried
        return pool.best_estimated(found if len(found) else untried)


class Improvement:
    """The setting with the largest expected improvement over the fastest as the process sees it:
    its mean, for a time alone may have been luck."""

    def choose(self, pool: SettingsPool, trials: Trials, untried: Rows) -> int:
        """See `Rule`."""
        if not trials.times_s:
            return pool.best_estimated(untried)
        known, process = fit(pool, trials.times_s, trials.waiting)
        means, spreads = _predict(process, untried)
        latencies_s = pool.estimates_s[untried] * np.exp(means)
        now_s = float((pool.estimates_s[known] * np.exp(_predict(process, known)[0])).min())
        gains = saved(latencies_s, spreads, np.full(len(untried), now_s))
        return int(untried[np.argmax(gains)])


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
    )


def _predict(process: Residuals, numbers: Rows) -> tuple[Floats, Floats]:
    return process.predict(numbers, np.zeros(len(numbers), dtype=np.int64))
