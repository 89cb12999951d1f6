"""Views of a run, read from its store by counts and winners, so that they are quick in any run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from tuner.errors import TunerError
from tuner.record import Status
from tuner.request.target_text import is_emulated
from tuner.storage.base import RecordStore, elapsed_s
from tuner.storage.facts import Defaults
from tuner.storage.tallies import count_by_toolchain, count_statuses
from tuner.task import Task
from tuner.utilisation import total
from tuner.view.progress import fold
from tuner.view.run_view import RunView, ToolchainView
from tuner.view.spaces import view_spaces
from tuner.view.task_view import TaskView
from tuner.view.winners import Timings, choose_best

NO_SETS_S: Mapping[str, float] = MappingProxyType({})
"""Latencies of no kernel sets."""


def view_run(
    store: RecordStore, chosen_s: Mapping[str, float] = NO_SETS_S, *, winners: bool = False
) -> RunView:
    """The run in a store: one that has ended with its winners, else with what its search has found.
    Utilisation is over all sessions.

    Args:
        chosen_s: latencies of the kernel sets of tasks with symbolic dimensions, by task key.
        winners: whether to show the winners as of now of a run that has not ended, too.
    """
    settled = has_ended(store)
    show = view_winners if settled or winners else view_search
    views = show(store, chosen_s)
    tasks, worked_s = store.tasks(), elapsed_s(store.sessions())
    trials = sum(view.trials for view in views)
    return RunView(
        tasks=views,
        elapsed_s=worked_s,
        trials_per_s=trials / worked_s if worked_s > 0 else 0.0,
        utilisation=total(span.utilisation for span in store.sessions()),
        settled=settled,
        modelled=any(is_emulated(task.target) for task in tasks),
        spaces=view_spaces(store, tasks),
        toolchains=view_toolchains(store, tasks),
    )


def has_ended(store: RecordStore) -> bool:
    """Whether the last session of a run has ended in order, so that finalists were timed again."""
    spans = store.sessions()
    return bool(spans) and spans[-1].ended_s is not None


def view_search(
    store: RecordStore, chosen_s: Mapping[str, float] = NO_SETS_S
) -> tuple[TaskView, ...]:
    """Each task with its latencies in the search, in the order of the model."""
    counts, defaults = count_statuses(store.tallies()), store.get(Defaults).by_task
    return tuple(
        _view_searched(store, t, counts.get(t.key, {}), defaults.get(t.key), chosen_s.get(t.key))
        for t in store.tasks()
    )


def view_winners(
    store: RecordStore, chosen_s: Mapping[str, float] = NO_SETS_S, task: str | None = None
) -> tuple[TaskView, ...]:
    """Each task with its winner, or the task of that name or key: the median of the samples of the
    winner's last re-timing, or of its trial in the search where it was not timed again, and the
    default schedule timed the same way where possible.

    Raises:
        TunerError: there is no such task.
    """
    tasks = [t for t in store.tasks() if task is None or task in (t.name, t.key)]
    if task is not None and not tasks:
        raise TunerError(f"this run has no task {task}: `tuner status` lists its tasks")
    counts, defaults = count_statuses(store.tallies()), store.get(Defaults).by_task
    return tuple(
        _view_winner(store, t, counts.get(t.key, {}), defaults.get(t.key), chosen_s.get(t.key))
        for t in tasks
    )


def _view_searched(
    store: RecordStore,
    task: Task,
    statuses: Mapping[Status, int],
    default_key: str | None,
    chosen_s: float | None,
) -> TaskView:
    fastest = next(store.scan(task.key, fastest=1), None)
    toolchain = fastest.provenance.toolchain if fastest is not None else ""
    if task.shapes:
        progress = fold([task], {task.key: default_key or ""}, store.scan(task.key))[task.key]
        return replace(progress.view(chosen_s), toolchain=toolchain)
    return TaskView(
        task.key,
        task.name,
        task.weight,
        task.flops,
        statuses,
        default_s=Timings.of(store, task.key, default_key).search_s,
        best_s=fastest.latency_s if fastest is not None else None,
        toolchain=toolchain,
    )


def _view_winner(
    store: RecordStore,
    task: Task,
    statuses: Mapping[Status, int],
    default_key: str | None,
    chosen_s: float | None,
) -> TaskView:
    winner = None if task.shapes else choose_best(store, task.key)
    if winner is None:
        return _view_searched(store, task, statuses, default_key, chosen_s)
    candidate = winner.trial.candidate
    return TaskView(
        task.key,
        task.name,
        task.weight,
        task.flops,
        statuses,
        default_s=Timings.of(store, task.key, default_key).last_s,
        best_s=Timings.of(store, task.key, candidate.key).last_s,
        candidate=candidate.key,
        space=candidate.space,
        toolchain=winner.provenance.toolchain,
    )


def view_toolchains(store: RecordStore, tasks: Sequence[Task]) -> tuple[ToolchainView, ...]:
    """The toolchains of a run; the one that was used last is the last."""
    counts = count_by_toolchain(store.tallies())
    won: dict[str, list[str]] = {}
    for task in tasks:
        # With a single one, as nearly always, who won with it need not be looked up.
        for used in counts if len(counts) == 1 else _of_fastest(store, task):
            if task.key in counts.get(used, {}):
                won.setdefault(used, []).append(task.name)
    return tuple(
        ToolchainView(used, sum(mine.values()), tuple(won.get(used, ())))
        for used, mine in counts.items()
    )


def _of_fastest(store: RecordStore, task: Task) -> list[str]:
    return [record.provenance.toolchain for record in store.scan(task.key, fastest=1)]
