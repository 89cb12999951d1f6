"""All that a page shows of one run, as data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tuner.dynamic.kernel_set import KernelSet
from tuner.report.bench import Bench
from tuner.report.conditions import ConditionsFold, TimingConditions
from tuner.report.failures import FailureFold, FailureKind
from tuner.report.noise import Retiming, RetimingFold
from tuner.report.predictions import Pair, PredictionFold
from tuner.report.slots import drawable
from tuner.runs.folder import Manifest
from tuner.storage.base import RecordStore, SessionSpan, work_until_s
from tuner.storage.facts import Defaults
from tuner.storage.history import Fit, History
from tuner.utilisation import SlotSpan
from tuner.view.folds import view_run
from tuner.view.model_curve import CurveFold, ModelCurve
from tuner.view.run_view import RunView

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
        view: with the winners of the tasks.
        programs: of the tasks, by their names.
        next_gain: share of the model's time that twice as many trials were last predicted to save;
            None before any prediction.
        spans: stretches of worker slots in seconds of work, at most as many as a picture can show.
        kernel_sets: of tasks with symbolic dimensions, by their names.
        bench: what `tuner bench` measured; None where it did not.
        last_s: when the last record came, seconds since the epoch.
    """

    name: str
    place: str
    manifest: Manifest
    view: RunView
    programs: Mapping[str, str]
    curve: ModelCurve
    failures: tuple[FailureKind, ...]
    retimings: tuple[Retiming, ...]
    pairs: tuple[Pair, ...]
    fits: tuple[FitPoint, ...]
    next_gain: float | None
    spans: tuple[SlotSpan, ...]
    sessions: tuple[SessionSpan, ...]
    kernel_sets: Mapping[str, KernelSet]
    bench: Bench | None
    last_s: float
    devices: tuple[str, ...]
    toolchains: tuple[str, ...]
    conditions: TimingConditions

    @property
    def again_s(self) -> float | None:
        """What the curve ends at, by the times that decided; None where nothing was timed again."""
        return self.view.latency_s if self.retimings else None


def run_report(
    store: RecordStore,
    manifest: Manifest,
    *,
    name: str,
    place: str,
    kernel_sets: Mapping[str, KernelSet],
    bench: Bench | None = None,
) -> RunReport:
    """Read a run, record by record.

    Args:
        kernel_sets: of tasks with symbolic dimensions, by task key.
    """
    tasks, sessions, history = store.tasks(), store.sessions(), store.get(History)
    names = {task.key: task.name for task in tasks}
    chosen_s = {key: chosen.latency_s for key, chosen in kernel_sets.items()}
    curve, failures = CurveFold(tasks, store.get(Defaults).by_task), FailureFold(names)
    again, predicted, conditions = RetimingFold(names), PredictionFold(names), ConditionsFold()
    devices, toolchains = set(), set()
    for record in store.scan():
        curve.take(record, sessions)
        for taken in (failures, again, predicted, conditions):
            taken.take(record)
        devices.add(record.provenance.device)
        toolchains.add(record.provenance.toolchain)
    return RunReport(
        name=name,
        place=place,
        manifest=manifest,
        view=view_run(store, chosen_s, winners=True),
        programs={task.name: task.module for task in tasks},
        curve=curve.curve(sessions),
        failures=failures.kinds(),
        retimings=again.retimings(),
        pairs=predicted.pairs(),
        fits=tuple(_fits(history.fits, sessions)),
        next_gain=history.outlooks[-1].next_gain if history.outlooks else None,
        spans=tuple(drawable(_leave_out_pauses(history.spans, sessions), _SPANS)),
        sessions=sessions,
        kernel_sets={names[key]: chosen for key, chosen in kernel_sets.items() if key in names},
        bench=bench,
        last_s=curve.last_s,
        devices=tuple(sorted(devices - {""})),
        toolchains=tuple(sorted(toolchains - {""})),
        conditions=conditions.conditions(),
    )


def _leave_out_pauses(spans: Iterable[SlotSpan], sessions: Sequence[SessionSpan]) -> list[SlotSpan]:
    """Spans in seconds of work: without the time between sessions."""
    told = (
        replace(
            span,
            started_s=work_until_s(sessions, span.started_s),
            ended_s=work_until_s(sessions, span.ended_s),
        )
        for span in spans
    )
    return [span for span in told if span.ended_s > span.started_s]


def _fits(fits: Sequence[Fit], sessions: Sequence[SessionSpan]) -> list[FitPoint]:
    return [
        FitPoint(work_until_s(sessions, fit.time_s), fit.records, fit.accuracy)
        for fit in fits
        if fit.accuracy is not None
    ]
