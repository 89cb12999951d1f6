"""The latency of a model's kernels before and after tuning: one definition for all that show it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModelTimes:
    """Latencies of a model's kernels, each as often as it runs, over tasks where both are known.

    Attributes:
        default_s: with default schedules.
        best_s: with the best; the default stays where nothing is faster.
        tasks: the number of tasks where both are known.
    """

    default_s: float
    best_s: float
    tasks: int

    @property
    def gain(self) -> float | None:
        """Untuned over tuned time; None where they are not known."""
        return self.default_s / self.best_s if self.best_s else None


def model_times(tasks: Iterable[tuple[float, float | None, float | None]]) -> ModelTimes:
    """The latencies of a model.

    Args:
        tasks: of each its weight, the latency of its default schedule and its best, in seconds;
            None where unknown.
    """
    known = [(weight, d, min(b, d)) for weight, d, b in tasks if d is not None and b is not None]
    return ModelTimes(
        default_s=sum(weight * default_s for weight, default_s, _ in known),
        best_s=sum(weight * best_s for weight, _, best_s in known),
        tasks=len(known),
    )
