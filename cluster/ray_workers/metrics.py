"""A run's figures for Ray's dashboard and for Prometheus, which scrapes Ray's metrics port.

What Grafana shows of them is in `cluster/configs/grafana-dashboard.json`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import quote

from ray.util.metrics import Gauge, Histogram

from cluster.scaling.pool_policy import PoolCounts
from tuner.cost_models.base import FittedModel
from tuner.dynamic.kernel_set import KernelSet
from tuner.record import Record
from tuner.task import Task
from tuner.utilisation import BUSY, shares
from tuner.view.progress import Snapshot

_BUILD_S = [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]
_RUN_S = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0]
"""Bounds of the buckets that seconds are counted in."""
_ASCII = bytes(range(128))
"""What a label shows as it is."""


class RunMetrics:
    """Gauges and histograms of one run; Ray names them `ray_tuner_...`. Implements
    `tuner.session.observer.Observer`.

    Only the search process sets them, so that no series is left behind by workers that are gone.

    Args:
        run: the run's folder or URL, a label of every series: names of several runs at once may be
            the same.
    """

    def __init__(self, run: str) -> None:
        self._run = {"run": label(run)}
        self._names: dict[str, str] = {}
        self._trials = _gauge("trials", "Trials that count against the budget.")
        self._left = _gauge("trials_left", "Trials still to be measured, re-timings included.")
        self._rate = _gauge("trials_per_s", "Trials per second of this session.")
        self._spent = _gauge("budget_share", "Share of the trials or of the time that is spent.")
        self._gain = _gauge("gain", "Speed of the best kernels over that of default schedules.")
        self._model_us = _gauge("model_us", "Latency of the model's tasks, in microseconds.")
        self._results = _gauge("results", "Trials by how they ended.", "kind")
        self._best_us = _gauge("best_us", "Best latency of a task, in microseconds.", "task")
        self._ready = _gauge("workers", "Workers that can take jobs.", "kind")
        self._wanted = _gauge("workers_wanted", "Workers that the run asks for.", "kind")
        self._lost = _gauge("workers_lost", "Workers that this search has lost.", "kind")
        self._queued = _gauge("queued", "Jobs that wait for a worker.", "kind")
        self._busy = _gauge("busy_share", "Share of workers' time spent at work.", "kind")
        self._slot_s = _gauge(
            "slot_s", "Seconds of workers in this session, by their use.", "kind", "category"
        )
        self._accuracy = _gauge(
            "pairwise_accuracy", "Share of pairs that the cost model ordered rightly, unseen."
        )
        self._estimates = _gauge("estimate_accuracy", "The same of the analytic estimates.")
        self._build_s = _histogram("build_s", "Seconds of building a kernel.", _BUILD_S)
        self._run_s = _histogram("run_s", "Seconds of loading, checking and timing one.", _RUN_S)

    def on_start(self, tasks: Sequence[Task]) -> None:
        """Remember the names of the tasks, for their latencies."""
        self._names = {task.key: label(task.name) for task in tasks}

    def on_record(self, record: Record, best_s: float | None) -> None:
        """Show the best latency of the record's task, and what the trial took."""
        task = self._names.get(record.trial.task_key)
        if task is not None and best_s is not None:
            self._best_us.set(best_s * 1e6, {**self._run, "task": task})
        if record.measurement.build_s > 0 and record.trial.rung == 0:  # else it was built before
            self._build_s.observe(record.measurement.build_s, self._run)
        if record.measurement.run_s > 0:
            self._run_s.observe(record.measurement.run_s, self._run)

    def on_model(self, fitted: FittedModel) -> None:
        """Do nothing: snapshots have the accuracy."""

    def on_snapshot(self, snapshot: Snapshot) -> None:
        """Show the run's progress."""
        model_s = snapshot.latency_s
        figures = {
            self._trials: snapshot.trials,
            self._left: snapshot.trials_left,
            self._rate: snapshot.trials_per_s,
            self._spent: _compute_spent(snapshot),
            self._gain: snapshot.gain,
            self._model_us: None if model_s is None else model_s * 1e6,
            self._accuracy: snapshot.pairwise_accuracy,
            self._estimates: snapshot.estimate_accuracy,
        }
        for gauge, value in figures.items():
            if value is not None:
                gauge.set(value, self._run)
        for status, count in snapshot.statuses.items():
            self._results.set(count, {**self._run, "kind": str(status)})
        for kind, spent_s in snapshot.utilisation.items():
            self._busy.set(shares(spent_s).get(BUSY, 0.0), {**self._run, "kind": kind})
            for category, seconds in spent_s.items():
                labels = {**self._run, "kind": kind, "category": category}
                self._slot_s.set(seconds, labels)

    def on_kernels(self, task_key: str, chosen: KernelSet) -> None:
        """Show the latency of a task with symbolic dimensions."""
        if task_key in self._names:
            task = {**self._run, "task": self._names[task_key]}
            self._best_us.set(chosen.latency_s * 1e6, task)

    def on_end(self, snapshot: Snapshot) -> None:
        """Show the last values."""
        self.on_snapshot(snapshot)

    def on_pools(self, pools: Mapping[str, PoolCounts]) -> None:
        """Show the numbers of workers and of waiting jobs, by kind of worker."""
        for kind, counts in pools.items():
            labels = {**self._run, "kind": kind}
            self._ready.set(counts.ready, labels)
            self._wanted.set(counts.wanted, labels)
            self._lost.set(counts.lost, labels)
            self._queued.set(counts.waiting, labels)


def label(text: str) -> str:
    """A text as the value of a label: Ray takes letters of ASCII only; others become `%C3%BC`."""
    return quote(text, safe=_ASCII, errors="surrogateescape")


def _gauge(name: str, description: str, *labels: str) -> Gauge:
    return Gauge(f"tuner_{name}", description, tag_keys=("run", *labels))


def _histogram(name: str, description: str, bounds: list[float]) -> Histogram:
    return Histogram(f"tuner_{name}", description, boundaries=bounds, tag_keys=("run",))


def _compute_spent(snapshot: Snapshot) -> float:
    """Share of the budget that is spent: of its trials or of its time, whichever is more."""
    trials = snapshot.trials / snapshot.trials_budget if snapshot.trials_budget else 0.0
    elapsed = snapshot.elapsed_s / snapshot.time_budget_s if snapshot.time_budget_s > 0 else 0.0
    return min(1.0, max(trials, elapsed))
