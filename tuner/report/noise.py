"""The noise of the times that decided: how far apart the re-timings of one candidate are."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tuner.generations import round_of
from tuner.record import Record
from tuner.task import Instance


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


def retimings(records: Iterable[Record], names: Mapping[str, str]) -> tuple[Retiming, ...]:
    """The re-timings of all candidates that were timed again at least twice, task by task.

    Args:
        names: of tasks, by their keys.
    """
    found: dict[str, dict[tuple[str, Instance], list[Record]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for record in records:
        if record.trial.rung > 0 and record.latency_s is not None:
            pair = record.trial.candidate.key, record.trial.instance
            found[record.trial.task_key][pair].append(record)
    told: list[Retiming] = []
    for task_key, pairs in found.items():
        medians = {pair: _median_s(mine) for pair, mine in pairs.items()}
        best = {pair[1]: pair for pair in sorted(medians, key=lambda p: medians[p], reverse=True)}
        for pair, mine in pairs.items():
            told += [
                Retiming(
                    names.get(task_key, task_key),
                    round_of(record.trial.rung),
                    (record.latency_s or math.nan) / medians[pair],
                    pair == best[pair[1]],
                )
                for record in mine
                if len(mine) > 1
            ]
    return tuple(told)


def _median_s(records: Iterable[Record]) -> float:
    return statistics.median(r.latency_s for r in records if r.latency_s is not None)
