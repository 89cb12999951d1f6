"""Checkpoints of the process that has learned from all templates' settings of a run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from tuner.arrays import Features, Floats32
from tuner.cost_models.base import FittedModel, ModelKind
from tuner.cost_models.learner import FitPolicy
from tuner.cost_models.process import MeasuredSettings

_POLICY = FitPolicy(most=128)

Rows = tuple[Features, Floats32]
"""Features of settings and their latencies, seconds."""


class Checkpoints:
    """Writes the process down from time to time. Each search fits its own as it goes.

    Args:
        policy: when the times are so many more that it is worth it.
    """

    def __init__(
        self,
        policy: FitPolicy = _POLICY,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._policy, self._clock = policy, clock
        self._version = self._written = 0
        self._ended_s, self._took_s = clock(), 0.0

    def take(
        self, times: int, rows: Callable[[], Iterable[Rows]], accuracy: float | None
    ) -> FittedModel | None:
        """The process of now, where it is due.

        Args:
            times: settings with a time, of all tasks.
            rows: gives these settings, task by task.
            accuracy: share of pairs that the searches predicted rightly; None before any.
        """
        begun_s = self._clock()
        idle_s = begun_s - self._ended_s
        due = self._policy.due(times, fitted=self._written, idle_s=idle_s, last_fit_s=self._took_s)
        if not due:
            return None
        data = _together(list(rows()))
        self._version += 1
        self._written, self._ended_s = times, self._clock()
        self._took_s = self._ended_s - begun_s
        return FittedModel(self._version, data, times, accuracy, self._took_s, ModelKind.PROCESS)


def _together(parts: Sequence[Rows]) -> bytes:
    """The process of several tasks."""
    groups = [np.full(len(times), task) for task, (_, times) in enumerate(parts)]
    rows = MeasuredSettings(
        np.concatenate([features for features, _ in parts]),
        np.concatenate([times for _, times in parts]),
        np.concatenate(groups).astype(np.int32),
    )
    return rows.dump()
