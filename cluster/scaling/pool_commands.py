"""What a pool asks of whoever carries its decisions out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

Job = TypeVar("Job")


@dataclass(frozen=True, slots=True)
class StartWorker:
    """Command: start a worker under this name."""

    worker: str


@dataclass(frozen=True, slots=True)
class KillWorker:
    """Command: stop this worker, whatever it does.

    Attributes:
        reason: what is wrong with it; empty where it is only not needed any more.
    """

    worker: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Assign(Generic[Job]):
    """Command: give a job to a worker; its answer must name the lease."""

    lease: int
    worker: str
    job: Job
    attempt: int


@dataclass(frozen=True, slots=True)
class Prepare(Generic[Job]):
    """Command: have a worker make what a job needs, before it gets it; the answer must name the
    lease."""

    lease: int
    worker: str
    job: Job


@dataclass(frozen=True, slots=True)
class GiveUp(Generic[Job]):
    """Command: tell whoever submitted the job that nothing comes of it.

    Attributes:
        unprepared: nobody can make what it needs; else it was lost too often itself.
    """

    job: Job
    attempts: int
    reason: str
    unprepared: bool = False


Command = StartWorker | KillWorker | Assign[Job] | Prepare[Job] | GiveUp[Job]
