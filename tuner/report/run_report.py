"""All that a page shows of one run, as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.dynamic.kernel_set import KernelSet
from tuner.report.failures import FailureKind, failure_kinds
from tuner.report.model_curve import ModelCurve, model_curve
from tuner.report.noise import Retiming, retimings
from tuner.report.predictions import Pair, pairs
from tuner.report.report import BestOfTask, StatusReport, best_report, status_report
from tuner.report.slots import drawable
from tuner.runs.folder import Manifest
from tuner.storage.base import RecordStore, SessionSpan, worked_s
from tuner.storage.history import Fit
from tuner.utilisation import SlotSpan

_SPANS = 3000


@dataclass(frozen=True, slots=True)
class FitPoint:
    """How good a cost model was, at a moment of the run's work."""

    elapsed_s: float
    records: int
    accuracy: float


@dataclass(frozen=True, slots=True)
class RunReport:
    """One run.

    Attributes:
        name: short, for people.
        place: its folder or URL, as a user types it.
        devices, toolchains: that its records were measured with.
        best: a row for each task, in the order of the model.
        spans: stretches of worker slots, at most as many as a picture can show.
        kernel_sets: of tasks with symbolic dimensions, by their names.
        benches: results of `tuner bench`, the keys of `spaces.deploy.bench.BenchResult` and
            `shape`; empty where it was not run.
    """

    name: str
    place: str
    manifest: Manifest
    status: StatusReport
    best: tuple[BestOfTask, ...]
    curve: ModelCurve
    failures: tuple[FailureKind, ...]
    retimings: tuple[Retiming, ...]
    pairs: tuple[Pair, ...]
    fits: tuple[FitPoint, ...]
    spans: tuple[SlotSpan, ...]
    sessions: tuple[SessionSpan, ...]
    kernel_sets: Mapping[str, KernelSet]
    benches: Sequence[Mapping[str, Any]]
    devices: tuple[str, ...]
    toolchains: tuple[str, ...]

    @property
    def tuned_s(self) -> float | None:
        """Weighted latencies of the tasks' winners; None where none has one."""
        known = [r["weight"] * r["latency_ms"] / 1e3 for r in self.best if r["latency_ms"]]
        return sum(known) if known else None

    @property
    def untuned_s(self) -> float | None:
        """The same of the default schedules, a task without one counted as it is tuned."""
        known = [
            row["weight"] * (row["default_ms"] or row["latency_ms"] or 0.0) / 1e3
            for row in self.best
            if row["latency_ms"]
        ]
        return sum(known) if known else None

    @property
    def gain(self) -> float | None:
        """How many times as fast the winners are."""
        tuned_s, untuned_s = self.tuned_s, self.untuned_s
        return untuned_s / tuned_s if tuned_s and untuned_s else None


def run_report(
    store: RecordStore,
    manifest: Manifest,
    *,
    name: str,
    place: str,
    kernel_sets: Mapping[str, KernelSet],
    benches: Sequence[Mapping[str, Any]] = (),
) -> RunReport:
    """Read a run. All of its records are in memory meanwhile.

    Args:
        kernel_sets: of tasks with symbolic dimensions, by task key.
    """
    tasks, sessions = store.tasks(), store.sessions()
    names = {task.key: task.name for task in tasks}
    chosen_s = {key: chosen.latency_s for key, chosen in kernel_sets.items()}
    records, history = list(store.scan()), store.history()
    return RunReport(
        name=name,
        place=place,
        manifest=manifest,
        status=status_report(store, chosen_s),
        best=tuple(best_report(store, None, chosen_s)["tasks"]),
        curve=model_curve(tasks, store.defaults(), records, sessions),
        failures=failure_kinds(records, names),
        retimings=retimings(records, names),
        pairs=pairs(records, names),
        fits=tuple(_fits(history.fits, sessions)),
        spans=tuple(drawable(history.spans, _SPANS)),
        sessions=sessions,
        kernel_sets={names[key]: chosen for key, chosen in kernel_sets.items() if key in names},
        benches=benches,
        devices=tuple(sorted({r.provenance.device for r in records} - {""})),
        toolchains=tuple(sorted({r.provenance.toolchain for r in records} - {""})),
    )


def _fits(fits: Sequence[Fit], sessions: Sequence[SessionSpan]) -> list[FitPoint]:
    return [
        FitPoint(worked_s(sessions, fit.time_s), fit.records, fit.accuracy)
        for fit in fits
        if fit.accuracy is not None
    ]
