"""The training data of cost models: features and latencies of measured candidates, by task."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

import numpy as np

from tuner.arrays import Features, Flags, Floats32, Ints32, Rows
from tuner.record import Record, Status


@dataclass(frozen=True, slots=True)
class Examples:
    """A snapshot: one row for each measured candidate.

    Attributes:
        censored: set where a latency is only a lower bound; None is set nowhere.
    """

    features: Floats32
    latencies_s: Floats32
    groups: Ints32
    censored: Flags | None = None

    def __len__(self) -> int:
        return len(self.groups)

    @property
    def bounds(self) -> Flags:
        """`censored` as an array, also where it is None."""
        return np.zeros(len(self), dtype=np.bool_) if self.censored is None else self.censored

    def only(self, rows: Rows) -> Examples:
        """Some of these rows, by their numbers; this very object if all are asked for."""
        if len(rows) == len(self):
            return self
        bounds = self.bounds[rows]
        return Examples(self.features[rows], self.latencies_s[rows], self.groups[rows], bounds)

    def with_more(self, more: Examples) -> Examples:
        """These rows, followed by others."""
        return Examples(
            np.concatenate([self.features, more.features]),
            np.concatenate([self.latencies_s, more.latencies_s]),
            np.concatenate([self.groups, more.groups]),
            np.concatenate([self.bounds, more.bounds]),
        )


class Dataset:
    """Grows by one row with each record that has features."""

    def __init__(self) -> None:
        self._features: list[Features] = []
        self._latencies_s: list[float] = []
        self._groups: list[int] = []
        self._censored: list[bool] = []
        self._group_of: dict[tuple[str, int], int] = {}
        self._toolchains: dict[str, list[str]] = {}

    def add(self, record: Record, features: Features) -> None:
        """Take in one rung-0 record.

        A censored candidate counts with its lower bound, marked as such, a duplicate with the time
        of its program. A candidate that could not be built or run has an infinite time; one that
        the fleet lost is left out.
        """
        status, samples_s = record.measurement.status, record.measurement.samples_s
        if record.trial.rung > 0 or status is Status.LOST:
            return
        if status is Status.CENSORED:
            latency_s = min(samples_s, default=math.inf)
        elif status is Status.DUPLICATE and samples_s:
            latency_s = statistics.median(samples_s)
        else:
            latency_s = record.latency_s if record.latency_s is not None else math.inf
        if self._features and len(self._features[0]) != len(features):
            # An earlier session made other features, which cannot be mixed with these.
            self._features.clear()
            self._latencies_s.clear()
            self._groups.clear()
            self._censored.clear()
        self._features.append(features)
        self._latencies_s.append(latency_s)
        self._censored.append(status is Status.CENSORED and math.isfinite(latency_s))
        task_key = record.trial.task_key
        key = (task_key, self._toolchain(task_key, record.provenance.toolchain))
        self._groups.append(self._group_of.setdefault(key, len(self._group_of)))

    def _toolchain(self, task_key: str, toolchain: str) -> int:
        """The number of a task's toolchain: times of two are not ranked together. A record without
        one, whose candidate was not run, belongs to the last."""
        known = self._toolchains.setdefault(task_key, [])
        if toolchain and toolchain not in known:
            known.append(toolchain)
        return known.index(toolchain) if toolchain else max(0, len(known) - 1)

    def snapshot(self, start: int = 0) -> Examples:
        """The rows so far as arrays, from number `start` on."""
        width = len(self._features[0]) if self._features else 0
        return Examples(
            np.asarray(self._features[start:], dtype=np.float32).reshape(-1, width),
            np.asarray(self._latencies_s[start:], dtype=np.float32),
            np.asarray(self._groups[start:], dtype=np.int32),
            np.asarray(self._censored[start:], dtype=np.bool_),
        )

    def __len__(self) -> int:
        return len(self._groups)
