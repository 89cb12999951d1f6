"""The life of a pool's worker, as a table, and the lease it may hold."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, TypeVar

Job = TypeVar("Job")


class WorkerState(Enum):
    """Where a worker is in its life."""

    STARTING = "starting"
    IDLE = "idle"
    BUSY = "busy"
    GONE = "gone"


class WorkerEvent(Enum):
    """What can happen to a worker."""

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
    """What is known of a worker.

    Attributes:
        since_s: when it came into its state.
        heard_s: when it was last heard of.
        lease: that it holds.
        leaving: its machine will be gone before long.
        has: what it has made of what jobs need.
        failed_at: what of it it could not make.
        frozen_s: what its machine spent frozen so far; None as long as nobody said.
        frozen_before_s: the same, when its lease began.
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
        """Of its lease, what its machine spent frozen, as far as is known."""
        if self.frozen_s is None or self.frozen_before_s is None:
            return 0.0
        return max(0.0, self.frozen_s - self.frozen_before_s)


@dataclass(frozen=True, slots=True)
class Lease(Generic[Job]):
    """A job in a worker's hands.

    Attributes:
        deadline_s: time that the worker's machine is frozen comes on top.
        prepares: the worker only makes what the job needs.
    """

    job: Job
    attempt: int
    worker: str
    deadline_s: float
    prepares: bool = False
