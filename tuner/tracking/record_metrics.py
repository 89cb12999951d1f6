"""Records as metrics in MLflow: the curves of their tasks. No I/O.

A record's number within its task, in the order of the store, is its step. So a record gives the
same metrics, with the same step and time, whenever and on whatever machine the store is read.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from tuner.errors import TunerError
from tuner.record import Record
from tuner.session.progress import TaskProgress, fold
from tuner.storage.base import SessionSpan, worked_s
from tuner.task import Task
from tuner.tracking.spool import LOSS, SHAPE, Entry, Metrics

BY_TIME = "best_us_by_time"
_NOT_BY_RECORD = frozenset({BY_TIME, LOSS, SHAPE})
"""Metrics of tasks whose steps are not numbers of records."""


def said_steps(spool: Iterable[Entry | None]) -> dict[str, set[int]]:
    """The numbers of records, by task, whose metrics are in the spool already: older versions put
    them there."""
    said: dict[str, set[int]] = {}
    for entry in spool:
        if isinstance(entry, Metrics) and entry.task and _NOT_BY_RECORD.isdisjoint(entry.values):
            said.setdefault(entry.task, set()).add(entry.step)
    return said


@dataclass(slots=True)
class _Curves:
    """The state of one task's curves."""

    progress: TaskProgress
    records: int = 0
    best_s: float | None = None
    second: int = -1

    def take(self, record: Record, time_s: float, elapsed_s: float) -> tuple[Metrics, ...]:
        """The entry at the record's step, and one for the best by time where that changes."""
        self.records += 1
        self.progress.observe(record)
        task, before_s, best_s = self.progress.task, self.best_s, self.progress.best_s
        self.best_s = best_s
        values = {}
        if record.latency_s is not None:
            values["retimed_us" if record.trial.rung else "latency_us"] = record.latency_s * 1e6
        if best_s is None:
            return (Metrics(task.key, self.records, values, time_s),)
        values["best_us"] = best_s * 1e6
        improved = before_s is None or best_s < before_s
        if improved and task.flops:
            values["gflops"] = task.flops / best_s / 1e9
        entry = Metrics(task.key, self.records, values, time_s)
        second = max(self.second, int(elapsed_s))
        if not improved and second == self.second:
            return (entry,)
        self.second = second
        return entry, Metrics(task.key, second, {BY_TIME: best_s * 1e6}, time_s)


class RecordMetrics:
    """A fold over all records of a store, in its order.

    Args:
        tasks: the tasks of the store.
        said: records whose metrics are left out, see `said_steps`.
    """

    def __init__(self, tasks: Iterable[Task], said: Mapping[str, AbstractSet[int]]) -> None:
        self._curves = {key: _Curves(p) for key, p in fold(tasks, {}, ()).items()}
        self._said = said

    def take(self, record: Record, sessions: Sequence[SessionSpan]) -> tuple[Metrics, ...]:
        """The metrics of the next record.

        Raises:
            TunerError: its task is not among the tasks, as one that was added since.
        """
        key = record.trial.task_key
        if key not in self._curves:
            raise TunerError(f"a record of task {key}, which is not in the store")
        time_s = record.time_s if math.isfinite(record.time_s) else 0.0
        entries = self._curves[key].take(record, time_s, worked_s(sessions, time_s))
        return () if self._curves[key].records in self._said.get(key, ()) else entries
