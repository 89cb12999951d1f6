"""What a run came to: what was won, what is left to win, and what to do next.

Only decisions, from the view of a run; `cluster.app.console.closing_text` puts them into words.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from tuner.storage.base import RecordStore
from tuner.view.folds import view_toolchains, view_winners
from tuner.view.progress import Snapshot, fold
from tuner.view.run_view import RunView
from tuner.view.spaces import view_spaces
from tuner.view.task_view import TaskView

_NAMED = 3
"""Tasks that are named of those that gave the most, and of those that take the most."""
_LEAST_SHARE = 0.05
"""A task below this share of what is won or left is not named, unless it is the first."""
_FEW_TRIALS = 8
"""A history of fewer trials says nothing of where it goes."""
_FALLING = 0.01
"""The share of the model's time that the last quarter of the trials must have saved for the next
one to be worth its time."""

Ranked = Sequence[tuple[TaskView, float]]
"""Tasks with their shares of a whole, from 0 to 1, the largest first."""


def settle(snapshot: Snapshot, store: RecordStore) -> Snapshot:
    """A run's last snapshot with the latencies that count: of what was timed again, those. The
    tasks that take the most have their histories; of all others, only counts and winners are read.
    """
    tasks = {task.key: task for task in store.tasks()}
    winners = {task.key: task for task in view_winners(store, latencies_of(snapshot))}
    views = tuple(winners.get(task.key, task) for task in snapshot.tasks)
    heavy = {task.key for task, _ in rank_left(RunView(tasks=views))}
    histories = {k: fold([tasks[k]], {}, store.scan(k))[k].history for k in heavy & tasks.keys()}
    return replace(
        snapshot,
        tasks=tuple(replace(view, history=histories.get(view.key, ())) for view in views),
        spaces=view_spaces(store, [*tasks.values()]),
        toolchains=view_toolchains(store, [*tasks.values()]),
        settled=True,
    )


def latencies_of(snapshot: Snapshot) -> dict[str, float]:
    """The latencies that a snapshot has, by task key: for tasks with symbolic dimensions those of
    their kernel sets."""
    return {task.key: task.best_s for task in snapshot.tasks if task.best_s is not None}


def rank_won(run: RunView) -> Ranked:
    """The tasks that gave the most of what was saved, with their shares of it; none where nothing
    was saved."""
    saved = {t.key: (t.untuned_s or 0.0) - (t.tuned_s or 0.0) for t in run.tasks if t.compared}
    won = [task for task in run.tasks if saved.get(task.key, 0.0) > 0]
    won.sort(key=lambda task: (-saved[task.key], task.name))
    return _heaviest(won, saved)


def rank_left(run: RunView) -> Ranked:
    """The tasks that take the most of the model's time now, with their shares of it."""
    shares = run.shares()
    return _heaviest([task for task in run.by_time() if task.key in shares], shares)


def _heaviest(ordered: Sequence[TaskView], parts: Mapping[str, float]) -> Ranked:
    whole = sum(parts[task.key] for task in ordered)
    shares = [(task, parts[task.key] / whole) for task in ordered[:_NAMED] if whole]
    return [row for row in shares if row is shares[0] or row[1] >= _LEAST_SHARE]


def look_back(task: TaskView) -> tuple[int, float | None]:
    """The number of a task's last trials, a quarter of those in its history, and the share of its
    latency that they saved; None where there are too few trials to tell."""
    trials = len(task.history)
    lately = trials // 4
    if trials < _FEW_TRIALS:
        return lately, None
    was_s, now_s = task.history[-lately - 1], task.history[-1]
    return lately, max(0.0, 1 - now_s / was_s) if was_s and now_s else None


def still_falls(run: RunView) -> bool:
    """Whether the last quarter of the trials of the heaviest tasks still made the model faster, or
    there are too few to tell."""
    rows = [(task, share, look_back(task)[1]) for task, share in rank_left(run)]
    few = any(task.history and saved is None for task, _, saved in rows)
    return few or sum(share * (saved or 0.0) for _, share, saved in rows) >= _FALLING


def find_stale(run: RunView) -> tuple[str, ...]:
    """Names of the tasks whose winner was timed with another toolchain than the newest."""
    newest = run.toolchains[-1].toolchain if run.toolchains else ""
    known = [task for task in run.tasks if task.toolchain and newest]
    return tuple(task.name for task in known if task.toolchain != newest)


@dataclass(frozen=True, slots=True)
class Step:
    """A command to run next, and what for."""

    command: str
    why: str


_STEPS = 3


def next_steps(
    run: RunView, name: str, go_on: str, commands: Collection[str], ended: str
) -> tuple[Step, ...]:
    """The commands to run next, the most useful first, three at most.

    Args:
        name: the run's name, quoted for a shell.
        go_on: the command that goes on with it.
        commands: those that `tuner` has.
        ended: why the run ended, see `cluster.app.driver.tune_result.TuneResult`.
    """
    wanted: list[tuple[str, str, str]] = []
    won, left = rank_won(run), rank_left(run)
    early = not (left or any(run.statuses.values())) and ended != "done"
    if not left and not early and ended != "signal":
        wanted.append(("status", f"tuner status {name}", "how the trials failed"))
        wanted.append(("doctor", "tuner doctor", "what this machine lacks"))
    if ended == "signal":
        wanted.append(("tune", go_on, "go on where it was stopped"))
    elif early:
        wanted.append(("tune", go_on, "go on with more budget: it was spent before any trial"))
    elif still_falls(run) and ended not in ("done", "enough"):
        wanted.append(("tune", go_on, "go on: there is more to win"))
    if won:
        wanted += [
            ("bench", f"tuner bench {name}", "whole-model latency, untuned and tuned"),
            ("export", f"tuner export {name} --lib model.so", "the compiled model"),
            ("verify", f"tuner verify {name}", "whether the gain holds"),
        ]
    if any(task.candidate for task, _ in left):
        what = "what the schedules do, and what is against them"
        wanted.append(("explain", f"tuner explain {name}", what))
    elif left:  # with symbolic dimensions each has a set of kernels
        wanted.append(("best", f"tuner best {name}", "which kernel serves which shape"))
    return tuple(Step(text, why) for name, text, why in wanted if name in commands)[:_STEPS]
