"""The life of a pool's worker, as a table, and the lease it may hold."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, TypeVar

Job = TypeVar("Job")


class WorkerState(Enum):
    """The state of a worker."""

    STARTING = "starting"
    IDLE = "idle"
    BUSY = "busy"
    GONE = "gone"


class WorkerEvent(Enum):
    """An event in the life of a worker."""

    READY = "ready"
    GIVEN = "given"
    ANSWERED = "answered"
    LOST = "lost"


TRANSITIONS: dict[tuple[WorkerState, WorkerEvent], WorkerState] = {
    (WorkerState.STARTING, WorkerEvent.READY): WorkerState.IDLE,
    (WorkerState.STARTING, WorkerEvent.LOST): WorkerState.GONE,
    (WorkerState.IDLE, WorkerEvent.GIVEN): WorkerState.BUSY,
    (WorkerState.IDLE, WorkerEvent.LOST): WorkerState.GONE,
    (WorkerState.BUSY, WorkerEvent.ANSWERED): WorkerState.IDLE,
    (WorkerState.BUSY, WorkerEvent.LOST): WorkerState.GONE,
}


@dataclass(slots=True)
class Worker:
    """A worker as its pool knows it.

    Attributes:
        since_s: time at which it entered its state.
        heard_s: time of its last sign of life.
        lease: number of the lease that it holds; None while it holds none.
        leaving: whether its machine will soon be gone.
        has: needs that it has made.
        failed_at: needs that it could not make.
        frozen_s: time that its machine spent frozen so far; None until it was reported.
        frozen_before_s: `frozen_s` at the beginning of its lease.
    """

    state: WorkerState = WorkerState.STARTING
    since_s: float = 0.0
    heard_s: float = 0.0
    lease: int | None = None
    leaving: bool = False
    has: set[Hashable] = field(default_factory=set)
    failed_at: set[Hashable] = field(default_factory=set)
    frozen_s: float | None = None
    frozen_before_s: float | None = None

    @property
    def excused_s(self) -> float:
        """The time since its lease began that its machine spent frozen, as far as is known."""
        if self.frozen_s is None or self.frozen_before_s is None:
            return 0.0
        return max(0.0, self.frozen_s - self.frozen_before_s)


@dataclass(frozen=True, slots=True)
class Lease(Generic[Job]):
    """A job held by a worker.

    Attributes:
        deadline_s: end of the lease; time that the worker's machine spends frozen is added.
        prepares: whether the worker only makes the job's need.
    """

    job: Job
    attempt: int
    worker: str
    deadline_s: float
    prepares: bool = False
