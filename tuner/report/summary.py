"""A run in short, for a table of several: how it stands now, read from its store at little cost.

Trials are counted and the fastest are found by the store's indices, for tasks that have new ones;
only of a task with symbolic dimensions are all records gone through then, by SQLite itself. The
times of a run that has ended are those of its last lines, of what was timed again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.record import Status
from tuner.request.target_text import is_emulated
from tuner.storage.base import SessionSpan, elapsed_s, work_until_s
from tuner.storage.facts import Defaults
from tuner.storage.sqlite_store import SqliteStore
from tuner.storage.tallies import count_statuses
from tuner.task import Instance, Task
from tuner.utilisation import SlotSeconds
from tuner.view.as_json import to_ms
from tuner.view.folds import has_ended, view_winners
from tuner.view.progress import Snapshot, TaskProgress
from tuner.view.run_view import RunView
from tuner.view.task_view import TaskView

STALE_S = 60.0
"""The age of the last sign of life from which on a run counts as silent; it gives one every two
seconds, but for the length of a kernel's timing."""
_NO_SECONDS: SlotSeconds = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary(RunView):
    """A run among others. `utilisation` is of its last session.

    Attributes:
        name: the run's folder, its URL, or the name of its search.
        state: `at work`, a phase of its session, `silent`, `ended` and why, or why it cannot be
            read.
        at_work: whether something works on it, as far as is known.
        readable: whether the rest was read; else only `state` says something.
        seen_s: its last sign of life, in seconds since the epoch; None where that is not known.
        since_improved_s: seconds of work since a task became faster for the last time; None where
            that is not known. Of a run that has ended they end where it did.
    """

    name: str
    state: str
    at_work: bool = False
    readable: bool = True
    seen_s: float | None = None
    since_improved_s: float | None = None


def unreadable(name: str, why: str) -> RunSummary:
    """What is left to say of a run that cannot be read."""
    return RunSummary(name=name, state=why, readable=False)


def of_snapshot(name: str, snapshot: Snapshot, ended: str = "", error: str = "") -> RunSummary:
    """A run from what its search says of itself."""
    return RunSummary(
        name=name,
        state=f"failed: {error}" if error else f"ended: {ended}" if ended else str(snapshot.phase),
        at_work=not ended,
        tasks=snapshot.tasks,
        elapsed_s=snapshot.elapsed_s,
        trials_per_s=snapshot.trials_per_s,
        utilisation=snapshot.utilisation,
        settled=bool(ended),
        modelled=snapshot.modelled,
    )


def summary_json(summary: RunSummary) -> dict[str, Any]:
    """The keys of a run in `tuner top --once --json`."""
    return {
        "run": summary.name,
        "state": summary.state,
        "at_work": summary.at_work,
        "elapsed_s": summary.elapsed_s,
        "trials": summary.trials,
        "trials_per_s": summary.trials_per_s,
        "settled": summary.settled,
        "latency_ms": to_ms(summary.latency_s),
        "gain": summary.gain,
        "failures": summary.failures,
        "utilisation": summary.utilisation,
        "since_improved_s": summary.since_improved_s,
        "modelled": summary.modelled,
    }


class StoreSummaries:
    """Looks at one run again and again; remembers what cannot have changed since the last look.

    Args:
        name: of the run.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._settled: tuple[TaskView, ...] | None = None
        self._tasks: tuple[Task, ...] = ()
        self._views: dict[str, TaskView] = {}
        self._known: dict[str, tuple[Mapping[Status, int], str | None]] = {}
        """The numbers of trials, and the default's key, that a task's view is of."""
        self._improved_s: dict[str, float] = {}
        self._last = -1

    def look(
        self,
        store: SqliteStore,
        now_s: float,
        chosen_s: Callable[[SqliteStore], Mapping[str, float]] = lambda _: {},
    ) -> RunSummary:
        """The run as it is in its store.

        Args:
            now_s: seconds since the epoch, to tell whether it still gives signs of life.
            chosen_s: gives the latencies of the kernel sets of tasks with symbolic dimensions, by
                task key; it is asked once a run has ended.

        Raises:
            TunerError: the store cannot be read.
        """
        if (last := store.last()) != self._last:
            self._update(store)
            self._settled = None
            self._last = last  # only now: a look that failed is repeated
        spans = store.sessions()
        state, at_work = state_of(spans, now_s)
        tasks = tuple(self._views[task.key] for task in self._tasks)
        if ended := has_ended(store):
            if self._settled is None:
                self._settled = view_winners(store, chosen_s(store))
            tasks = self._settled
        work_s = elapsed_s(spans)
        trials = sum(task.trials for task in tasks)
        return RunSummary(
            name=self._name,
            state=state,
            at_work=at_work,
            tasks=tasks,
            elapsed_s=work_s,
            trials_per_s=trials / work_s if work_s > 0 else 0.0,
            utilisation=spans[-1].utilisation if spans else _NO_SECONDS,
            settled=ended,
            modelled=any(is_emulated(task.target) for task in self._tasks),
            seen_s=spans[-1].heartbeat_s if spans else None,
            since_improved_s=self._since_improved_s(spans, work_s),
        )

    def _since_improved_s(self, spans: Sequence[SessionSpan], work_s: float) -> float | None:
        if not self._improved_s:
            return None
        return max(0.0, work_s - work_until_s(spans, max(self._improved_s.values())))

    def _update(self, store: SqliteStore) -> None:
        counts, defaults = count_statuses(store.tallies()), store.get(Defaults).by_task
        if not {*counts, *defaults} <= {task.key for task in self._tasks} or not self._tasks:
            self._tasks = store.tasks()
        for task in self._tasks:
            known = counts.get(task.key, {}), defaults.get(task.key)
            if task.shapes or self._known.get(task.key) != known:
                self._views[task.key] = self._view(store, task, *known)
                self._known[task.key] = known  # only now, as above

    def _view(
        self, store: SqliteStore, task: Task, statuses: Mapping[Status, int], default: str | None
    ) -> TaskView:
        if task.shapes:
            fastest = store.fastest(task.key)
        else:
            best = store.scan(task.key, fastest=1)
            fastest = {r.trial.instance: (r.latency_s or 0.0, r.time_s) for r in best}
        if fastest:
            self._improved_s[task.key] = max(time_s for _, time_s in fastest.values())
        return TaskProgress(
            task,
            statuses=dict(statuses),
            bests={instance: seconds for instance, (seconds, _) in fastest.items()},
            defaults=_on_shapes(store, task.key, default),
        ).view()


def _on_shapes(
    store: SqliteStore, task_key: str, candidate_key: str | None
) -> dict[Instance, float]:
    """The latencies of a candidate in the search, by shape."""
    if candidate_key is None:
        return {}
    records = store.scan(task_key, candidate_key=candidate_key)
    return {
        r.trial.instance: r.latency_s
        for r in records
        if r.latency_s is not None and not r.trial.rung
    }


def state_of(spans: Sequence[SessionSpan], now_s: float) -> tuple[str, bool]:
    """How a run stands by its sessions, in words, and whether it is at work."""
    if not spans:
        return "not begun", False
    last = spans[-1]
    if last.ended_s is not None:
        return f"ended: {last.reason}" if last.reason else "ended", False
    silent_s = now_s - last.heartbeat_s
    if silent_s > STALE_S:
        return "silent", False
    return "at work", True
