"""Successive halving of a task's finalists: many are timed again once, few often. Pure.

With the noise of a busy machine the fastest trials of a search are largely the lucky ones, so many
must be looked at again; and the last two are told apart by many timings alone. Each stage has half
the candidates of the one before and, from the third on, twice its rounds: all stages take about as
long (Karnin, Koren and Somekh, "Almost Optimal Exploration in Multi-Armed Bandits", ICML 2013).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tuner.task import Task


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage.

    Attributes:
        candidates: the most that are timed in it.
        rounds: numbers of its rounds; each times every candidate once.
    """

    candidates: int
    rounds: range


def stages(count: int) -> Iterator[Stage]:
    """The stages of `count` candidates; for 16: 16 once, 8 once, 4 twice, 2 four times."""
    rounds = range(1, 2)
    while count >= 1:
        yield Stage(count, rounds)
        if count <= 2:
            return
        count = (count + 1) // 2
        rounds = range(rounds.stop, rounds.stop + max(1, rounds.stop - 1))


def rounds_of(stage: Stage, task: Task, *, shape_rounds: int) -> range:
    """The rounds of a task in a stage; of a task with shapes all are in the first."""
    if not task.shapes:
        return stage.rounds
    return range(1, 1 + shape_rounds if stage.rounds.start == 1 else 1)


def retimings(count: int) -> int:
    """The number of re-timings of `count` candidates in all stages."""
    return sum(stage.candidates * len(stage.rounds) for stage in stages(count))
