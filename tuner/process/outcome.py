"""Outcomes of a call to a child process: failures are values."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class Returned:
    """The call, or the factory, returned."""

    value: Any


@dataclass(frozen=True, slots=True)
class Raised:
    """The call raised; the child goes on.

    Attributes:
        kind: name of the exception's class.
        text: its message.
        traceback: the child's, for logs.
    """

    kind: str
    text: str
    traceback: str = ""

    @property
    def fault(self) -> str:
        """What a user's object did wrong (`tuner.user_code.faults`); empty if it was none."""
        return self.text if self.kind == "LayerFailed" else ""

    def __str__(self) -> str:
        lines = self.text.strip().splitlines()
        return f"{self.kind}: {lines[0][:300]}" if lines else self.kind


@dataclass(frozen=True, slots=True)
class Died:
    """The child is gone: killed by a signal, or it left with an exit code."""

    signal: int | None
    exit_code: int | None

    @property
    def from_outside(self) -> bool:
        """Whether the child was killed from outside: a program's own faults raise other signals."""
        return self.signal in (signal.SIGKILL, signal.SIGTERM)

    def __str__(self) -> str:
        if self.signal is None:
            return f"exited with code {self.exit_code}"
        try:
            return f"killed by {signal.Signals(self.signal).name}"
        except ValueError:
            return f"killed by signal {self.signal}"


@dataclass(frozen=True, slots=True)
class DeadlinePassed:
    """There was no answer in time, without time that the child spent frozen."""

    after_s: float

    def __str__(self) -> str:
        return f"no answer within {self.after_s:g} s"


@dataclass(frozen=True, slots=True)
class MemoryExceeded:
    """The child outgrew its memory limit and was killed."""

    rss_bytes: int
    limit_bytes: int

    def __str__(self) -> str:
        return f"memory limit: {self.rss_bytes >> 20} MB of {self.limit_bytes >> 20} MB"


Outcome: TypeAlias = Returned | Raised | Died | DeadlinePassed | MemoryExceeded
