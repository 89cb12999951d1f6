"""The few kernels that a function is made of, and the time of each shape with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tuner.candidate import Candidate
from tuner.dynamic.dispatch_tree import Tree, tree_text
from tuner.task import Instance


@dataclass(frozen=True, slots=True)
class ShapeTimes:
    """The kernel for one shape, and its times.

    Attributes:
        kernel: place in `KernelSet.kernels` of the kernel that the tree picks for the shape.
        latency_s: time of that kernel.
        best_s: time of the best kernel of all that were measured, in the set or not.
        measured: whether `latency_s` was measured; else it is predicted.
        padding: share of the kernel's tiles that lies beyond the shape, be it computed or guarded
            off; None where the kernel's template does not tell.
        guard_s: cost of the padding, see `tuner.search.dynamic.guard_cost`; None where not known.
        copy: copy of the kernel, compiled for this shape alone, that serves the shape in its place;
            see `tuner.search.dynamic.specialization`. `latency_s` is then the copy's.
    """

    instance: Instance
    weight: float
    kernel: int
    latency_s: float
    best_s: float
    measured: bool
    padding: float | None = None
    guard_s: float | None = None
    copy: Candidate | None = None

    def to_json(self) -> dict[str, Any]:
        """The times as plain data, in milliseconds."""
        return {
            "shape": dict(self.instance),
            "weight": self.weight,
            "kernel": self.kernel,
            "latency_ms": self.latency_s * 1e3,
            "best_ms": self.best_s * 1e3,
            "measured": self.measured,
            "padding": self.padding,
            "guard_ms": None if self.guard_s is None else self.guard_s * 1e3,
            "closed": self.copy is not None,
        }


@dataclass(frozen=True, slots=True)
class KernelSet:
    """A few kernels for all shapes of a task.

    Attributes:
        kernels: in the order of the numbers that the tree's leaves hold.
        losses: loss of the best set of one kernel, of two, and so on, beyond the allowed number
            too: latency against that of each shape's best kernel of all, weighted over the shapes.
            The list ends where no finalist is worth adding.
        loss: the tree's.
        error: mean absolute error of predictions for pairs that the search had not measured, as
            a share of the time then measured; None without such pairs. Predictions are made from
            the latest times of the other pairs, the search's scaled to the pace of the finalists'.
        judged: number of pairs that `error` is the mean over.
    """

    kernels: tuple[Candidate, ...]
    tree: Tree
    losses: tuple[float, ...]
    loss: float
    shapes: tuple[ShapeTimes, ...]
    error: float | None
    judged: int

    @property
    def copies(self) -> tuple[tuple[Instance, Candidate], ...]:
        """Kernels compiled for one shape alone, each with its shape."""
        return tuple((s.instance, s.copy) for s in self.shapes if s.copy is not None)

    @property
    def latency_s(self) -> float:
        """Mean latency over the shapes, weighted."""
        total = sum(s.weight for s in self.shapes)
        return sum(s.weight * s.latency_s for s in self.shapes) / total

    def to_json(self) -> dict[str, Any]:
        """The set as plain data, its kernels by their candidates' keys; times in milliseconds."""
        return {
            "kernels": [candidate.key for candidate in self.kernels],
            "tree": tree_text(self.tree),
            "shapes": [shape.to_json() for shape in self.shapes],
            "losses": list(self.losses),
            "loss": self.loss,
            "prediction_error": self.error,
            "predictions_judged": self.judged,
        }
