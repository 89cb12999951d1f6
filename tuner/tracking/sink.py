"""The seam between a run and the server that takes its entries."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from tuner.tracking.entries import Entry


class SinkError(Exception):
    """A push has failed.

    SinkError
      Unavailable      not now: no answer, too slow, no space, not allowed. Try again.
      Refused          this entry will never be taken. Leave it out.
      Gone             the runs were deleted on the server. Start over.
    """


class Unavailable(SinkError):
    """The push failed now, but may work later."""


class Refused(SinkError):
    """The content is bad; a later push will fail too."""


class Gone(SinkError):
    """The runs that the ids name were deleted on the server."""


class Sink(Protocol):
    """Takes entries. Each call may raise a `SinkError`, and may be repeated."""

    def push(self, entries: Sequence[Entry]) -> None:
        """Take entries, in order."""

    def upload(self, name: str, path: Path) -> None:
        """Take a file, in place of an older one of that name."""

    def knows(self, task: str) -> bool:
        """Whether a task was announced to the sink; an empty key is the run itself."""

    def set_timeout(self, timeout_s: int) -> None:
        """Set the time that each request may take."""

    def forget(self) -> None:
        """Forget what was pushed, which is gone on the server; expect it again from the start."""

    def abandon(self, time_s: float) -> None:
        """End a run whose session vanished."""
