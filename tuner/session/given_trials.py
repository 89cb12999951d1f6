"""The trials of a default schedule and of libraries, and when they have their turn."""

from __future__ import annotations

from tuner.candidate import Candidate
from tuner.dynamic.shapes import measured_shapes
from tuner.record import Trial
from tuner.task import Task

BEFORE_DEFAULT = 2
"""Trials of a task before that of its default schedule: an unscheduled program is slow to build and
to run, and where time is short every task should have a good kernel first."""


def given_trial(task: Task, candidate: Candidate) -> Trial:
    """The trial of a candidate that no search makes; where there are many shapes, on the middle one
    of those that are measured (the lower of two)."""
    measured = measured_shapes(task.shapes)
    instance = measured[(len(measured) - 1) // 2][0] if measured else ()
    return Trial(task.key, candidate, instance)
