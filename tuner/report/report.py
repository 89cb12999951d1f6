"""What a store tells people: status, winners, and every record as lines of JSON.

The keys of the `TypedDict`s are the documented keys of `tuner status --json` and
`tuner best --json`. Times ending in `_ms` are milliseconds for one run of the kernel; what is not
known is None. Nothing here is NaN or infinite.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TypedDict

from tuner.errors import TunerError
from tuner.files.atomic import atomic_file
from tuner.generations import first_rung
from tuner.record import Record, Status
from tuner.record_lines import record_line
from tuner.session.progress import fold
from tuner.storage.base import RecordStore
from tuner.task import Task
from tuner.utilisation import total

_NOTHING: Mapping[str, float] = MappingProxyType({})
_INNOCENT = frozenset({Status.OK, Status.LOST})
"""How a re-timing may end without speaking against its candidate."""


class TaskStatus(TypedDict):
    """One task of `StatusReport`.

    Keys:
        name, key, weight: the task.
        trials: as in `StatusReport`, of this task.
        ok, censored, failures: likewise.
        default_ms: latency of the default schedule in the search.
        best_ms: best latency seen in the search; of a task with symbolic dimensions what its
            kernels take, or before any are chosen see `TaskProgress.best_s`.
        gflops: 1e9 floating point operations per second at `best_ms`; None where none are counted.
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
    """How a run stands.

    Keys:
        trials: search trials that count against the budget: a program was built and run, or its
            workers were lost too often. Candidates that could not be realised or built and
            re-timings of finalists are not among them.
        ok: trials that gave a time.
        censored: trials cut off because they were hopelessly slow.
        failures: how many search trials ended in each other way, by kind (`invalid`,
            `build_failed`, `run_failed`, `wrong`, `timeout`, `lost`); kinds that occurred only.
        elapsed_s: seconds of work, over all sessions of the run.
        trials_per_s: `trials` over `elapsed_s`; 0 before any time has passed.
        utilisation: seconds of the workers, over all sessions, by kind (`runner`, `builder`,
            `space`) and by what they went into (see `tuner.utilisation`).
        tasks: one for each task, in the order of the model.
    """

    trials: int
    ok: int
    censored: int
    failures: dict[str, int]
    elapsed_s: float
    trials_per_s: float
    utilisation: dict[str, dict[str, float]]
    tasks: list[TaskStatus]


class BestOfTask(TypedDict):
    """One task of `BestReport`.

    Keys:
        name, weight: the task.
        trials: as in `StatusReport`, of this task.
        default_ms: latency of the default schedule, timed as `latency_ms` was where possible.
        latency_ms: median of the samples of the winner's last re-timing, or of its search trial
            where it was not timed again; None where nothing gave a time yet.
        gflops: 1e9 floating point operations per second at `latency_ms`; None where none are
            counted.
        candidate: key of the winner; the default's where nothing beat it. None for a task with
            symbolic dimensions, which has a set of kernels; its latencies are those of
            `TaskStatus`.
    """

    name: str
    weight: float
    trials: int
    default_ms: float | None
    latency_ms: float | None
    gflops: float | None
    candidate: str | None


class BestReport(TypedDict):
    """The winner of each task, in the order of the model."""

    tasks: list[BestOfTask]


def status_report(store: RecordStore, chosen_s: Mapping[str, float] = _NOTHING) -> StatusReport:
    """How the run in a store stands. Reads counts and winners only, so it is quick in any run.

    Args:
        chosen_s: what the kernels of tasks with symbolic dimensions take, by task key.
    """
    counts, defaults = store.counts(), store.defaults()
    rows = []
    totals: dict[Status, int] = {}
    for task in store.tasks():
        statuses = counts.get(task.key, {})
        for status, n in statuses.items():
            totals[status] = totals.get(status, 0) + n
        default, best = _default_and_best(store, task, defaults.get(task.key))
        best = chosen_s.get(task.key, best)
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
        utilisation=total(span.utilisation for span in store.sessions()),
        tasks=rows,
    )


def _default_and_best(
    store: RecordStore, task: Task, default_key: str | None
) -> tuple[float | None, float | None]:
    """Latencies in the search, seconds; of many shapes their weighted means."""
    if task.shapes:
        progress = fold([task], {task.key: default_key or ""}, store.scan(task.key))[task.key]
        return progress.default_s, progress.best_s
    best = next((r.latency_s for r in store.best(task.key, 1)), None)
    return _Timings.of(store, task.key, default_key).search_s, best


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
    key = None
    if task.shapes:
        default_s, best_s = _default_and_best(store, task, default_key)
        latency_s = best_s if chosen_s is None else chosen_s
    else:
        winner = choose_best(store, task.key)
        key = winner.trial.candidate.key if winner else None
        latency_s = _Timings.of(store, task.key, key).last_s
        default_s = _Timings.of(store, task.key, default_key).last_s
    return BestOfTask(
        name=task.name,
        weight=task.weight,
        trials=_spent(statuses),
        default_ms=_ms(default_s),
        latency_ms=_ms(latency_s),
        gflops=_gflops(task, latency_s),
        candidate=key,
    )


