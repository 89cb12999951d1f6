"""The trials of default schedules, and when each has its turn."""

from __future__ import annotations

from collections.abc import Iterable

from tuner.candidate import Candidate
from tuner.record import Trial
from tuner.shapes import measured_shapes
from tuner.task import Task

_BEFORE = 2
"""Trials of a task before that of its default schedule: an unscheduled program is slow to build and
to run, and where time is short every task should have a good kernel first."""


def default_trial(task: Task, default: Candidate) -> Trial:
    """The trial of a task's default schedule; where there are many shapes, on the middle one of
    those that are measured (the lower of two)."""
    measured = measured_shapes(task.shapes)
    instance = measured[(len(measured) - 1) // 2][0] if measured else ()
    return Trial(task.key, default, instance)


class DefaultTurns:
    """Trials of default schedules that are still to be made.

    Args:
        trials: one of a task at most.
    """

    def __init__(self, trials: Iterable[Trial]) -> None:
        self._left = {trial.task_key: trial for trial in trials}

    def is_due(self, task_key: str, begun: int, *, is_open: bool) -> bool:
        """Whether it is the turn of a task's default schedule.

        Args:
            begun: trials of the task that were begun, in earlier sessions too.
            is_open: whether its search may propose others.
        """
        return task_key in self._left and (begun >= _BEFORE or not is_open)

    def take(self, task_key: str) -> Trial:
        """The trial, which is made now."""
        return self._left.pop(task_key)
