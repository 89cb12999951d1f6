"""What became better or worse from one run to another, and what changed in the schedules."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

from tuner.candidate import Candidate, CandidateKind, knobs_of, shown_space
from tuner.report.winners import Timings, choose_best
from tuner.session.ending.finalists import LEAST_NOISE, noise_factor
from tuner.storage.base import RecordStore
from tuner.task import Task

_MOST = 1.5
"""The largest factor that is put down to noise."""
_NOTHING: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class TaskDiff:
    """One task in two runs.

    Attributes:
        before_s, after_s: latency of its winner; None where a run has none.
        verdict: `better`, `worse`, `same` (within the noise); `untimed` where a run that has the
            task has no time of it; `new` or `gone` where only one has it.
        changes: what is different about the winners, in words.
    """

    name: str
    weight: float
    before_s: float | None
    after_s: float | None
    verdict: str
    changes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunDiff:
    """Two runs, task by task.

    Attributes:
        tasks: in the order of the second run; those that only the first has come last.
        noise: factor that two times of one kernel are apart by, of the re-timings in both runs.
        before_s, after_s: weighted sums over the tasks that have a time in both; None without any.
        notes: what speaks against comparing them.
    """

    tasks: tuple[TaskDiff, ...]
    noise: float
    before_s: float | None
    after_s: float | None
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def diff(
    before: RecordStore,
    after: RecordStore,
    before_s: Mapping[str, float] = _NOTHING,
    after_s: Mapping[str, float] = _NOTHING,
) -> RunDiff:
    """Compare two runs.

    Tasks are the same where program and target are, or where name and program are and the targets
    differ.

    Args:
        before_s, after_s: latencies of the kernel sets of tasks with symbolic dimensions, by task
            key.
    """
    sides = _Side.of(before, before_s), _Side.of(after, after_s)
    noise = _noise(ratio for side in sides for ratio in side.ratios)
    pairs = list(_pairs(*sides))
    rows = tuple(_compared(one, other, noise) for one, other in pairs)
    both = [(r.weight, r.before_s, r.after_s) for r in rows if r.before_s and r.after_s]
    return RunDiff(
        rows,
        noise,
        sum(weight * was for weight, was, _ in both) if both else None,
        sum(weight * now for weight, _, now in both) if both else None,
        tuple(_notes(*sides)),
    )


@dataclass(frozen=True, slots=True)
class _Won:
    """A task of a run, and what won it."""

    task: Task
    latency_s: float | None
    candidate: Candidate | None


@dataclass(frozen=True, slots=True)
class _Side:
    won: Mapping[str, _Won]
    ratios: tuple[float, ...]
    devices: frozenset[str]
    toolchains: frozenset[str]

    @staticmethod
    def of(store: RecordStore, chosen_s: Mapping[str, float]) -> _Side:
        won, ratios = {}, []
        devices, toolchains = set(), set()
        for task in store.tasks():
            winner = None if task.shapes else choose_best(store, task.key)
            latency_s, candidate = chosen_s.get(task.key), None
            if winner is not None:
                candidate = winner.trial.candidate
                timings = Timings.of(store, task.key, candidate.key)
                latency_s = timings.last_s
                times = [r.latency_s for r in timings.retimed if r.latency_s is not None]
                ratios += [times[i] / times[0] for i in range(1, len(times))]
                devices.add(winner.provenance.device)
                toolchains.add(winner.provenance.toolchain)
            won[task.key] = _Won(task, latency_s, candidate)
        return _Side(won, tuple(ratios), frozenset(devices - {""}), frozenset(toolchains - {""}))


def _pairs(one: _Side, other: _Side) -> Iterator[tuple[_Won | None, _Won | None]]:
    alike = {(w.task.name, w.task.module): key for key, w in one.won.items()}
    left = dict(one.won)
    for key, now in other.won.items():
        same = key if key in left else alike.get((now.task.name, now.task.module), "")
        yield left.pop(same, None), now
    for was in left.values():
        yield was, None


def _compared(was: _Won | None, now: _Won | None, noise: float) -> TaskDiff:
    known = now or was
    assert known is not None
    before_s, after_s = (w.latency_s if w is not None else None for w in (was, now))
    changes: tuple[str, ...] = ()
    if was is None or now is None:
        verdict = "gone" if now is None else "new"
    elif before_s is None or after_s is None:
        verdict = "untimed"
    else:
        ratio = after_s / before_s
        verdict = "worse" if ratio > noise else "better" if ratio < 1 / noise else "same"
        if was.candidate and now.candidate:
            changes = tuple(changed(was.candidate, now.candidate))
    return TaskDiff(known.task.name, known.task.weight, before_s, after_s, verdict, changes)


def changed(was: Candidate, now: Candidate) -> Iterator[str]:
    """What is different about two schedules, in words; nothing where they are the same."""
    if was.key == now.key:
        return
    spaces = shown_space(was.space), shown_space(now.space)
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


def _noise(ratios: Iterable[float]) -> float:
    logs = [abs(math.log(ratio)) for ratio in ratios if ratio > 0]
    return noise_factor(statistics.median(logs), _MOST) if logs else LEAST_NOISE


def _notes(one: _Side, other: _Side) -> Iterator[str]:
    for what, was, now in (
        ("measured on", one.devices, other.devices),
        ("compiled with", one.toolchains, other.toolchains),
    ):
        if was and now and was != now:
            yield f"{what} {', '.join(sorted(was))}, and {', '.join(sorted(now))}"