def choose_best(store: RecordStore, task_key: str) -> Record | None:
    """The winner of a task: the record that its candidate was timed with last, or None.

    Re-timings decide where there are any: the lowest median over all re-timings of a candidate
    wins, the default schedule included; of those made with several toolchains, the newest count. A
    candidate found since then wins without one if the search timed it faster than all that were
    timed again. Where nothing was timed again, the fastest of the search wins.

    The default wins over whatever is not faster than it, like compared with like: re-timings
    where both have them, search with search otherwise. A candidate that ever failed when it was
    timed again, be it by a wrong output or a crash, never wins.
    """
    first = first_rung(store.scan(task_key, min_rung=1))
    keys = dict.fromkeys(r.trial.candidate.key for r in store.scan(task_key, min_rung=first))
    # One whose every re-timing was lost with its worker is as if it had none.
    retimed = {
        key: timings
        for key in keys
        if (timings := _Timings.of(store, task_key, key, first)).retimed or timings.spoiled
    }
    sound = [t for t in retimed.values() if not t.spoiled]
    winner = min(sound, key=lambda t: t.retimed_s or math.inf, default=None)
    to_beat_s = min((t.search_s for t in sound if t.search_s is not None), default=math.inf)
    # One that failed with an older toolchain has to be timed again before it is believed.
    failed = {
        r.trial.candidate.key
        for r in store.scan(task_key, min_rung=1)
        if r.measurement.status not in _INNOCENT
    }
    out = {*retimed, *failed}
    # Among one more than are out is one that is not, if there is any.
    for record in store.best(task_key, len(out) + 1):
        if record.trial.candidate.key not in out:
            if record.latency_s is not None and record.latency_s < to_beat_s:
                winner = _Timings.of(store, task_key, record.trial.candidate.key, first)
            break
    default = _Timings.of(store, task_key, store.defaults().get(task_key), first)
    if winner is None or not winner.beats(default):
        winner = default if default.last is not None else winner
    return winner.last if winner else None


@dataclass(slots=True)
class _Timings:
    """All valid times of one candidate of a task.

    Attributes:
        search: its first valid record at rung 0.
        retimed: its valid records at higher rungs.
        spoiled: whether a re-timing failed by its own fault.
    """

    search: Record | None = None
    retimed: list[Record] = field(default_factory=list)
    spoiled: bool = False

    @classmethod
    def of(
        cls, store: RecordStore, task_key: str, candidate_key: str | None, first: int = 1
    ) -> _Timings:
        """Those that a store holds, re-timings from rung `first` on."""
        timings = cls()
        if candidate_key is None:
            return timings
        for record in store.scan(task_key, candidate_key=candidate_key):
            if 0 < record.trial.rung < first:
                continue
            if record.trial.rung > 0 and record.measurement.status not in _INNOCENT:
                timings.spoiled = True
            if record.latency_s is None:
                continue
            if record.trial.rung > 0:
                timings.retimed.append(record)
            elif timings.search is None:
                timings.search = record
        return timings

    @property
    def search_s(self) -> float | None:
        return self.search.latency_s if self.search else None

    @property
    def retimed_s(self) -> float | None:
        """Median over all re-timings."""
        times = [r.latency_s for r in self.retimed if r.latency_s is not None]
        return statistics.median(times) if times else None

    @property
    def last(self) -> Record | None:
        return max(self.retimed, key=lambda r: r.trial.rung, default=self.search)

    @property
    def last_s(self) -> float | None:
        """Median over the samples of the last re-timing, else of the search."""
        if not self.retimed:
            return self.search_s
        rung = max(r.trial.rung for r in self.retimed)
        return statistics.median(
            s for r in self.retimed if r.trial.rung == rung for s in r.measurement.samples_s
        )

    def beats(self, other: _Timings) -> bool:
        """Whether it is faster, as far as the two can be compared."""
        mine, theirs = self.retimed_s, other.retimed_s
        if mine is None or theirs is None:
            mine, theirs = self.search_s, other.search_s
        return mine is None or theirs is None or mine < theirs


def export_records(store: RecordStore, file: Path) -> int:
    """Write every record as a line of JSON, in the order they were stored; gives their number.

    The file appears whole or not at all. `tuner.record.record_from_json` reads its lines.

    Raises:
        TunerError: the file cannot be written.
    """
    n = 0
    try:
        with atomic_file(file) as lines:
            for record in store.scan():
                lines.write(record_line(record) + "\n")
                n += 1
    except OSError as error:
        raise TunerError(f"cannot write {file}: {error.strerror or error}") from error
    return n


def _spent(statuses: dict[Status, int]) -> int:
    return sum(n for status, n in statuses.items() if status.spends_budget)


def _failures(statuses: dict[Status, int]) -> dict[str, int]:
    good = (Status.OK, Status.CENSORED)
    return {s.value: statuses[s] for s in Status if s in statuses and s not in good}


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3


def _gflops(task: Task, seconds: float | None) -> float | None:
    return task.flops / seconds / 1e9 if seconds and task.flops > 0 else None
