"""The seam between a run and whoever takes its entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tuner.tracking.spool import Entry


class SinkError(Exception):
    """A push did not go through.

    SinkError
      Unavailable      not now: nobody answers, too slow, no space, not allowed. Try again.
      Refused          this entry will never be taken. Leave it out.
      Gone             the runs were deleted over there. Begin anew.
    """


class Unavailable(SinkError):
    """Not now; later may work."""


class Refused(SinkError):
    """The content is bad; later will not work either."""


class Gone(SinkError):
    """What the ids name is no longer there."""


class Sink(Protocol):
    """Where entries go. Each call may raise a `SinkError`, and may be repeated."""

    def push(self, entries: Sequence[Entry]) -> None:
        """Take entries, in order."""

    def upload(self, entries: Sequence[Entry]) -> None:
        """Take the files that these entries name."""

    def knows(self, task: str) -> bool:
        """Whether a task was announced to it; the run itself under an empty key."""

    def set_timeout(self, timeout_s: int) -> None:
        """How patient to be with each request."""

    def forget(self) -> None:
        """What was pushed is gone over there; be ready to take it again from the start."""

    def abandon(self, time_s: float) -> None:
        """End a run whose session vanished."""
