"""The time of worker slots by its use: work, or a known reason for none. No I/O.

A slot is a worker that does one job at a time: a runner, a builder, a space worker. From its start
until it is gone each of its seconds belongs to one category, so the categories of a kind add up to
the lifetimes of its slots:

    starting    not ready yet
    busy        at work
    waiting     holds a job, but is frozen while a kernel is timed, waits for its turn to time
                one, or its request or answer is on the way
    and while it holds no job, one of `Idle`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

SlotSeconds = Mapping[str, Mapping[str, float]]
"""Seconds by kind of slot and category."""

RUNNER, BUILDER, SPACE = "runner", "builder", "space"

STARTING, BUSY, WAITING = "starting", "busy", "waiting"
_IDLE = "idle"


class Idle(StrEnum):
    """The reason why a slot has no job."""

    NO_CANDIDATES = "no_candidates"
    """The search has nothing to propose right now."""
    NO_BUILDS = "no_builds"
    """Everything that could be measured is still being built."""
    NOT_NEEDED = "not_needed"
    """Its product is there in plenty: the slots of the next stage are behind."""
    FINALISTS = "finalists"
    """Finalists are timed again; only runners have work."""
    DRAINING = "draining"
    """The budget is spent or in flight: nothing more is begun."""


_SPANS_KEPT = 100_000
"""Spans that nobody takes are forgotten, the oldest first."""


@dataclass(frozen=True, slots=True)
class SlotSpan:
    """A stretch of one slot's time in one category.

    Attributes:
        kind, slot: the slot.
        category: as above.
        started_s, ended_s: by the clock of whoever tells of it.
        task_key: of the task that the job was of; empty where it was of several, or there was none.
    """

    kind: str
    slot: str
    category: str
    started_s: float
    ended_s: float
    task_key: str = ""


@dataclass(slots=True)
class _Slot:
    state: str
    since_s: float
    task_key: str = ""


class Utilisation:
    """Adds up seconds of slots from what happens to them. For one thread.

    A slot that is not known, or an event that does not fit its state, changes nothing: this
    watches the work and must never stop it.

    Args:
        clock: seconds that never go back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._slots: dict[tuple[str, str], _Slot] = {}
        self._spent: dict[str, dict[str, float]] = {}
        self._reasons: Mapping[str, Idle] = {}
        self._spans: deque[SlotSpan] = deque(maxlen=_SPANS_KEPT)

    def started(self, kind: str, slot: str) -> None:
        """A slot begins to exist; it is not ready yet."""
        self._slots[kind, slot] = _Slot(STARTING, self._clock())

    def ready(self, kind: str, slot: str) -> None:
        """The slot can take jobs, and has none."""
        self._move(kind, slot, _IDLE)

    def given(self, kind: str, slot: str, task_key: str = "") -> None:
        """The slot was given a job, of one task or of several."""
        self._move(kind, slot, BUSY, task_key)

    def answered(self, kind: str, slot: str, worked_s: float | None = None) -> None:
        """The slot's job is done.

        Args:
            worked_s: the part of the time that it held the job that was its own work; None is all.
        """
        held = self._slots.get((kind, slot))
        if held is None or held.state != BUSY:
            return
        now_s = self._clock()
        held_s = now_s - held.since_s
        waited_s = 0.0 if worked_s is None else min(held_s, max(0.0, held_s - worked_s))
        # How its waits were spread is not known: they are shown before its work.
        self._spend(kind, slot, WAITING, held.since_s, held.since_s + waited_s, held.task_key)
        self._spend(kind, slot, BUSY, held.since_s + waited_s, now_s, held.task_key)
        held.state, held.since_s, held.task_key = _IDLE, now_s, ""

    def gone(self, kind: str, slot: str) -> None:
        """The slot is gone."""
        self._move(kind, slot, _IDLE)
        self._slots.pop((kind, slot), None)

    def idle_because(self, reasons: Mapping[str, Idle]) -> None:
        """Set the reason why slots without a job have none, from now on, by kind."""
        if reasons == self._reasons:
            return
        for (kind, name), slot in self._slots.items():
            if slot.state == _IDLE:
                self._close(kind, name, slot)
        self._reasons = reasons

    def take_spans(self, *, last: bool = False) -> list[SlotSpan]:
        """The spans since the last call, in the order of their ends; a job's when it is done.

        Args:
            last: nobody will ask again: a job in progress counts as busy, as in `seconds`.
        """
        for (kind, name), slot in self._slots.items():
            if last or slot.state != BUSY:
                self._close(kind, name, slot)
        taken = list(self._spans)
        self._spans.clear()
        return taken

    def seconds(self) -> dict[str, dict[str, float]]:
        """All seconds so far, by kind and category. A job in progress counts as busy."""
        now_s = self._clock()
        spent = {kind: dict(categories) for kind, categories in self._spent.items()}
        for (kind, _), slot in self._slots.items():
            categories = spent.setdefault(kind, {})
            category = self._category(kind, slot.state)
            categories[category] = categories.get(category, 0.0) + now_s - slot.since_s
        return spent

    def _move(self, kind: str, name: str, state: str, task_key: str = "") -> None:
        slot = self._slots.get((kind, name))
        if slot is not None:
            self._close(kind, name, slot)
            slot.state, slot.task_key = state, task_key

    def _close(self, kind: str, name: str, slot: _Slot) -> None:
        """Count a slot's time up to now."""
        now_s, category = self._clock(), self._category(kind, slot.state)
        self._spend(kind, name, category, slot.since_s, now_s, slot.task_key)
        slot.since_s = now_s

    def _category(self, kind: str, state: str) -> str:
        return str(self._reasons.get(kind, Idle.NOT_NEEDED)) if state == _IDLE else state

    def _spend(
        self, kind: str, name: str, category: str, since_s: float, until_s: float, task_key: str
    ) -> None:
        if until_s <= since_s:
            return
        self._spans.append(SlotSpan(kind, name, category, since_s, until_s, task_key))
        categories = self._spent.setdefault(kind, {})
        categories[category] = categories.get(category, 0.0) + until_s - since_s


def total(parts: Iterable[SlotSeconds]) -> dict[str, dict[str, float]]:
    """Seconds of several sessions together."""
    summed: dict[str, dict[str, float]] = {}
    for part in parts:
        for kind, categories in part.items():
            mine = summed.setdefault(kind, {})
            for category, seconds in categories.items():
                mine[category] = mine.get(category, 0.0) + seconds
    return summed


def shares(categories: Mapping[str, float]) -> dict[str, float]:
    """Shares of one kind's time by category, the largest first; empty before any time passed."""
    whole_s = sum(categories.values())
    ordered = sorted(categories.items(), key=lambda item: (-item[1], item[0]))
    return {category: s / whole_s for category, s in ordered} if whole_s > 0 else {}
