"""Who is timed again at the end, and in which order. Pure."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Iterable, Iterator, Sequence

from tuner.candidate import Candidate
from tuner.effort import Effort
from tuner.generations import round_of, rung_of
from tuner.record import Record, Trial
from tuner.session.progress import TaskProgress
from tuner.shapes import MEASURED_SHAPES
from tuner.task import Instance, Task

_CONTENDER = 1.2
"""A candidate slower than this times the best is no contender: noise does not reach so far."""
_LEAST, _ENOUGH = 1.05, 16
"""Noise is taken to reach this far at least, and is known once so many pairs were timed twice."""
_TO_DEVIATION = 1.4826
"""Of normal noise, the standard deviation over the median size."""


class Contention:
    """Which finalists can still be the fastest, while they are timed again.

    The first round of a task is timed in full; after it a pair of a candidate and a shape goes on
    only while its fastest time so far, that of the search included, is near the fastest that any
    finalist was timed with on that shape: within two standard deviations of how much two times of
    one pair differ. What the search alone measured makes nobody lose: it may have been luck.

    Args:
        records: what is known of the tasks; of re-timings, those of one generation.
    """

    def __init__(self, records: Iterable[Record]) -> None:
        self._fastest_s: dict[tuple[str, Instance], float] = {}
        self._own_s: dict[tuple[str, str, Instance], float] = {}
        self._differences: list[float] = []
        for record in records:
            self.observe(record)

    def observe(self, record: Record) -> None:
        """Take a record in."""
        trial, latency_s = record.trial, record.latency_s
        if latency_s is None:
            return
        pair = (trial.task_key, trial.candidate.key, trial.instance)
        if trial.rung and pair in self._own_s:
            bisect.insort(self._differences, abs(math.log(latency_s / self._own_s[pair])))
        self._own_s[pair] = min(latency_s, self._own_s.get(pair, latency_s))
        if trial.rung:
            shape = (trial.task_key, trial.instance)
            self._fastest_s[shape] = min(latency_s, self._fastest_s.get(shape, latency_s))

    def holds(self, trial: Trial) -> bool:
        """Whether a trial can still change who is the fastest."""
        own_s = self._own_s.get((trial.task_key, trial.candidate.key, trial.instance))
        fastest_s = self._fastest_s.get((trial.task_key, trial.instance))
        if round_of(trial.rung) <= 1 or own_s is None or fastest_s is None:
            return True
        return own_s <= self._reach * fastest_s

    @property
    def _reach(self) -> float:
        """How many times as slow as it is a pair may seem."""
        if len(self._differences) < _ENOUGH:
            return _CONTENDER
        middle = self._differences[len(self._differences) // 2]
        return min(max(math.exp(2 * _TO_DEVIATION * middle), _LEAST), _CONTENDER)


def finalists(
    progress: TaskProgress, best: Sequence[Record], default: Candidate | None, count: int
) -> list[Candidate]:
    """Candidates of one task worth timing again.

    Args:
        best: the task's fastest records, fastest first.
        default: joins the others where it is a contender, so that no winner loses to it.
        count: at most so many, the default not counted.
    """
    if not best or best[0].latency_s is None:
        return []
    limit_s = _CONTENDER * best[0].latency_s
    near = [r for r in best if r.latency_s is not None and r.latency_s <= limit_s]
    chosen = [r.trial.candidate for r in near if r.trial.candidate.key != progress.default_key]
    chosen = chosen[:count]
    if default is not None and progress.default_s is not None and progress.default_s <= limit_s:
        chosen.append(default)
    return chosen


def most_retimings(tasks: Iterable[Task], effort: Effort) -> int:
    """How many trials the finalists of these tasks take, about, if none is out of contention."""
    shapes = ((task, min(max(1, len(task.shapes)), MEASURED_SHAPES)) for task in tasks)
    return sum((effort.finalists + 1) * many * effort.rounds_of(task) for task, many in shapes)


def schedule(
    tasks: Iterable[tuple[TaskProgress, Sequence[tuple[Candidate, Instance]]]],
    rounds: Callable[[Task], int],
    stored: Callable[[Trial], bool],
    generation: int = 0,
) -> Iterator[Trial]:
    """Re-timing trials, interleaved: every round times each finalist of each task once, and of
    a task with many shapes once on each of them.

    Drift of the machine then meets all of a task's finalists alike. Tasks with the largest share
    of the model come first, so they are served if time runs out.

    Args:
        rounds: how often each finalist of a task is timed.
        stored: whether a trial has its record already, from an earlier session.
        generation: of the re-timings, see `tuner.generations`.
    """

    def share(entry: tuple[TaskProgress, Sequence[tuple[Candidate, Instance]]]) -> float:
        return -entry[0].task.weight * (entry[0].so_far_s or 0.0)

    ordered = sorted(tasks, key=share)
    most = max((rounds(progress.task) for progress, _ in ordered), default=0)
    for number in range(1, most + 1):
        rung = rung_of(generation, number)
        for progress, chosen in ordered:
            if number > rounds(progress.task):
                continue
            for candidate, instance in chosen:
                trial = Trial(progress.task.key, candidate, instance, rung)
                if not stored(trial):
                    yield trial
