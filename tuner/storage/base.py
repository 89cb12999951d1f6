"""The record store: all that a run has learned, in the order it learned it.

It holds everything that a run needs to go on after a restart: its tasks, their default candidates,
one record for each trial, the features of the candidates, and the time it has run. The search and
the scheduler rebuild themselves by reading it.

`tuner.storage.sqlite_store` keeps it on disk, or in memory for tests and replay,
`tuner.storage.segments.store` on a shared path or object storage.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import numpy as np

from tuner.arrays import Features
from tuner.record import Record, Status
from tuner.storage.facts import Defaults, Fact, SessionBegun, Sizes, TrackingEntries
from tuner.storage.history import History
from tuner.task import Task
from tuner.utilisation import SlotSeconds


@dataclass(frozen=True, slots=True)
class SessionSpan:
    """One stretch of work on a run, from a start (or a restart) to its end.

    Attributes:
        number: counts up from 1 within a run.
        started_s: seconds since the epoch.
        heartbeat_s: time of its last sign of life.
        ended_s: time of its orderly end; None while it runs, and for ever if it was killed.
        reason: why it ended; empty until then.
        utilisation: seconds of its workers by use, as of the last heartbeat that told them.
    """

    number: int
    started_s: float
    heartbeat_s: float
    ended_s: float | None = None
    reason: str = ""
    utilisation: SlotSeconds = field(default_factory=dict)

    @property
    def elapsed_s(self) -> float:
        """Seconds that the session is known to have run; never negative, whatever the clock did."""
        until_s = self.heartbeat_s if self.ended_s is None else self.ended_s
        return max(0.0, until_s - self.started_s)


def elapsed_s(sessions: Iterable[SessionSpan]) -> float:
    """Seconds of work over all sessions; a killed one counts to its last heartbeat."""
    return math.fsum(span.elapsed_s for span in sessions)


def work_until_s(sessions: Sequence[SessionSpan], time_s: float) -> float:
    """Seconds of work on a run up to a moment; time between its sessions does not count.

    The last session may be alive: a record of it can be younger than its heartbeat.
    """
    total_s = 0.0
    for number, span in enumerate(sessions, start=1):
        lives = number == len(sessions) and span.ended_s is None
        most_s = math.inf if lives else span.elapsed_s
        total_s += min(most_s, max(0.0, time_s - span.started_s))
    return total_s


@dataclass(frozen=True, slots=True)
class Tally:
    """Trials of the search that are alike: of one task and space, with one toolchain and end.

    Attributes:
        number: of these trials.
        timed: those of them that have a latency.
        best_s: the lowest latency; None without any.
        last: place of the last of them that has one, in the order of the store; 0 without any.
    """

    task_key: str
    space: str
    toolchain: str
    status: Status
    number: int
    timed: int
    best_s: float | None
    last: int


Kept = TypeVar("Kept", Defaults, Sizes, History, TrackingEntries)
"""Facts that a store gives back whole."""


class RecordStore(Protocol):
    """Keeps a run. One process writes, any number may read.

    A method's input is durable when the method returns, unless a store's own documentation says
    otherwise (as `tuner.storage.segments.store`). Trouble with the disk is a `TunerError`.
    """

    def append_many(self, items: Sequence[tuple[Record, Features | None]]) -> list[bool]:
        """Store records, in order, and the features of their candidates where given.

        A trial has one record: where there is one with its trial's key, the answer for it is False
        and nothing changes. All become durable at once or, on an error, none does.
        """

    def scan(
        self,
        task_key: str | None = None,
        *,
        candidate_key: str | None = None,
        min_rung: int = 0,
        fastest: int | None = None,
    ) -> Iterator[Record]:
        """The records stored at the time of the call, in the order they were appended.

        Args:
            task_key: only records of this task.
            candidate_key: only records of this candidate.
            min_rung: only records of this rung and up.
            fastest: only so many, the fastest of the search (rung 0, with a valid time), fastest
                first; equally fast ones in the order they were appended. Takes no longer in a long
                run, for a task.
        """

    def tallies(self) -> list[Tally]:
        """All trials of the search (rung 0), those alike counted: see `tuner.storage.tallies`."""

    def features(self, task_key: str) -> dict[str, Features]:
        """Feature vectors of a task's candidates by candidate key: the first stored for each."""

    def put(self, *facts: Fact) -> None:
        """Keep facts, in order; all become durable at once or, on an error, none does.

        A session that has begun or ended stays as it is, and so does an entry that is there. Sizes
        of unknown tasks are left out. Sizes, histories and entries alone may be lost with their
        process, unless `flush` follows.

        Raises:
            ValueError: a default for a task that is not in the store; nothing changes.
        """

    def get(self, kind: type[Kept]) -> Kept:
        """All that was kept of a kind of fact."""

    def tasks(self) -> tuple[Task, ...]:
        """All tasks, in the order they were first put."""

    def sessions(self) -> tuple[SessionSpan, ...]:
        """All sessions, oldest first."""

    def flush(self) -> None:
        """Wait until all input so far is durable. Raises TunerError if it cannot be made so."""

    def close(self) -> None:
        """Release the file. Closing twice is allowed; any other call afterwards is not."""


def begin_session(store: RecordStore, now_s: float) -> int:
    """Note that a session begins, at `now_s` seconds since the epoch; return its number."""
    number = len(store.sessions()) + 1
    store.put(SessionBegun(number, now_s))
    return number


def as_vector(features: Features) -> Features:
    """The features, copied into a float32 vector.

    Raises:
        ValueError: the features are not a vector.
    """
    vector = np.array(features, dtype=np.float32)
    if vector.ndim != 1:
        raise ValueError(f"features of a candidate are a vector, not {vector.ndim}-dimensional")
    return vector
