"""The budget of a session, and how it ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Ended = Literal["trials", "time", "signal", "done"]


@dataclass(frozen=True, slots=True)
class Limits:
    """The budget of a session.

    Attributes:
        trials: most trials of the run, earlier sessions included.
        deadline_s: end of the session on its clock, finalists included.
        finalists_s: the most of that time for re-timing finalists.
    """

    trials: int
    deadline_s: float
    finalists_s: float
