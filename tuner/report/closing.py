"""What to say of a run when it ends: what was won, what is left to win, and what to do next.

Only decisions, from a run's records or its last snapshot; `cluster.console.closing_text` puts them
into words.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Any

from tuner.report.report import best_report
from tuner.report.spaces import space_rows
from tuner.report.toolchains import of_an_older, toolchain_rows
from tuner.report.words import seconds_of
from tuner.session.model_times import model_times
from tuner.session.progress import Snapshot, TaskRow, fold, gain
from tuner.storage.base import RecordStore
from tuner.task import Task

_NAMED = 3
"""Tasks that are named of those that gave the most, and of those that take the most."""
_LEAST_SHARE = 0.05
"""A task below this share of what is won or left is not named, unless it is the first."""
_FEW_TRIALS = 8
"""A curve of fewer trials says nothing of where it goes."""
_FALLING = 0.01
"""The share of the model's time that the last quarter of the trials must have saved for the next
one to be worth its time."""
_NOTHING: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class TaskEnd:
    """A task at the end of a run.

    Attributes:
        before_s, after_s: latency of its default schedule, and of its winner; None where unknown.
        curve: best latency after each trial that counts; empty where it is not known.
    """

    name: str
    weight: float
    before_s: float | None
    after_s: float | None
    curve: tuple[float | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Won:
    """A task that became faster.

    Attributes:
        share: of all the time that was saved, from 0 to 1.
    """

    task: str
    share: float
    before_s: float
    after_s: float


@dataclass(frozen=True, slots=True)
class Left:
    """A task that takes much of what the model takes now.

    Attributes:
        share: of the model's time now, from 0 to 1.
        trials: that its curve has; 0 where the curve is not known.
        lately: the last trials of these, a quarter.
        saved: share of its latency that those saved; None where there are too few trials to tell.
    """

    task: str
    share: float
    latency_s: float
    trials: int = 0
    lately: int = 0
    saved: float | None = None


@dataclass(frozen=True, slots=True)
class Fruitless:
    """A space all of whose trials failed."""

    space: str
    trials: int


@dataclass(frozen=True, slots=True)
class Closing:
    """What to say of a run that has ended.

    Attributes:
        before_s, after_s: latency of the model's kernels, each as often as it runs, with default
            schedules and with the winners; over the tasks where both are known. 0 without any.
        won: the tasks that gave the most of what was saved; none where nothing was.
        left: the tasks that take the most of what is left.
        untimed: names of the tasks of which no schedule has a time, and those whose default
            schedule has none, so that their gain is not known.
        fruitless: spaces that gave nothing but failures.
        toolchains: that times were taken with; the one that was used last is the last.
        stale: names of the tasks whose winner was timed with another toolchain than the newest.
        falling: whether the last quarter of the trials still made the model faster, or there are
            too few to tell.
    """

    before_s: float = 0.0
    after_s: float = 0.0
    won: tuple[Won, ...] = ()
    left: tuple[Left, ...] = ()
    untimed: tuple[str, ...] = ()
    fruitless: tuple[Fruitless, ...] = ()
    toolchains: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
    falling: bool = False

    @property
    def gain(self) -> float | None:
        """Untuned over tuned time; None where they are not known."""
        return self.before_s / self.after_s if self.after_s else None

    def to_json(self) -> dict[str, Any]:
        """The keys of `closing` in `tuner tune --json`, times in milliseconds."""
        plain = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}
        for row in (plain, *plain["won"], *plain["left"]):
            for name in [name for name in row if name.endswith("_s")]:
                row[f"{name[:-1]}ms"] = row.pop(name) * 1e3
        return plain


def closing(tasks: Sequence[TaskEnd], fruitless: Sequence[Fruitless] = ()) -> Closing:
    """What to say of a run whose tasks ended so.

    Args:
        tasks: in the order of the model.
        fruitless: spaces that gave nothing but failures.
    """
    times = model_times((task.weight, task.before_s, task.after_s) for task in tasks)
    left = _left(tasks)
    return Closing(
        before_s=times.default_s,
        after_s=times.best_s,
        won=_won(tasks),
        left=left,
        untimed=tuple(t.name for t in tasks if t.before_s is None or t.after_s is None),
        fruitless=tuple(fruitless),
        falling=_falls(left),
    )


def _won(tasks: Sequence[TaskEnd]) -> tuple[Won, ...]:
    both = [(t, t.before_s, t.after_s) for t in tasks]
    known = [(t, b, a) for t, b, a in both if b is not None and a is not None]
    saved = [(task.weight * (b - a), task.name, b, a) for task, b, a in known if a < b]
    total = sum(s for s, _, _, _ in saved)
    ordered = sorted(saved, key=lambda row: (-row[0], row[1]))
    rows = [Won(name, s / total, b, a) for s, name, b, a in ordered[:_NAMED] if total]
    return tuple(row for row in rows if row is rows[0] or row.share >= _LEAST_SHARE)


def _left(tasks: Sequence[TaskEnd]) -> tuple[Left, ...]:
    timed = [(t, t.after_s) for t in tasks if t.after_s is not None]
    total_s = sum(t.weight * after_s for t, after_s in timed)
    ordered = sorted(timed, key=lambda row: (-row[0].weight * row[1], row[0].name))
    rows = [_left_of(t, s, t.weight * s / total_s) for t, s in ordered[:_NAMED] if total_s]
    return tuple(row for row in rows if row is rows[0] or row.share >= _LEAST_SHARE)


def _left_of(task: TaskEnd, latency_s: float, share: float) -> Left:
    trials = len(task.curve)
    lately = trials // 4
    saved = None
    if trials >= _FEW_TRIALS:
        was_s, now_s = task.curve[-lately - 1], task.curve[-1]
        if was_s and now_s:
            saved = max(0.0, 1 - now_s / was_s)
    return Left(task.name, share, latency_s, trials, lately, saved)


def _falls(left: Sequence[Left]) -> bool:
    few = any(row.trials > 0 and row.saved is None for row in left)
    return few or sum(row.share * (row.saved or 0.0) for row in left) >= _FALLING


def closing_of_store(store: RecordStore, chosen_s: Mapping[str, float] = _NOTHING) -> Closing:
    """The same from a run's records. Of all but the tasks that take the most, it reads only counts
    and winners, so it is quick in any run.

    Args:
        chosen_s: latencies of the kernel sets of tasks with symbolic dimensions, by task key.
    """
    tasks = store.tasks()
    rows = best_report(store, None, chosen_s)["tasks"]
    ends = [
        TaskEnd(
            row["name"], row["weight"], seconds_of(row["default_ms"]), seconds_of(row["latency_ms"])
        )
        for row in rows
    ]
    named = {row.task for row in _left(ends)}
    with_curves = [
        TaskEnd(e.name, e.weight, e.before_s, e.after_s, _curve(store, task))
        if e.name in named
        else e
        for e, task in zip(ends, tasks, strict=True)
    ]
    fruitless = [
        Fruitless(row["space"], row["failed"])
        for row in space_rows(store, tasks)
        if row["best_ms"] is None and row["failed"] and row["failed"] == row["explored"]
    ]
    used = tuple(row["toolchain"] for row in toolchain_rows(store, tasks))
    winners = {row["name"]: row["toolchain"] or "" for row in rows}
    said = closing(with_curves, fruitless)
    return replace(said, toolchains=used, stale=tuple(of_an_older(winners, used)))


def _curve(store: RecordStore, task: Task) -> tuple[float | None, ...]:
    progress = fold([task], {}, store.scan(task.key))[task.key]
    return tuple(progress.history)


def closing_of_snapshot(snapshot: Snapshot) -> Closing:
    """The same from the last snapshot of a run whose records are not at hand."""
    return closing(
        [TaskEnd(row.name, row.weight, row.default_s, row.best_s) for row in snapshot.tasks]
    )


def latencies_of(snapshot: Snapshot) -> dict[str, float]:
    """The latencies that a snapshot has: for tasks with symbolic dimensions those of their kernel
    sets, see `tuner.session.progress.rows`."""
    return {row.key: row.best_s for row in snapshot.tasks if row.best_s is not None}


def settled(snapshot: Snapshot, store: RecordStore) -> Snapshot:
    """A run's last snapshot with the latencies that count: of what was timed again, those."""
    tasks = settled_rows(snapshot.tasks, store, latencies_of(snapshot))
    return replace(snapshot, tasks=tasks, gain=gain(tasks))


