"""The accuracy with which analytic estimates order candidates before they are timed. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from tuner.measure import Evaluated
from tuner.task import Instance, Task

_KEPT = 64
"""A new candidate is compared with at most this many of its task: the latest that were timed."""


class EstimateQuality:
    """Compares estimates with measured times, pair by pair within one task and one of its shapes.

    Args:
        tasks: the tasks with symbolic dimensions; their shapes are looked up here.
    """

    def __init__(self, tasks: Sequence[Task] = ()) -> None:
        self._places = {
            t.key: {instance: place for place, (instance, _) in enumerate(t.shapes)} for t in tasks
        }
        self._seen: dict[str, deque[tuple[float, float]]] = {}
        self._right = 0.0
        self._pairs = 0

    def judge(self, answer: Evaluated, instance: Instance, latency_s: float) -> None:
        """Take in the measured time of an answer's candidate; `instance` is empty if static."""
        estimate_s, task_key = self.estimate_s(answer, instance), answer.draft.task_key
        if estimate_s is not None:
            self.add(f"{task_key} {instance}" if instance else task_key, estimate_s, latency_s)

    def estimate_s(self, answer: Evaluated, instance: Instance) -> float | None:
        """The analytic latency of an answer's candidate on one shape; None where there is none."""
        if not instance:
            return answer.estimate_s
        place = self._places[answer.draft.task_key].get(instance)
        told = answer.on_shapes
        return told.costs_s[place] if told and place is not None else None

    def add(self, task_key: str, estimate_s: float, latency_s: float) -> None:
        """Take in one candidate that was estimated and timed."""
        seen = self._seen.setdefault(task_key, deque(maxlen=_KEPT))
        for other_estimate_s, other_latency_s in seen:
            if latency_s == other_latency_s:
                continue
            self._pairs += 1
            if estimate_s == other_estimate_s:
                self._right += 0.5
            elif (estimate_s < other_estimate_s) == (latency_s < other_latency_s):
                self._right += 1.0
        seen.append((estimate_s, latency_s))

    @property
    def accuracy(self) -> float | None:
        """Share of pairs that the estimates order correctly, ties as half; None before any pair."""
        return self._right / self._pairs if self._pairs else None
