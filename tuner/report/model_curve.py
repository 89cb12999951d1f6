"""The latency of the whole model as it fell over a run: a fold over its records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tuner.record import Record
from tuner.session.progress import fold
from tuner.storage.base import SessionSpan, worked_s
from tuner.task import Task


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


def model_curve(
    tasks: Sequence[Task],
    defaults: Mapping[str, str],
    records: Sequence[Record],
    sessions: Sequence[SessionSpan],
) -> ModelCurve:
    """The curve of a run.

    Args:
        defaults: key of the default candidate by task key.
        records: all of the run, in the order they were stored.
    """
    ended = fold(tasks, dict(defaults), records)
    counted = {key: p for key, p in ended.items() if p.best_s is not None}
    if not counted:
        return ModelCurve((), 0.0, 0)
    points, trials = [], 0
    best_s: dict[str, float] = {}
    progress = fold(tasks, dict(defaults), ())
    for record in records:
        key = record.trial.task_key
        if key not in progress:
            continue
        progress[key].observe(record)
        trials += record.trial.rung == 0 and record.measurement.status.spends_budget
        now_s = progress[key].best_s
        if now_s is not None and now_s != best_s.get(key):
            best_s[key] = now_s
            if len(best_s) == len(counted):
                latency_s = sum(p.task.weight * best_s[k] for k, p in counted.items())
                at_s = worked_s(sessions, record.time_s)
                points.append(CurvePoint(at_s, trials, latency_s, record.time_s))
    last_s = max(sum(span.elapsed_s for span in sessions), points[-1].elapsed_s)
    points.append(replace(points[-1], elapsed_s=last_s, trials=trials))
    default_s = sum(p.task.weight * (p.default_s or p.best_s or 0.0) for p in counted.values())
    return ModelCurve(tuple(points), default_s, len(counted))
