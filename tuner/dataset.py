"""What the cost model learns from: features and latencies of measured candidates, by task."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tuner.cost_model import Floats, Groups
from tuner.measure import Features
from tuner.record import Record, Status


@dataclass(frozen=True, slots=True)
class Examples:
    """A snapshot: one row for each measured candidate."""

    features: Floats
    latencies_s: Floats
    groups: Groups

    def __len__(self) -> int:
        return len(self.groups)


class Dataset:
    """Grows by one row with each record that has features."""

    def __init__(self) -> None:
        self._features: list[Features] = []
        self._latencies_s: list[float] = []
        self._groups: list[int] = []
        self._group_of: dict[str, int] = {}

    def add(self, record: Record, features: Features) -> None:
        """Take one rung-0 record in.

        A censored candidate counts with the bound it reached. A candidate that could not be
        built or run has no time (infinite); one that the fleet lost says nothing.
        """
        status = record.measurement.status
        if record.trial.rung > 0 or status is Status.LOST:
            return
        if status is Status.CENSORED:
            latency_s = min(record.measurement.samples_s, default=math.inf)
        else:
            latency_s = record.latency_s if record.latency_s is not None else math.inf
        if self._features and len(self._features[0]) != len(features):
            # An earlier session described candidates in another way: that cannot be mixed.
            self._features.clear()
            self._latencies_s.clear()
            self._groups.clear()
        self._features.append(features)
        self._latencies_s.append(latency_s)
        group = self._group_of.setdefault(record.trial.task_key, len(self._group_of))
        self._groups.append(group)

    def snapshot(self) -> Examples:
        """All rows so far, as arrays."""
        return Examples(
            np.asarray(self._features, dtype=np.float32),
            np.asarray(self._latencies_s, dtype=np.float32),
            np.asarray(self._groups, dtype=np.int32),
        )

    def __len__(self) -> int:
        return len(self._groups)
