"""The choice of the task that gets the next trials: a pure function of progress.

A task gets the next trial where the model's time is expected to fall most by it. A search's gains
fade: each doubling of its trials brings a part of what the one before brought
(`tuner.session.ending.doubling`). So a trial of a task is worth about its share of the model's time
over the square of the trials that it had. Ansor's rule (OSDI'20, section 6.2) adds what the last
trials brought, which is mostly noise, and how far the best operation rate of other tasks is off.

Two rules are beside it. Every task gets its first trials before any gets more, the largest share of
the model first, so none is starved, not even a task that never gave a valid time. A task whose
whole share is below a floor of gain comes after the others' first trials, gets half as many, and
is then left alone until nothing else is left. Its share grows as the others shrink.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from tuner.view.progress import TaskProgress
from tuner.view.task_view import TaskView


def view(progress: TaskProgress, *, in_flight: int, is_open: bool) -> TaskView:
    """What an allocator knows of a task's progress. With many shapes, its best latency is that over
    the shapes that have one so far."""
    task = progress.task
    return TaskView(
        task.key,
        task.name,
        task.weight,
        task.flops,
        dict(progress.statuses),
        best_s=progress.so_far_s,
        history=progress.history,
        in_flight=in_flight,
        open=is_open,
    )


Place = tuple[int, float, float]
"""Sort key of a task: the task with the smallest is served next."""


class Allocator(Protocol):
    """Chooses the task that gets the next trials."""

    def order(self, views: Sequence[TaskView]) -> Sequence[str]:
        """Keys of the tasks that may be served now, the first to be served first; a task that is
        left out gets nothing for the moment. Tasks that are not open have nothing to propose.

        Asked several times a second.
        """


def priorities(views: Iterable[TaskView], *, first_trials: int, gain_floor: float) -> list[str]:
    """Keys of the open tasks, the one to serve next first.

    Args:
        first_trials: number of trials that every task gets before any gets more.
        gain_floor: share of the model's time below which a task is left alone.
    """
    rule = _Rule(list(views), first_trials, gain_floor)
    return [v.key for v in sorted(rule.open, key=rule.place)]


class Turns:
    """The order of `priorities`, kept up while trials are given out one by one.

    A trial that is given out changes the place of its own task only, so the tasks are all ranked
    once, and not for each trial.
    """

    def __init__(self, views: Iterable[TaskView], *, first_trials: int, gain_floor: float) -> None:
        self._rule = _Rule(list(views), first_trials, gain_floor)
        self._heap = [(self._rule.place(v), i, v) for i, v in enumerate(self._rule.open)]
        heapq.heapify(self._heap)

    @property
    def first(self) -> str | None:
        """Key of the task to serve next; None where there is none."""
        return self._heap[0][2].key if self._heap else None

    def served(self) -> None:
        """Count a trial that was given to the first task."""
        _, i, v = self._heap[0]
        v = replace(v, in_flight=v.in_flight + 1)
        heapq.heapreplace(self._heap, (self._rule.place(v), i, v))

    def passed(self) -> None:
        """Drop the first task, which has nothing to propose for now."""
        heapq.heappop(self._heap)


class AskedTurns:
    """Turns as a user's allocator gives them, asked anew after each trial that is given out."""

    def __init__(self, allocator: Allocator, views: Iterable[TaskView]) -> None:
        self._allocator = allocator
        self._views = {v.key: v for v in views if v.open}
        self._passed: set[str] = set()
        self._ask()

    def _ask(self) -> None:
        order = self._allocator.order(list(self._views.values()))
        self._order = [key for key in order if key in self._views]

    @property
    def first(self) -> str | None:
        """See `Turns`."""
        return next((key for key in self._order if key not in self._passed), None)

    def served(self) -> None:
        """See `Turns`."""
        if (key := self.first) is not None:
            known = self._views[key]
            self._views[key] = replace(known, in_flight=known.in_flight + 1)
            self._ask()

    def passed(self) -> None:
        """See `Turns`."""
        if (key := self.first) is not None:
            self._passed.add(key)


class _Rule:
    """The rule, with the figures that depend on all tasks together."""

    def __init__(self, views: Sequence[TaskView], first_trials: int, gain_floor: float) -> None:
        known = [v for v in views if v.best_s is not None]
        self.open = [v for v in views if v.open]
        self._total_s = sum(v.weight * (v.best_s or 0.0) for v in known)
        self._best_rate = max((v.flops / v.best_s for v in known if v.best_s), default=0.0)
        self._first_trials, self._gain_floor = first_trials, gain_floor

    def place(self, v: TaskView) -> Place:
        total_s = self._total_s
        share = v.weight * self._expected_s(v) / (total_s or 1.0)
        if v.best_s is not None and share < self._gain_floor:
            return (1 if v.trials < self._first_trials // 2 else 3, v.trials, -share)
        if v.trials < self._first_trials:
            return (0, v.trials, -share)
        trials = max(1, v.trials)
        # A task without any time may gain the whole of the model's, or be hopeless.
        gain = share if v.best_s is not None else 1.0 / trials
        return (2, -gain / trials**2, 0.0)

    def _expected_s(self, v: TaskView) -> float:
        """The best latency; before there is one, the time of the operations at the best rate."""
        if v.best_s is not None:
            return v.best_s
        return v.flops / (self._best_rate or 1.0)
