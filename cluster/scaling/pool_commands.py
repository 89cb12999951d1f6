"""The commands of a pool to the code that carries them out."""

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
    """Command: stop this worker, even if it is busy.

    Attributes:
        reason: what is wrong with it; empty where it is merely not needed any more.
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
    """Command: have a worker make a job's need before it gets the job; the answer must name the
    lease."""

    lease: int
    worker: str
    job: Job


@dataclass(frozen=True, slots=True)
class GiveUp(Generic[Job]):
    """Command: tell the submitter of a job that it is given up.

    Attributes:
        unprepared: no worker can make the job's need; else the job was lost too often.
    """

    job: Job
    attempts: int
    reason: str
    unprepared: bool = False


Command = StartWorker | KillWorker | Assign[Job] | Prepare[Job] | GiveUp[Job]
