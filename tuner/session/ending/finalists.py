"""The candidates that are timed again at the end, and their order.

How many are timed how often is in `tuner.session.ending.halving`.
"""

from __future__ import annotations

import bisect
import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tuner.candidate import Candidate, CandidateKind
from tuner.cost_models.gaussian_process import TO_DEVIATION
from tuner.dynamic.shapes import MEASURED_SHAPES
from tuner.effort import Effort
from tuner.generations import rung_of
from tuner.record import Record, Trial, TrialKey
from tuner.search.base import ChoosesFinalists, Search
from tuner.session.ending.halving import retimings
from tuner.storage.base import RecordStore
from tuner.task import Instance, Task
from tuner.view.progress import TaskProgress

_CONTENDER = 1.2
"""A candidate slower than this times the best is out of contention: noise does not reach it."""
LEAST_NOISE, _ENOUGH = 1.05, 16
"""The least factor that noise is assumed to reach, and the number of pairs timed twice from which
on noise is estimated."""
_LEAST = 2
"""Finalists of a task however small its share of the model's time is."""
_LIBRARIES = 4
"""Candidates of libraries that a session may lack, which another session of its run had."""


Chosen = tuple[TaskProgress, list[tuple[Candidate, Instance]]]
"""A task, and its candidates to be timed again, each with a shape."""


@dataclass(frozen=True, slots=True)
class Finalists:
    """Who is timed again, of the tasks of a session.

    Attributes:
        searches: of the tasks, by their keys; some choose themselves.
        libraries: candidates that call libraries which this session has, by task.
        count: the most of a task, where its search does not choose.
    """

    searches: Mapping[str, Search]
    store: RecordStore
    defaults: Mapping[str, Candidate]
    libraries: Mapping[str, Sequence[Candidate]]
    count: int

    def choose(self, tasks: Iterable[TaskProgress]) -> list[Chosen]:
        """Those that are timed again at least once."""
        found = list(tasks)
        counts = count_each(found, self.count)
        return [(p, self._choose(p, count)) for p, count in zip(found, counts, strict=True)]

    def _choose(self, progress: TaskProgress, count: int) -> list[tuple[Candidate, Instance]]:
        key = progress.task.key
        search = self.searches[key]
        if isinstance(search, ChoosesFinalists):
            return search.finalists()
        best = self._fastest(key, count + 1)
        chosen = finalists(progress, best, self.defaults.get(key), count)
        return [(candidate, ()) for candidate in chosen]

    def _fastest(self, key: str, count: int) -> list[Record]:
        """The fastest of a task's search, without those of libraries that are not here."""
        found = list(self.store.scan(key, fastest=count + _LIBRARIES))
        here = self.libraries.get(key, ())
        return [r for r in found if r.trial.candidate in here or not _calls(r.trial.candidate)]


def count_each(tasks: Sequence[TaskProgress], most: int) -> list[int]:
    """The number of finalists of each task: fewer where its share of the model's time is below the
    mean, in proportion. (Of a network's 33 tasks 24 took 9 % of its time, and two thirds of that of
    the finalists.)"""
    total_s = sum(map(_share_s, tasks))
    shares = [_share_s(p) / total_s if total_s else 1.0 for p in tasks]
    wanted = (max(_LEAST, math.ceil(most * len(tasks) * share)) for share in shares)
    return [min(most, count) for count in wanted]


def _share_s(progress: TaskProgress) -> float:
    """The time that the model spends on a task, seconds."""
    return progress.task.weight * (progress.so_far_s or 0.0)


def _calls(candidate: Candidate) -> bool:
    return candidate.kind is CandidateKind.LIBRARY


def noise_factor(middle: float, most: float) -> float:
    """The factor that two times of one kernel may be apart by: two standard deviations of normal
    noise.

    Args:
        middle: median of the sizes of logarithms of the ratios between two such times.
        most: the largest factor that is put down to noise.
    """
    return min(max(math.exp(2 * TO_DEVIATION * middle), LEAST_NOISE), most)


