"""Views of a run, read from its store by counts and winners, so that they are quick in any run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from tuner.errors import TunerError
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
from tuner.view.winners import Choice, Timings, choose

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
    return tuple(_view_searches(store, store.tasks(), chosen_s))


@dataclass(frozen=True, slots=True)
class Won:
    """A task of a run, and what won it.

    Attributes:
        choice: None where nothing has a time, and for a task with symbolic dimensions.
    """

    task: Task
    view: TaskView
    choice: Choice | None


def view_winners(
    store: RecordStore, chosen_s: Mapping[str, float] = NO_SETS_S, task: str | None = None
) -> tuple[TaskView, ...]:
    """The views of `find_winners`."""
    return tuple(won.view for won in find_winners(store, chosen_s, task))


def find_winners(
    store: RecordStore, chosen_s: Mapping[str, float] = NO_SETS_S, task: str | None = None
) -> tuple[Won, ...]:
    """Each task with its winner, or the task of that name or key: the median of the samples of the
    winner's last re-timing, or of its trial in the search where it was not timed again, and the
    default schedule timed the same way where possible.

    Raises:
        TunerError: there is no such task.
    """
    tasks = find_tasks(store, task)
    views = _view_searches(store, tasks, chosen_s)
    return tuple(_find_winner(store, *each) for each in zip(tasks, views, strict=True))


def find_tasks(store: RecordStore, task: str | None) -> list[Task]:
    """All tasks of a run, or that of a name or key.

    Raises:
        TunerError: there is no such task.
    """
    tasks = [t for t in store.tasks() if task in (None, t.name, t.key)]
    if task is not None and not tasks:
        raise TunerError(f"this run has no task {task}: `tuner status` lists its tasks")
    return tasks


def _find_winner(store: RecordStore, task: Task, searched: TaskView) -> Won:
    choice = None if task.shapes else choose(store, task.key)
    if choice is None:
        return Won(task, searched, None)
    candidate = choice.record.trial.candidate
    view = replace(
        searched,
        default_s=choice.default.last_s,
        best_s=choice.won.last_s,
        candidate=candidate.key,
        space=candidate.space,
        toolchain=choice.record.provenance.toolchain,
    )
    return Won(task, view, choice)


def _view_searches(
    store: RecordStore, tasks: Sequence[Task], chosen_s: Mapping[str, float]
) -> Iterator[TaskView]:
    counts, defaults = count_statuses(store.tallies()), store.get(Defaults).by_task
    for task in tasks:
        fastest, default = next(store.scan(task.key, fastest=1), None), defaults.get(task.key)
        toolchain = fastest.provenance.toolchain if fastest is not None else ""
        if task.shapes:
            progress = fold([task], {task.key: default or ""}, store.scan(task.key))[task.key]
            yield replace(progress.view(chosen_s.get(task.key)), toolchain=toolchain)
            continue
        yield TaskView(
            task.key,
            task.name,
            task.weight,
            task.flops,
            counts.get(task.key, {}),
            default_s=Timings.of(store, task.key, default).search_s,
            best_s=fastest.latency_s if fastest is not None else None,
            toolchain=toolchain,
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
