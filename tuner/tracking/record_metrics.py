"""Records as metrics in MLflow: the curves of the model and of its tasks, and where they were
measured. No I/O.

A record's number within its task, in the order of the store, is its step, and for the model the
number of trials until then. So a record gives the same metrics, with the same step and time,
whenever and on whatever machine the store is read.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tuner.errors import TunerError
from tuner.record import Provenance, Record
from tuner.storage.base import SessionSpan, work_until_s
from tuner.task import Task
from tuner.tracking.entries import Metrics, Tags, TaskEntry
from tuner.tracking.pages.metric_names import (
    GAIN,
    LATENCY,
    LATENCY_BY_TIME,
    TASK_BEST,
    TASK_BEST_BY_TIME,
    TASK_GFLOPS,
    TASK_LATENCY,
    TASK_RETIMED,
    UNTUNED,
    round_shown,
)
from tuner.view.model_curve import CurveFold
from tuner.view.progress import TaskProgress


@dataclass(slots=True)
class _TaskCurves:
    """What was said of one task's curves."""

    records: int = 0
    best_s: float | None = None
    second: int = -1

    def take(
        self, progress: TaskProgress, record: Record, time_s: float, second: int
    ) -> tuple[Metrics, ...]:
        """The entry at the record's step, and one for the best by time where that changes.

        Args:
            progress: of the task, which has taken the record in.
        """
        self.records += 1
        task, before_s, best_s = progress.task, self.best_s, progress.best_s
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
        if not improved and second == self.second:
            return (entry,)
        self.second = second
        return entry, Metrics(task.key, second, {TASK_BEST_BY_TIME: best_s * 1e6}, time_s)


class RecordMetrics:
    """A fold over all records of a store, in its order.

    Args:
        tasks: the tasks of the store.
        defaults: key of the default candidate of each task.
    """

    def __init__(self, tasks: Iterable[Task], defaults: Mapping[str, str]) -> None:
        self._curve = CurveFold(tasks, defaults)
        self._of_task = {key: _TaskCurves() for key in self.progress}
        self._default_s: dict[str, float] = {}
        self._said: dict[str, float] = {}
        self._second = -1
        self._places: dict[str, set[str]] = {"device": set(), "toolchain": set()}

    @property
    def progress(self) -> Mapping[str, TaskProgress]:
        """The progress of each task, by its key, in the order of the store."""
        return self._curve.progress

    def announce(self, key: str) -> TaskEntry:
        """The entry that announces a task."""
        task = self.progress[key].task
        params = {
            "task": task.key,
            "weight": f"{task.weight:g}",
            "flops": f"{task.flops:g}",
            "target": task.target,
        }
        return TaskEntry(task.key, task.name, params)

    def take(self, record: Record, sessions: Sequence[SessionSpan]) -> tuple[Metrics | Tags, ...]:
        """What the next record says.

        Raises:
            TunerError: its task is not among the tasks, as one that was added since.
        """
        key = record.trial.task_key
        if key not in self.progress:
            raise TunerError(f"a record of task {key}, which is not in the store")
        self._curve.take(record, sessions)
        time_s = record.time_s if math.isfinite(record.time_s) else 0.0
        progress, second = self.progress[key], int(work_until_s(sessions, self._curve.last_s))
        return (
            *self._of_task[key].take(progress, record, time_s, second),
            *self._whole(progress, time_s, second),
            *self._place(record.provenance),
        )

    def _whole(self, task: TaskProgress, time_s: float, second: int) -> tuple[Metrics, ...]:
        """The entry of the model by trials where a value changes, and both at the first record of a
        second.

        Args:
            task: progress of the record's task, which has taken it in.
        """
        if (default_s := task.default_s) is not None:
            self._default_s[task.task.key] = task.task.weight * default_s
        if (latency_s := self._curve.latency_s) is None:
            return ()
        values = self._values(latency_s)
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
            Metrics(None, self._curve.trials, curves, time_s),
            *([Metrics(None, second, {LATENCY_BY_TIME: values[LATENCY]}, time_s)] if later else ()),
        )

    def _values(self, latency_s: float) -> dict[str, float]:
        values = {LATENCY: round_shown(latency_s * 1e3)}
        if len(self._default_s) == len(
            self.progress
        ):  # of some tasks alone it would go up and down
            defaults_s = sum(self._default_s.values())
            values[UNTUNED] = round_shown(defaults_s * 1e3)
            values[GAIN] = round_shown(defaults_s / latency_s)
        return values

    def _place(self, where: Provenance) -> tuple[Tags, ...]:
        """The device and the toolchain, where a record is the first of one."""
        new = {}
        for name, value in (("device", where.device), ("toolchain", where.toolchain)):
            if value and value not in (seen := self._places[name]):
                seen.add(value)
                new[name] = ", ".join(sorted(seen))
        return (Tags(new),) if new else ()
