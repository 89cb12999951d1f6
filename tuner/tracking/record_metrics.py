"""Records as metrics in MLflow: the curves of the model and of its tasks. No I/O.

A record's number within its task, in the order of the store, is its step, and for the model the
number of trials until then. So a record gives the same metrics, with the same step and time,
whenever and on whatever machine the store is read.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from tuner.errors import TunerError
from tuner.record import Record
from tuner.storage.base import SessionSpan, worked_s
from tuner.task import Task
from tuner.tracking.pages.metric_names import (
    GAIN,
    LATENCY,
    LATENCY_BY_TIME,
    NOT_BY_RECORD,
    TASK_BEST,
    TASK_BEST_BY_TIME,
    TASK_GFLOPS,
    TASK_LATENCY,
    TASK_RETIMED,
    UNTUNED,
    shown,
)
from tuner.tracking.spool import Entry, Metrics
from tuner.view.progress import TaskProgress, fold


def said_steps(spool: Iterable[Entry | None]) -> dict[str, set[int]]:
    """The numbers of records, by task, whose metrics are in the spool already: older versions put
    them there."""
    said: dict[str, set[int]] = {}
    for entry in spool:
        if isinstance(entry, Metrics) and entry.task and NOT_BY_RECORD.isdisjoint(entry.values):
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
            values[TASK_RETIMED if record.trial.rung else TASK_LATENCY] = record.latency_s * 1e6
        if best_s is None:
            return (Metrics(task.key, self.records, values, time_s),)
        values[TASK_BEST] = best_s * 1e6
        improved = before_s is None or best_s < before_s
        if improved and task.flops:
            values[TASK_GFLOPS] = task.flops / best_s / 1e9
        entry = Metrics(task.key, self.records, values, time_s)
        second = max(self.second, int(elapsed_s))
        if not improved and second == self.second:
            return (entry,)
        self.second = second
        return entry, Metrics(task.key, second, {TASK_BEST_BY_TIME: best_s * 1e6}, time_s)


class _ModelCurve:
    """The latency of the whole model, once every task has a time."""

    def __init__(self, tasks: Iterable[TaskProgress]) -> None:
        self._best_s: dict[str, float | None] = {p.task.key: None for p in tasks}
        self._default_s: dict[str, float] = {}
        self._trials = 0
        self._second = -1
        self._said: dict[str, float] = {}

    def take(
        self, task: TaskProgress, record: Record, time_s: float, elapsed_s: float
    ) -> tuple[Metrics, ...]:
        """The entry by trials where a value changes, and both at the first record of a second.

        Args:
            task: of the record, which it has taken in.
        """
        spends = record.measurement.status.spends_budget
        self._trials += record.trial.rung == 0 and spends
        key, weight = task.task.key, task.task.weight
        if (best_s := task.best_s) is not None:
            self._best_s[key] = weight * best_s
        if (default_s := task.default_s) is not None:
            self._default_s[key] = weight * default_s
        known = [s for s in self._best_s.values() if s is not None]
        if len(known) < len(self._best_s):
            return ()
        values, second = self._values(sum(known)), max(self._second, int(elapsed_s))
        if values == self._said and second == self._second:
            return ()
        # With symbolic dimensions it is an estimate, which moves: the latest counts.
        untuned = UNTUNED in values and values[UNTUNED] != self._said.get(UNTUNED)
        later = second > self._second  # one point for each second: more would be drawn as noise
        self._said, self._second = values, second
        curves = {name: value for name, value in values.items() if name != UNTUNED}
        return (
            # At step 0, as what does not depend on trials: runs are compared by bars then.
            *([Metrics(None, 0, {UNTUNED: values[UNTUNED]}, time_s)] if untuned else ()),
            Metrics(None, self._trials, curves, time_s),
            *([Metrics(None, second, {LATENCY_BY_TIME: values[LATENCY]}, time_s)] if later else ()),
        )

    def _values(self, latency_s: float) -> dict[str, float]:
        values = {LATENCY: shown(latency_s * 1e3)}
        if len(self._default_s) == len(self._best_s):  # of some tasks alone it would go up and down
            defaults_s = sum(self._default_s.values())
            values[UNTUNED] = shown(defaults_s * 1e3)
            values[GAIN] = shown(defaults_s / latency_s)
        return values


class RecordMetrics:
    """A fold over all records of a store, in its order.

    Args:
        tasks: the tasks of the store.
        defaults: key of the default candidate of each task.
        said: records whose metrics of their task are left out, see `said_steps`.
    """

    def __init__(
        self,
        tasks: Iterable[Task],
        defaults: Mapping[str, str],
        said: Mapping[str, AbstractSet[int]],
    ) -> None:
        progress = fold(tasks, dict(defaults), ())
        self._curves = {key: _Curves(p) for key, p in progress.items()}
        self._model = _ModelCurve(progress.values())
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
        elapsed_s = worked_s(sessions, time_s)
        curves = self._curves[key]
        entries = curves.take(record, time_s, elapsed_s)
        whole = self._model.take(curves.progress, record, time_s, elapsed_s)
        return whole if curves.records in self._said.get(key, ()) else (*entries, *whole)
