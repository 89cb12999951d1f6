"""A run's figures for Ray's dashboard and for Prometheus, which scrapes Ray's metrics port."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ray.util.metrics import Gauge

from tuner.cost_models.base import FittedModel
from tuner.dynamic.kernel_set import KernelSet
from tuner.record import Record
from tuner.session.progress import Snapshot
from tuner.task import Task
from tuner.utilisation import BUSY, shares


class RunMetrics:
    """Gauges of one run; Ray names them `ray_tuner_...`. Implements
    `tuner.session.observer.Observer`.

    Only the search process sets them, so that no series is left behind by workers that are gone.

    Args:
        run: name of the run, a label of every series.
    """

    def __init__(self, run: str) -> None:
        self._run = {"run": run}
        self._names: dict[str, str] = {}
        self._trials = _gauge("trials", "Trials that count against the budget.")
        self._rate = _gauge("trials_per_s", "Trials per second of this session.")
        self._gain = _gauge("gain", "Speed of the best kernels over that of default schedules.")
        self._results = _gauge("results", "Trials by how they ended.", "kind")
        self._best_us = _gauge("best_us", "Best latency of a task, in microseconds.", "task")
        self._ready = _gauge("workers", "Workers that can take jobs.", "kind")
        self._queued = _gauge("queued", "Jobs that wait for a worker.", "kind")
        self._busy = _gauge("busy_share", "Share of workers' time spent at work.", "kind")

    def on_start(self, tasks: Sequence[Task]) -> None:
        """Remember the names of the tasks, for their latencies."""
        self._names = {task.key: task.name for task in tasks}

    def on_record(self, record: Record, best_s: float | None) -> None:
        """Show the best latency of the record's task."""
        task = self._names.get(record.trial.task_key)
        if task is not None and best_s is not None:
            self._best_us.set(best_s * 1e6, {**self._run, "task": task})

    def on_model(self, fitted: FittedModel) -> None:
        """Do nothing: the accuracy of models is in MLflow."""

    def on_snapshot(self, snapshot: Snapshot) -> None:
        """Show the run's progress."""
        self._trials.set(snapshot.trials, self._run)
        self._rate.set(snapshot.trials_per_s, self._run)
        if snapshot.gain is not None:
            self._gain.set(snapshot.gain, self._run)
        for status, count in snapshot.statuses.items():
            self._results.set(count, {**self._run, "kind": str(status)})
        for kind, seconds in snapshot.utilisation.items():
            self._busy.set(shares(seconds).get(BUSY, 0.0), {**self._run, "kind": kind})

    def on_kernels(self, task_key: str, chosen: KernelSet) -> None:
        """Show the latency of a task with symbolic dimensions."""
        if task_key in self._names:
            task = {**self._run, "task": self._names[task_key]}
            self._best_us.set(chosen.latency_s * 1e6, task)

    def on_end(self, snapshot: Snapshot) -> None:
        """Show the last values."""
        self.on_snapshot(snapshot)

    def on_pools(self, ready: Mapping[str, int], queued: Mapping[str, int]) -> None:
        """Show the numbers of workers and of waiting jobs, by kind of worker."""
        for kind, count in ready.items():
            self._ready.set(count, {**self._run, "kind": kind})
        for kind, count in queued.items():
            self._queued.set(count, {**self._run, "kind": kind})


def _gauge(name: str, description: str, *labels: str) -> Gauge:
    return Gauge(f"tuner_{name}", description, tag_keys=("run", *labels))
