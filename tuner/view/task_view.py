"""One task at one moment, for all who look at it: allocators, terminals, pages, trackers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tuner.record import Status


@dataclass(frozen=True, slots=True)
class TaskView:
    """One task of a run at one moment.

    Attributes:
        weight: how often the model runs it.
        flops: floating point operations of one run; 0 where none are counted.
        statuses: number of trials of the search by how they ended.
        default_s: latency of the default schedule; None where unknown.
        best_s: latency of the best schedule, or of the kernel set of a task with symbolic
            dimensions; None where unknown.
        history: best latency after each trial that counts; empty where it was not read.
        candidate: key of the winner; the default's where nothing beat it. Empty where no winner was
            chosen, and for a task with symbolic dimensions, which has a set of kernels.
        space: design space of the winner.
        toolchain: that the best, or the fastest on any shape, was timed with; empty where unknown.
        in_flight: trials that are not answered yet.
        open: whether the search still has something to propose.
    """

    key: str
    name: str = ""
    weight: float = 1.0
    flops: float = 0.0
    statuses: Mapping[Status, int] = field(default_factory=dict)
    default_s: float | None = None
    best_s: float | None = None
    history: Sequence[float | None] = ()
    candidate: str = ""
    space: str = ""
    toolchain: str = ""
    in_flight: int = 0
    open: bool = True

    @property
    def trials(self) -> int:
        """Trials that count against the budget, those in flight included."""
        return self.in_flight + sum(n for s, n in self.statuses.items() if s.spends_budget)

    @property
    def failures(self) -> dict[Status, int]:
        """Number of trials that failed, by kind; only kinds that occurred."""
        return count_failures(self.statuses)

    @property
    def failed(self) -> int:
        """Number of trials whose candidate was of no use."""
        return sum(self.failures.values())

    @property
    def compared(self) -> bool:
        """Whether both latencies are known."""
        return self.default_s is not None and self.best_s is not None

    @property
    def gain(self) -> float | None:
        """Default over best latency; None where either is unknown."""
        return self.default_s / self.best_s if self.default_s and self.best_s else None

    @property
    def gflops(self) -> float | None:
        """1e9 floating point operations per second of the best; None where not counted."""
        return self.flops / self.best_s / 1e9 if self.best_s and self.flops > 0 else None

    @property
    def tuned_s(self) -> float | None:
        """What the model spends in it: the weighted latency of the best, or of the default where
        nothing is faster. None where neither is known."""
        known = [s for s in (self.best_s, self.default_s) if s is not None]
        return self.weight * min(known) if known else None

    @property
    def untuned_s(self) -> float | None:
        """The same of the default schedule, or of the best where the default has no time."""
        known = self.best_s if self.default_s is None else self.default_s
        return None if known is None else self.weight * known


def count_failures(statuses: Mapping[Status, int]) -> dict[Status, int]:
    """The number of trials that failed, by kind, in the order of the kinds."""
    return {status: statuses[status] for status in Status if statuses.get(status) and status.failed}
