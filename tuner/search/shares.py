"""The share of each space in a search, learned from its trials while it runs. Pure.

A bandit: a space is drawn from in proportion to how fast its best is beside the best of all, as far
as it has been tried; one whose trials fail is left all but alone. No share falls to nothing, as a
space may need many trials to show what it can do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from tuner.record import Record, Status

_TRIED = 4
"""Trials after which a space is judged."""
_TRUST = 2.0
"""The exponent of speed in the odds."""
_LEAST = 0.02

Weights = tuple[tuple[str, float], ...]
"""Factors on the odds of spaces, by name and in its order."""


class Shares:
    """What the trials of a task say about its spaces."""

    def __init__(self) -> None:
        self._trials: Counter[str] = Counter()
        self._best_s: dict[str, float] = {}

    def know(self, record: Record) -> None:
        """Take in a record of the search; repeated programs say nothing new."""
        if record.measurement.status is Status.DUPLICATE:
            return
        space, latency_s = record.trial.candidate.space, record.latency_s
        self._trials[space] += 1
        if latency_s is not None:
            self._best_s[space] = min(latency_s, self._best_s.get(space, latency_s))

    @property
    def weights(self) -> Weights:
        """The factors of the spaces that have been tried often enough."""
        return weights_of(self._trials, self._best_s)


def weights_of(trials: Mapping[str, int], best_s: Mapping[str, float]) -> Weights:
    """The factors of spaces with these numbers of trials and these best latencies, seconds."""
    best = min(best_s.values(), default=0.0)
    judged = sorted(space for space, number in trials.items() if number >= _TRIED)
    if not best:
        return ()  # nothing worked so far, whatever the space
    factors = ((s, (best / best_s[s]) ** _TRUST if s in best_s else 0.0) for s in judged)
    return tuple((space, max(_LEAST, factor)) for space, factor in factors)
