"""What was predicted of candidates, beside what was measured of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tuner.record import Predicted, Record
from tuner.task import Instance

_Item = TypeVar("_Item")
_Place = tuple[str, Instance]

MOST = 2000
"""Pairs that a page shows; of more, some that are spread over all."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A candidate that was predicted, and then measured.

    Attributes:
        task: name of its task.
        trial: counts up from 1 over the run.
        latency_s: measured.
        of_best: best latency of its task on its shape in the search, over this one: at most 1.
        score: of the cost model, see `tuner.record.Predicted`; None before there was a model.
        estimate_s: analytic latency; None where there is no such estimate.
    """

    task: str
    trial: int
    latency_s: float
    of_best: float
    score: float | None
    estimate_s: float | None


class PredictionFold:
    """Takes in the records of a run, and then tells what had been predicted.

    Args:
        names: of tasks, by their keys.
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names
        self._best_s: dict[_Place, float] = {}
        self._found: list[tuple[_Place, int, float, Predicted]] = []
        self._timed = 0

    def take(self, record: Record) -> None:
        """Take in the next record."""
        latency_s = record.latency_s
        if record.trial.rung or latency_s is None:
            return
        self._timed += 1
        place = record.trial.task_key, record.trial.instance
        self._best_s[place] = min(latency_s, self._best_s.get(place, latency_s))
        if record.predicted is not None:
            self._found.append((place, self._timed, latency_s, record.predicted))

    def pairs(self) -> tuple[Pair, ...]:
        """The pairs of the search, in the order they were measured; of many, some."""
        return tuple(
            Pair(
                self._names.get(place[0], place[0]),
                trial,
                latency_s,
                self._best_s[place] / latency_s,
                predicted.score if predicted.model_version else None,
                predicted.estimate_s,
            )
            for place, trial, latency_s, predicted in spread(self._found, MOST)
        )


def spread(found: Sequence[_Item], most: int) -> list[_Item]:
    """All, or `most` of them that are spread evenly, the first and the last included."""
    if len(found) <= most:
        return list(found)
    return [found[round(i * (len(found) - 1) / (most - 1))] for i in range(most)]
