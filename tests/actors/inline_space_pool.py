"""A space pool in the calling process: for tests and small jobs."""

from __future__ import annotations

from collections.abc import Sequence

from spaces.design_space.evaluate import Evaluator
from tuner.candidate import Draft
from tuner.measure import Evaluated
from tuner.task import Task


class InlineSpacePool:
    """Evaluates drafts when they are collected, a few at a time."""

    def __init__(self, tasks: Sequence[Task], *, capacity: int = 32) -> None:
        self._evaluator = Evaluator()
        self._evaluator.put_tasks(tasks)
        self._capacity = capacity
        self._waiting: list[Draft] = []

    def free(self) -> int:
        """Number of further drafts that can be taken."""
        return self._capacity - len(self._waiting)

    def submit(self, drafts: Sequence[Draft]) -> None:
        """Take drafts."""
        self._waiting.extend(drafts)

    def collect(self, timeout_s: float) -> list[Evaluated]:
        """Evaluate all waiting drafts, without regard to `timeout_s`."""
        drafts, self._waiting = self._waiting, []
        return self._evaluator.evaluate(drafts)

    def use_model(self, version: int, model: bytes) -> None:
        """Score with this cost model from now on."""
        self._evaluator.use_model(version, model)

    def close(self) -> None:
        """Drop the waiting drafts."""
        self._waiting = []
