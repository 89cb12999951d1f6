"""Reports from a store, for people: status, winners, and every record as a line of JSON.

The keys of the `TypedDict`s are the documented keys of `tuner status --json` and
`tuner best --json`. Times ending in `_ms` are milliseconds for one run of the kernel; an unknown
value is None. No value is NaN or infinite.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TypedDict

from tuner.errors import TunerError
from tuner.files.atomic import output_file
from tuner.record import Status, record_line
from tuner.report.spaces import SpaceStatus, space_rows
from tuner.report.toolchains import ToolchainStatus, toolchain_rows
from tuner.report.winners import Timings, choose_best
from tuner.report.words import seconds_of
from tuner.session.progress import fold
from tuner.storage.base import RecordStore
from tuner.task import Task
from tuner.utilisation import total

_NOTHING: Mapping[str, float] = MappingProxyType({})


class TaskStatus(TypedDict):
    """One task of `StatusReport`.

    Keys:
        name, key, weight: the task.
        trials, ok, censored, failures: as in `StatusReport`, of this task.
        default_ms, best_ms: of a run that has ended, see `default_ms` and `latency_ms` of
            `BestOfTask`. While it runs the latency of the default schedule in the search, and the
            best one in the search; for a task with symbolic dimensions the latency of its kernel
            set, or before one is chosen see `TaskProgress.best_s`.
        gflops: 1e9 floating point operations per second at `best_ms`; None where not counted.
    """

    name: str
    key: str
    weight: float
    trials: int
    ok: int
    censored: int
    failures: dict[str, int]
    default_ms: float | None
    best_ms: float | None
    gflops: float | None


class StatusReport(TypedDict):
    """The status of a run.

    Keys:
        trials: search trials that count against the budget: a program was built and run, or its
            workers were lost too often. Candidates that could not be realised or built and
            re-timings of finalists are not among them.
        ok: trials that gave a time.
        censored: trials cut off because they were hopelessly slow.
        failures: number of search trials that ended in each other way, by kind (`invalid`,
            `build_failed`, `run_failed`, `wrong`, `timeout`, `lost`); only kinds that occurred.
        elapsed_s: seconds of work, over all sessions of the run.
        trials_per_s: `trials` over `elapsed_s`; 0 before any time has passed.
        settled: whether the run has ended, so that its times are those that `best` tells.
        utilisation: seconds of the workers, over all sessions, by kind of worker (`runner`,
            `builder`, `space`) and category (see `tuner.utilisation`).
        tasks: one for each task, in the order of the model.
        spaces: one for each design space that was tried, the most tried first.
        toolchains: one for each toolchain that a time was taken with, that which was used last at
            the end. Times of several are not comparable.
    """

    trials: int
    ok: int
    censored: int
    failures: dict[str, int]
    elapsed_s: float
    trials_per_s: float
    settled: bool
    utilisation: dict[str, dict[str, float]]
    tasks: list[TaskStatus]
    spaces: list[SpaceStatus]
    toolchains: list[ToolchainStatus]


class BestOfTask(TypedDict):
    """One task of `BestReport`.

    Keys:
        name, weight: the task.
        trials: as in `StatusReport`, of this task.
        default_ms: latency of the default schedule, timed as `latency_ms` was where possible.
        latency_ms: median of the samples of the winner's last re-timing, or of its search trial
            where it was not timed again; None where no candidate has a time yet.
        gflops: 1e9 floating point operations per second at `latency_ms`; None where none are
            counted.
        candidate: key of the winner; the default's where nothing beat it. None for a task with
            symbolic dimensions, which has a set of kernels; its latencies are those of
            `TaskStatus`.
        space: name of the design space that the winner is of; None where there is no candidate.
        toolchain: that the winner was timed with; None where there is no candidate, or where it is
            not known.
    """

    name: str
    weight: float
    trials: int
    default_ms: float | None
    latency_ms: float | None
    gflops: float | None
    candidate: str | None
    space: str | None
    toolchain: str | None


class BestReport(TypedDict):
    """The winner of each task, in the order of the model."""

    tasks: list[BestOfTask]


def status_report(store: RecordStore, chosen_s: Mapping[str, float] = _NOTHING) -> StatusReport:
    """The status of the run in a store. Reads only counts and winners, so it is quick in any run.

    Args:
        chosen_s: latencies of the kernel sets of tasks with symbolic dimensions, by task key.
    """
    counts, defaults, tasks = store.counts(), store.defaults(), store.tasks()
    settled = has_ended(store)
    rows = []
    totals: dict[Status, int] = {}
    for task in tasks:
        statuses = counts.get(task.key, {})
        for status, n in statuses.items():
            totals[status] = totals.get(status, 0) + n
        default_key, chosen = defaults.get(task.key), chosen_s.get(task.key)
        if settled:
            told = _best_of(store, task, statuses, default_key, chosen)
            default, best = seconds_of(told["default_ms"]), seconds_of(told["latency_ms"])
        else:
            default, best = _default_and_best(store, task, default_key)
            best = best if chosen is None else chosen
        rows.append(
            TaskStatus(
                name=task.name,
                key=task.key,
                weight=task.weight,
                trials=_spent(statuses),
                ok=statuses.get(Status.OK, 0),
                censored=statuses.get(Status.CENSORED, 0),
                failures=_failures(statuses),
                default_ms=_ms(default),
                best_ms=_ms(best),
                gflops=_gflops(task, best),
            )
        )
    elapsed_s, trials = store.elapsed_s(), _spent(totals)
    return StatusReport(
        trials=trials,
        ok=totals.get(Status.OK, 0),
        censored=totals.get(Status.CENSORED, 0),
        failures=_failures(totals),
        elapsed_s=elapsed_s,
        trials_per_s=trials / elapsed_s if elapsed_s > 0 else 0.0,
        settled=settled,
        utilisation=total(span.utilisation for span in store.sessions()),
        tasks=rows,
        spaces=space_rows(store, tasks),
        toolchains=toolchain_rows(store, tasks),
    )


def has_ended(store: RecordStore) -> bool:
    """Whether the last session of a run has ended in order, so that finalists were timed again."""
    spans = store.sessions()
    return bool(spans) and spans[-1].ended_s is not None


def _default_and_best(
    store: RecordStore, task: Task, default_key: str | None
) -> tuple[float | None, float | None]:
    """Latencies in the search, in seconds; with many shapes their weighted means."""
    if task.shapes:
        progress = fold([task], {task.key: default_key or ""}, store.scan(task.key))[task.key]
        return progress.default_s, progress.best_s
    best = next((r.latency_s for r in store.best(task.key, 1)), None)
    return Timings.of(store, task.key, default_key).search_s, best


def best_report(
    store: RecordStore, task: str | None = None, chosen_s: Mapping[str, float] = _NOTHING
) -> BestReport:
    """The winner of each task, or of the task of that name or key.

    Args:
        chosen_s: as for `status_report`.

    Raises:
        TunerError: there is no such task.
    """
    tasks = [t for t in store.tasks() if task is None or task in (t.name, t.key)]
    if task is not None and not tasks:
        raise TunerError(f"this run has no task {task}: `tuner status` lists its tasks")
    counts, defaults = store.counts(), store.defaults()
    return BestReport(
        tasks=[
            _best_of(store, t, counts.get(t.key, {}), defaults.get(t.key), chosen_s.get(t.key))
            for t in tasks
        ]
    )


def _best_of(
    store: RecordStore,
    task: Task,
    statuses: dict[Status, int],
    default_key: str | None,
    chosen_s: float | None,
) -> BestOfTask:
    key = space = toolchain = None
    if task.shapes:
        default_s, best_s = _default_and_best(store, task, default_key)
        latency_s = best_s if chosen_s is None else chosen_s
    else:
        winner = choose_best(store, task.key)
        if winner is not None:
            key, space = winner.trial.candidate.key, winner.trial.candidate.space
            toolchain = winner.provenance.toolchain or None
        latency_s = Timings.of(store, task.key, key).last_s
        default_s = Timings.of(store, task.key, default_key).last_s
    return BestOfTask(
        name=task.name,
        weight=task.weight,
        trials=_spent(statuses),
        default_ms=_ms(default_s),
        latency_ms=_ms(latency_s),
        gflops=_gflops(task, latency_s),
        candidate=key,
        space=space,
        toolchain=toolchain,
    )


def export_records(store: RecordStore, file: Path) -> int:
    """Write every record as a line of JSON, in the order they were stored; return their number.

    The file appears whole or not at all. `tuner.record.record_from_json` reads its lines.

    Raises:
        TunerError: the file cannot be written.
    """
    n = 0
    try:
        with output_file(file) as lines:
            for record in store.scan():
                lines.write(record_line(record) + "\n")
                n += 1
    except OSError as error:
        raise TunerError(f"cannot write {file}: {error.strerror or error}") from error
    return n


def _spent(statuses: dict[Status, int]) -> int:
    return sum(n for status, n in statuses.items() if status.spends_budget)


def _failures(statuses: dict[Status, int]) -> dict[str, int]:
    return {s.value: statuses[s] for s in Status if s in statuses and s.failed}


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3


def _gflops(task: Task, seconds: float | None) -> float | None:
    return task.flops / seconds / 1e9 if seconds and task.flops > 0 else None
