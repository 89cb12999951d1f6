"""What a run's store is told beside its records: values that `RecordStore.put` keeps, and those
that `RecordStore.get` gives back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tuner.storage.history import History
from tuner.task import Task
from tuner.utilisation import SlotSeconds


@dataclass(frozen=True, slots=True)
class Tasks:
    """Tasks to tune; a known task is updated and keeps its place."""

    tasks: Sequence[Task]


@dataclass(frozen=True, slots=True)
class Defaults:
    """Key of the default candidate by task key, for the tasks that have one; all are known."""

    by_task: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Sizes:
    """The number of points that each space has, by task key and name of the space.

    It is known again from the next answer of a space.
    """

    by_task: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class TrackingEntries:
    """What MLflow is told beside the records, a text each; see `tuner.tracking.entries`.

    They keep their order, and those of one machine their place after the records before them.
    """

    texts: Sequence[str]


@dataclass(frozen=True, slots=True)
class SessionBegun:
    """A session began: its number, which counts up from 1, and the seconds since the epoch."""

    session: int
    now_s: float


@dataclass(frozen=True, slots=True)
class SessionAlive:
    """A session lives; how its workers' time was used, None: as before."""

    session: int
    now_s: float
    utilisation: SlotSeconds | None = None


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """A session ended, and why."""

    session: int
    now_s: float
    reason: str


Fact = (
    Tasks
    | Defaults
    | Sizes
    | History
    | TrackingEntries
    | SessionBegun
    | SessionAlive
    | SessionEnded
)
"""What `RecordStore.put` keeps."""
