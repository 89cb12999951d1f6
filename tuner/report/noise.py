"""The noise of the times that decided: how far apart the re-timings of one candidate are."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tuner.generations import round_of
from tuner.record import Record
from tuner.task import Instance


def deviation(kernels: Iterable[Sequence[float]]) -> float | None:
    """How far times of one kernel are apart: the median logarithm of a time over the first of its
    kernel. None where no kernel has two.

    Args:
        kernels: the times of each.
    """
    ratios = [time / times[0] for times in kernels for time in times[1:]]
    logs = [abs(math.log(ratio)) for ratio in ratios if ratio > 0]
    return statistics.median(logs) if logs else None


@dataclass(frozen=True, slots=True)
class Retiming:
    """One re-timing of a finalist.

    Attributes:
        task: name of its task.
        round: counts up from 1.
        relative: its time over the median of all re-timings of the candidate on that shape.
        winner: whether it is the fastest of its task on that shape, by these medians.
    """

    task: str
    round: int
    relative: float
    winner: bool


class RetimingFold:
    """Takes in the records of a run, and then tells its re-timings.

    Args:
        names: of tasks, by their keys.
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names
        self._found: dict[str, dict[_Pair, list[tuple[int, float]]]] = defaultdict(
            lambda: defaultdict(list)
        )

    def take(self, record: Record) -> None:
        """Take in the next record."""
        if record.trial.rung > 0 and record.latency_s is not None:
            pair = record.trial.candidate.key, record.trial.instance
            timed = round_of(record.trial.rung), record.latency_s
            self._found[record.trial.task_key][pair].append(timed)

    def retimings(self) -> tuple[Retiming, ...]:
        """The re-timings of all candidates that were timed again at least twice, task by task."""
        told: list[Retiming] = []
        for task_key, pairs in self._found.items():
            medians = {pair: statistics.median(s for _, s in mine) for pair, mine in pairs.items()}
            slowest_first = sorted(medians, key=lambda pair: medians[pair], reverse=True)
            best = {instance: (key, instance) for key, instance in slowest_first}
            name = self._names.get(task_key, task_key)
            for pair, mine in pairs.items():
                told += [
                    Retiming(name, number, latency_s / medians[pair], pair == best[pair[1]])
                    for number, latency_s in mine
                    if len(mine) > 1
                ]
        return tuple(told)


_Pair = tuple[str, Instance]
"""A candidate's key, and the shape it was timed on."""
