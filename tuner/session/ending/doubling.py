"""Predicts what the next doubling of a run's trials brings, so that the run ends when it is little.

A search's gains fade: a doubling brings about `_NEXT` of what the one before brought. What that
brought is the fall of the model's time from the fastest kernels of the first half of the trials to
those of all trials. Their own times would say too much: each was chosen because it seemed fast, and
some of that was luck. So a search that predicts times tells what it expects of both, by all that is
known now. (Measured on a recorded run of 1,664 trials in 33 tasks: predicted / came, per cent, at
300 to 1,400 trials 8.2/7.7, 11.6/8.2, 6.8/4.7, 4.7/3.2, 4.6/3.5, 3.7/3.4, 2.7/3.2, 2.0/2.3,
1.6/1.4; by the search's own times the prediction is useless.)
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from tuner.candidate import Candidate
from tuner.record import Record
from tuner.task import Instance

_NEXT = 0.4
"""The gain of a doubling over that of the one before it."""
_LEAST_TRIALS, _LEAST_EACH = 128, 24
"""Trials of a run, and for each of its tasks, before anything is predicted: the first are there to
look around, and what they bring says little of what follows."""

Place = tuple[str, Instance]
"""A task's key, and one of its shapes; a static task has one shape, `()`."""
Expect = Callable[[str, Sequence[Candidate]], Sequence[float] | None]
"""The latencies that a task's search expects of candidates that were timed, seconds; None where it
expects nothing, and the times themselves count."""


class Doublings:
    """The fastest kernels of a run as its trials went on.

    Args:
        weights: how often the model runs a task on a shape.
    """

    def __init__(self, weights: Mapping[Place, float]) -> None:
        self._weights = weights
        self._fastest: dict[Place, list[tuple[int, float, Candidate]]] = {}
        """Each that was the fastest when it came: the trials by then, its latency, seconds."""

    def observe(self, record: Record, trials: int) -> None:
        """Take in a record of the search.

        Args:
            trials: of the run so far, this one included.
        """
        place, latency_s = (record.trial.task_key, record.trial.instance), record.latency_s
        if record.trial.rung or latency_s is None or place not in self._weights:
            return
        known = self._fastest.setdefault(place, [])
        if not known or latency_s < known[-1][1]:
            known.append((trials, latency_s, record.trial.candidate))

    def next_gain(self, trials: int, expect: Expect) -> float | None:
        """The share of the model's time that the next doubling is predicted to save.

        Where little came of the last doubling by chance, earlier ones still say something: it is
        what the most hopeful of them leads to. None where it cannot be told: there are few trials,
        or a task had no kernel by half of them.
        """
        tasks = {task_key for task_key, _ in self._fastest}
        if not tasks or trials < max(_LEAST_TRIALS, _LEAST_EACH * len(tasks)):
            return None
        begun = max(known[0][0] for known in self._fastest.values())
        ends = [trials]
        while ends[-1] // 2 >= begun:
            ends.append(ends[-1] // 2)
        totals_s = self._totals_s(ends, expect)
        gains = [1.0 - now_s / then_s for now_s, then_s in pairwise(totals_s)]
        return max(0.0, *(_NEXT**n * gain for n, gain in enumerate(gains, 1))) if gains else None

    def _totals_s(self, ends: Sequence[int], expect: Expect) -> list[float]:
        """The model's time with the fastest kernels of so many trials, for each of `ends`."""
        totals_s = [0.0] * len(ends)
        for place, known in self._fastest.items():
            rows = [known[bisect_right(known, end, key=lambda row: row[0]) - 1] for end in ends]
            times_s = expect(place[0], [kernel for _, _, kernel in rows])
            for n, row in enumerate(rows):
                totals_s[n] += self._weights[place] * (row[1] if times_s is None else times_s[n])
        return totals_s