def settled_rows(
    tasks: Sequence[TaskRow], store: RecordStore, chosen_s: Mapping[str, float]
) -> tuple[TaskRow, ...]:
    """The rows of tasks with the latencies that count, once their run has ended.

    Args:
        chosen_s: see `closing_of_store`.
    """
    told = zip(store.tasks(), best_report(store, None, chosen_s)["tasks"], strict=True)
    known = {task.key: (row["default_ms"], row["latency_ms"]) for task, row in told}
    found = []
    for row in tasks:
        default_ms, best_ms = known.get(row.key, (None, None))
        default_s, best_s = seconds_of(default_ms) or row.default_s, seconds_of(best_ms)
        found.append(replace(row, default_s=default_s, best_s=best_s or row.best_s))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Step:
    """A command to run next, and what for."""

    command: str
    why: str

    def to_json(self) -> dict[str, str]:
        """As plain data."""
        return asdict(self)


_STEPS = 3


def next_steps(
    said: Closing, run: str, go_on: str, commands: Collection[str], ended: str, *, tried: bool
) -> tuple[Step, ...]:
    """The commands to run next, the most useful first, three at most.

    Args:
        run: the run's name, quoted for a shell.
        go_on: the command that goes on with it.
        commands: those that `tuner` has.
        ended: why the run ended, see `cluster.driver.tune_result.TuneResult`.
        tried: whether there was any trial.
    """
    wanted: list[tuple[str, str, str]] = []
    early = not (said.left or tried) and ended != "done"
    if not said.left and not early and ended != "signal":
        wanted.append(("status", f"tuner status {run}", "how the trials failed"))
        wanted.append(("doctor", "tuner doctor", "what this machine lacks"))
    if ended == "signal":
        wanted.append(("tune", go_on, "go on where it was stopped"))
    elif early:
        wanted.append(("tune", go_on, "go on with more budget: it was spent before any trial"))
    elif said.falling and ended not in ("done", "enough"):
        wanted.append(("tune", go_on, "go on: there is more to win"))
    if said.won:
        wanted += [
            ("bench", f"tuner bench {run}", "whole-model latency, untuned and tuned"),
            ("export", f"tuner export {run} --lib model.so", "the compiled model"),
            ("verify", f"tuner verify {run}", "whether the gain holds"),
        ]
    if said.left:
        what = "what the schedules do, and what is against them"
        wanted.append(("explain", f"tuner explain {run}", what))
    return tuple(Step(text, why) for name, text, why in wanted if name in commands)[:_STEPS]
