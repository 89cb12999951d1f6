"""How well the estimates that come before any measurement order candidates. Pure."""

from __future__ import annotations

from collections import deque

_KEPT = 64
"""Candidates of a task that a new one is compared with: the latest, which the search is at."""


class EstimateQuality:
    """Compares estimates with what was measured, pair by pair within a task."""

    def __init__(self) -> None:
        self._seen: dict[str, deque[tuple[float, float]]] = {}
        self._right = 0.0
        self._pairs = 0

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
        """Share of pairs that the estimates ordered rightly, ties half; None before any pair."""
        return self._right / self._pairs if self._pairs else None
