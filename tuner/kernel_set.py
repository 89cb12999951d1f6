"""The few kernels that a function is made of, and what each shape takes with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tuner.candidate import Candidate
from tuner.dispatch_tree import Tree, tree_text
from tuner.task import Instance


@dataclass(frozen=True, slots=True)
class ShapeTimes:
    """One shape.

    Attributes:
        kernel: that the tree takes for it, by its place in `KernelSet.kernels`.
        latency_s: of that kernel; `best_s` of the best kernel of all that were measured, whether
            it may be in the set or not.
        measured: whether the first of these was; else it is predicted.
        padding: share of the kernel's tiles that lies beyond the shape, be it computed or guarded
            off; None where its template knows of none.
        guard_s: what that costs, see `tuner.search.dynamic.guard_cost`; None where it is not known.
        copy: of that kernel, compiled for this shape alone, which serves it in the kernel's place;
            see `tuner.search.dynamic.specialization`. `latency_s` is of it then.
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
        kernels: by the numbers that the tree's leaves hold.
        losses: of the best set of one kernel, two, and so on, of more than there may be as well:
            latency against that of each shape's best kernel of all, weighted over the shapes. It
            ends where none of the finalists is worth adding.
        loss: of the tree.
        error: mean absolute error of predictions for pairs that the search had not measured, as
            a share of what was then measured; None where there were none. They are made from what
            the other pairs took last, the search's times at the pace of the finalists'.
        judged: how many pairs that is the error of.
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
        """Weighted mean over the shapes."""
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
