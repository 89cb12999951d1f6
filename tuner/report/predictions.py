"""What was predicted of candidates, beside what was measured of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tuner.record import Predicted, Record

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


def pairs(records: Iterable[Record], names: Mapping[str, str]) -> tuple[Pair, ...]:
    """The pairs of a run's search, in the order they were measured.

    Args:
        names: of tasks, by their keys.
    """
    timed = [r for r in records if r.trial.rung == 0 and r.latency_s is not None]
    best_s: dict[object, float] = {}
    for record in timed:
        place, latency_s = _place(record), record.latency_s or 0.0
        best_s[place] = min(latency_s, best_s.get(place, latency_s))
    found = [
        Pair(
            names.get(record.trial.task_key, record.trial.task_key),
            trial,
            record.latency_s or 0.0,
            best_s[_place(record)] / (record.latency_s or 1.0),
            _score(record.predicted),
            record.predicted.estimate_s,
        )
        for trial, record in enumerate(timed, start=1)
        if record.predicted is not None
    ]
    return tuple(spread(found, MOST))


def _place(record: Record) -> object:
    return record.trial.task_key, record.trial.instance


def _score(predicted: Predicted) -> float | None:
    return predicted.score if predicted.model_version else None


def spread(found: Sequence[Pair], most: int) -> list[Pair]:
    """All, or `most` of them that are spread evenly, the first and the last included."""
    if len(found) <= most:
        return list(found)
    return [found[round(i * (len(found) - 1) / (most - 1))] for i in range(most)]
