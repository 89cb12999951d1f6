"""What became better or worse from one run to another, and what changed in the schedules."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tuner.candidate import Candidate, CandidateKind, display_space, knobs_of
from tuner.report.noise import deviation
from tuner.session.ending.finalists import LEAST_NOISE, noise_factor
from tuner.storage.base import RecordStore
from tuner.view.as_json import to_ms
from tuner.view.folds import NO_SETS_S, Won, find_winners
from tuner.view.task_view import TaskView

_MOST = 1.5
"""The largest factor that is put down to noise."""


@dataclass(frozen=True, slots=True)
class TaskDiff:
    """One task in two runs.

    Attributes:
        before, after: with its winner in each; None where only the other run has the task.
        verdict: `better`, `worse`, `same` (within the noise); `untimed` where a run that has the
            task has no time of it; `new` or `gone` where only one has it.
        changes: what is different about the winners, in words.
    """

    before: TaskView | None
    after: TaskView | None
    verdict: str
    changes: tuple[str, ...] = ()

    @property
    def task(self) -> TaskView:
        """The task as it is in the second run, or in the only one that has it."""
        known = self.after or self.before
        assert known is not None
        return known

    @property
    def before_s(self) -> float | None:
        """Latency of its winner in the first run; None without one."""
        return self.before.best_s if self.before is not None else None

    @property
    def after_s(self) -> float | None:
        """The same in the second."""
        return self.after.best_s if self.after is not None else None


@dataclass(frozen=True, slots=True)
class RunDiff:
    """Two runs, task by task.

    Attributes:
        tasks: in the order of the second run; those that only the first has come last.
        noise: factor that two times of one kernel are apart by, of the re-timings in both runs.
        notes: what speaks against comparing them.
    """

    tasks: tuple[TaskDiff, ...]
    noise: float
    notes: tuple[str, ...] = ()

    @property
    def sums_s(self) -> tuple[float, float] | None:
        """Weighted latencies in each run over the tasks that have one in both, if any."""
        both = [(d.task.weight, d.before_s, d.after_s) for d in self.tasks]
        known = [(weight, was, now) for weight, was, now in both if was and now]
        if not known:
            return None
        return sum(w * was for w, was, _ in known), sum(w * now for w, _, now in known)


def diff(
    before: RecordStore,
    after: RecordStore,
    before_s: Mapping[str, float] = NO_SETS_S,
    after_s: Mapping[str, float] = NO_SETS_S,
) -> RunDiff:
    """Compare two runs.

    Tasks are the same where program and target are, or where name and program are and the targets
    differ.

    Args:
        before_s, after_s: latencies of the kernel sets of tasks with symbolic dimensions, by task
            key.
    """
    sides = _Side.of(before, before_s), _Side.of(after, after_s)
    apart = deviation(times for side in sides for times in side.again_s)
    noise = LEAST_NOISE if apart is None else noise_factor(apart, _MOST)
    rows = tuple(_compare(one, other, noise) for one, other in _pairs(*sides))
    return RunDiff(rows, noise, tuple(_notes(*sides)))


@dataclass(frozen=True, slots=True)
class _Side:
    won: tuple[Won, ...]
    again_s: tuple[tuple[float, ...], ...]
    devices: frozenset[str]
    toolchains: frozenset[str]

    @staticmethod
    def of(store: RecordStore, chosen_s: Mapping[str, float]) -> _Side:
        won = find_winners(store, chosen_s)
        choices = [each.choice for each in won if each.choice is not None]
        places = [choice.record.provenance for choice in choices]
        return _Side(
            won,
            tuple(choice.won.again_s for choice in choices),
            frozenset(place.device for place in places) - {""},
            frozenset(place.toolchain for place in places) - {""},
        )


def _pairs(one: _Side, other: _Side) -> Iterator[tuple[Won | None, Won | None]]:
    left = {won.task.key: won for won in one.won}
    alike = {(won.task.name, won.task.module): won.task.key for won in one.won}
    for now in other.won:
        key, same = now.task.key, alike.get((now.task.name, now.task.module), "")
        yield left.pop(key if key in left else same, None), now
    for was in left.values():
        yield was, None


def _compare(was: Won | None, now: Won | None, noise: float) -> TaskDiff:
    if was is None or now is None:
        before, after = (w.view if w is not None else None for w in (was, now))
        return TaskDiff(before, after, "gone" if now is None else "new")
    before_s, after_s = was.view.best_s, now.view.best_s
    if before_s is None or after_s is None:
        return TaskDiff(was.view, now.view, "untimed")
    ratio = after_s / before_s
    verdict = "worse" if ratio > noise else "better" if ratio < 1 / noise else "same"
    changes: tuple[str, ...] = ()
    if was.choice and now.choice:
        records = was.choice.record, now.choice.record
        changes = tuple(describe_changes(*(record.trial.candidate for record in records)))
    return TaskDiff(was.view, now.view, verdict, changes)


def diff_json(diff: RunDiff) -> dict[str, Any]:
    """The keys of `tuner diff --json`."""
    before_s, after_s = diff.sums_s or (None, None)
    return {
        "tasks": [
            {
                "name": row.task.name,
                "weight": row.task.weight,
                "before_ms": to_ms(row.before_s),
                "after_ms": to_ms(row.after_s),
                "verdict": row.verdict,
                "changes": list(row.changes),
            }
            for row in diff.tasks
        ],
        "noise": diff.noise,
        "before_ms": to_ms(before_s),
        "after_ms": to_ms(after_s),
        "notes": list(diff.notes),
    }


def describe_changes(was: Candidate, now: Candidate) -> Iterator[str]:
    """What is different about two schedules, in words; nothing where they are the same."""
    if was.key == now.key:
        return
    spaces = display_space(was.space), display_space(now.space)
    if was.space != now.space:
        yield f"space {spaces[0]} → {spaces[1]}" if spaces[0] != spaces[1] else "another version"
    before, after = knobs_of(was), knobs_of(now)
    if before is not None and after is not None and spaces[0] == spaces[1]:
        for name in sorted({*before, *after}):
            if before.get(name) != after.get(name):
                yield f"{name} {before.get(name, '-')} → {after.get(name, '-')}"
    elif was.kind is now.kind is CandidateKind.TRACE and spaces[0] == spaces[1]:
        yield _decisions(was.payload, now.payload)


def _decisions(was: str, now: str) -> str:
    """How two traces differ: in their decisions, or in the instructions themselves."""
    (before, drew), (after, draws) = json.loads(was), json.loads(now)
    if [i[0] for i in before] != [i[0] for i in after]:
        return f"another sketch: {len(before)} → {len(after)} instructions"
    numbered = dict(map(tuple, drew)), dict(map(tuple, draws))
    apart = [i for i in {*numbered[0], *numbered[1]} if numbered[0].get(i) != numbered[1].get(i)]
    said = [f"{before[i][0]} {numbered[0].get(i)} → {numbered[1].get(i)}" for i in sorted(apart)]
    return "; ".join(said) or "attributes of instructions"


def _notes(one: _Side, other: _Side) -> Iterator[str]:
    for what, was, now in (
        ("measured on", one.devices, other.devices),
        ("compiled with", one.toolchains, other.toolchains),
    ):
        if was and now and was != now:
            yield f"{what} {', '.join(sorted(was))}, and {', '.join(sorted(now))}"