class Contention:
    """The finalists that can still be the fastest, while they are timed again.

    A pair of a candidate and a shape is timed only while its fastest time so far, that of the
    search included, is near the fastest that any finalist was re-timed with on that shape: within
    two standard deviations of the difference between two times of one pair. A time of the search
    alone eliminates nobody: it may be luck.

    Args:
        records: of the tasks; re-timings among them are of one generation.
    """

    def __init__(self, records: Iterable[Record]) -> None:
        self._fastest_s: dict[tuple[str, Instance], float] = {}
        self._own_s: dict[tuple[str, str, Instance], float] = {}
        self._retimed_s: dict[tuple[str, str], list[float]] = {}
        self._differences: list[float] = []
        self._required: set[TrialKey] = set()
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
            self._retimed_s.setdefault(pair[:2], []).append(latency_s)

    def require(self, trials: Iterable[Trial]) -> None:
        """Have some trials made however slow they are: of pairs that are chosen."""
        self._required.update(trial.key for trial in trials)

    def holds(self, trial: Trial) -> bool:
        """Whether a trial can still change which candidate is the fastest, or is required."""
        if trial.key in self._required:
            return True
        own_s = self._own_s.get((trial.task_key, trial.candidate.key, trial.instance))
        fastest_s = self._fastest_s.get((trial.task_key, trial.instance))
        if own_s is None or fastest_s is None:
            return True
        return own_s <= self._reach * fastest_s

    def keep(self, chosen: Chosen) -> Chosen:
        """The faster half of a static task's candidates by the medians of their re-timings, none
        where that is one alone; all of a task with shapes. One without a re-timing was lost with
        its machine, or failed."""
        progress, pairs = chosen
        if progress.task.shapes:
            return chosen
        timed = [(self._median_s(progress.task.key, c.key), n) for n, (c, _) in enumerate(pairs)]
        half = (len(pairs) + 1) // 2
        kept = [pairs[n] for s, n in sorted(timed)[:half] if math.isfinite(s)]
        return progress, kept if half > 1 else []

    def _median_s(self, task_key: str, candidate_key: str) -> float:
        times_s = self._retimed_s.get((task_key, candidate_key))
        return statistics.median(times_s) if times_s else math.inf

    @property
    def _reach(self) -> float:
        """The factor by which noise may make a pair seem slower than it is."""
        if len(self._differences) < _ENOUGH:
            return _CONTENDER
        middle = self._differences[len(self._differences) // 2]
        return noise_factor(middle, _CONTENDER)


def finalists(
    progress: TaskProgress, best: Sequence[Record], default: Candidate | None, count: int
) -> list[Candidate]:
    """The candidates of one task that may be timed again, the fastest first: `Contention` has the
    slower ones left out, once the first were timed again and the lucky ones are known.

    Args:
        best: the task's fastest records, fastest first.
        default: is added where it is near them, so that no winner loses to it.
        count: the most to choose, the default not counted.
    """
    others = [r for r in _distinct(best) if r.trial.candidate.key != progress.default_key][:count]
    chosen = [r.trial.candidate for r in others]
    limit_s = _CONTENDER * max((r.latency_s or 0.0 for r in others), default=0.0)
    if default is not None and progress.default_s is not None and progress.default_s <= limit_s:
        chosen.append(default)
    return chosen


def _distinct(records: Sequence[Record]) -> list[Record]:
    """The records without those whose program an earlier one has: two that were built at the same
    time may have one program."""
    seen: set[str] = set()
    kept = []
    for record in records:
        if not record.code_hash or record.code_hash not in seen:
            kept.append(record)
        seen.add(record.code_hash)
    return kept


def most_retimings(tasks: Iterable[Task], effort: Effort) -> int:
    """About the number of re-timings of these tasks if no finalist falls out of contention."""
    return sum(
        (effort.finalists + 1) * min(len(task.shapes), MEASURED_SHAPES) * effort.shape_rounds
        if task.shapes
        else retimings(effort.finalists)
        for task in tasks
    )


def schedule(
    tasks: Iterable[tuple[TaskProgress, Sequence[tuple[Candidate, Instance]]]],
    rounds: Callable[[Task], range],
    stored: Callable[[Trial], bool],
    generation: int = 0,
) -> Iterator[Trial]:
    """Yield re-timing trials, interleaved: each round times every pair of a finalist and a shape
    once.

    The machine's drift then affects all of a task's finalists alike. Tasks with the largest share
    of the model come first, so that they are served if time runs out.

    Args:
        rounds: numbers of the rounds of a task.
        stored: whether a trial has its record already, from an earlier session.
        generation: of the re-timings, see `tuner.generations`.
    """

    ordered = sorted(tasks, key=lambda entry: -_share_s(entry[0]))
    numbers = sorted({number for progress, _ in ordered for number in rounds(progress.task)})
    for number in numbers:
        rung = rung_of(generation, number)
        for progress, chosen in ordered:
            if number not in rounds(progress.task):
                continue
            for candidate, instance in chosen:
                trial = Trial(progress.task.key, candidate, instance, rung)
                if not stored(trial):
                    yield trial
