"""The latency of the whole model as it fell over a run: a fold over its records."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tuner.record import Record
from tuner.storage.base import SessionSpan, work_until_s
from tuner.task import Task
from tuner.view.progress import fold


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """The model at one moment.

    Attributes:
        elapsed_s: seconds of work on the run; time between its sessions does not count.
        trials: of the search that were counted against the budget until then.
        latency_s: weighted sum of the tasks' best latencies so far.
        time_s: seconds since the epoch.
    """

    elapsed_s: float
    trials: int
    latency_s: float
    time_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ModelCurve:
    """The latency of a model over its run, over those tasks that have a time.

    Attributes:
        points: from the moment on that each of these tasks has one; a point for each change, and
            the last moment. Empty where no task has a time.
        default_s: the same sum of the default schedules; a task whose default has no time counts
            with its best, so that it speaks for no gain.
        tasks: the number of tasks that count.
    """

    points: tuple[CurvePoint, ...]
    default_s: float
    tasks: int

    @property
    def best_s(self) -> float | None:
        """The latency at the end; None where there is none."""
        return self.points[-1].latency_s if self.points else None


class CurveFold:
    """Takes in the records of a run, and tells the curve of its model.

    Args:
        defaults: key of the default candidate by task key.

    Attributes:
        progress: of each task, by its key.
        trials: of the search that were counted against the budget.
        last_s: when the last record came, seconds since the epoch.
    """

    def __init__(self, tasks: Iterable[Task], defaults: Mapping[str, str]) -> None:
        self.progress = fold(tasks, dict(defaults), ())
        self.trials = 0
        self.last_s = 0.0
        self._best_s: dict[str, float] = {}
        self._changes: list[tuple[str, float, CurvePoint]] = []
        """The task whose best changed, what it is now, and when; latencies of the points are not
        known yet."""

    def take(self, record: Record, sessions: Sequence[SessionSpan]) -> None:
        """Take in the next record, in the order they were stored. One of another run's task changes
        nothing.

        Args:
            sessions: of the run.
        """
        key = record.trial.task_key
        if key not in self.progress:
            return
        progress = self.progress[key]
        progress.observe(record)
        if math.isfinite(record.time_s):
            self.last_s = max(self.last_s, record.time_s)
        self.trials += record.trial.rung == 0 and record.measurement.status.spends_budget
        now_s = progress.best_s
        if now_s is not None and now_s != self._best_s.get(key):
            self._best_s[key] = now_s
            at_s = work_until_s(sessions, self.last_s)
            self._changes.append((key, now_s, CurvePoint(at_s, self.trials, 0.0, self.last_s)))

    @property
    def latency_s(self) -> float | None:
        """Latency of the whole model by now; None until each of its tasks has one."""
        if len(self._best_s) < len(self.progress) or not self.progress:
            return None
        return sum(self.progress[k].task.weight * s for k, s in self._best_s.items())

    def curve(self, sessions: Sequence[SessionSpan]) -> ModelCurve:
        """The curve of all that was taken in."""
        counted = {key: p for key, p in self.progress.items() if p.best_s is not None}
        best_s: dict[str, float] = {}
        points: list[CurvePoint] = []
        for key, now_s, point in self._changes:
            best_s[key] = now_s
            if len(best_s) == len(counted):
                latency_s = sum(p.task.weight * best_s[k] for k, p in counted.items())
                points.append(replace(point, latency_s=latency_s))
        if not points:
            return ModelCurve((), 0.0, 0)
        worked = max(sum(span.elapsed_s for span in sessions), points[-1].elapsed_s)
        end = replace(points[-1], elapsed_s=worked, trials=self.trials, time_s=self.last_s)
        default_s = sum(p.task.weight * (p.default_s or p.best_s or 0.0) for p in counted.values())
        return ModelCurve((*points, end), default_s, len(counted))


def model_curve(
    tasks: Sequence[Task],
    defaults: Mapping[str, str],
    records: Iterable[Record],
    sessions: Sequence[SessionSpan],
) -> ModelCurve:
    """The curve of a run.

    Args:
        defaults: key of the default candidate by task key.
        records: all of the run, in the order they were stored.
    """
    taken = CurveFold(tasks, defaults)
    for record in records:
        taken.take(record, sessions)
    return taken.curve(sessions)
