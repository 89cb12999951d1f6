"""The budget of a session, how it ends, and its time, which begins once a trial can be measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Ended = Literal["trials", "time", "signal", "done", "enough"]


@dataclass(frozen=True, slots=True)
class Limits:
    """The budget of a session.

    Attributes:
        trials: most trials of the run, earlier sessions included.
        deadline_s: end of the session on its clock, finalists included.
        finalists_s: the most of that time for re-timing finalists.
        until: the session ends once the next doubling of the run's trials is predicted to save less
            than this share of the model's time; 0 uses the whole budget.
    """

    trials: int
    deadline_s: float
    finalists_s: float
    until: float = 0.0


class SessionTime:
    """From when until when a session works.

    Args:
        deadline_s: its end on `clock`, if it begins now.
        waits: says why no trial can be measured yet; None where it begins at once.
        on_begin: is called with the deadline when the time begins.
    """

    def __init__(
        self,
        deadline_s: float,
        clock: Callable[[], float],
        waits: Callable[[], str] | None,
        on_begin: Callable[[float], None],
    ) -> None:
        self.started_s, self.deadline_s = clock(), deadline_s
        self.waits_for = ""
        self._clock, self._waits, self._on_begin = clock, waits, on_begin
        self._begun = False

    def look(self) -> None:
        """Begin if a trial can be measured; until then, the deadline moves."""
        if self._begun:
            return
        if self._waits is not None:
            now_s = self._clock()
            self.deadline_s += now_s - self.started_s
            self.started_s = now_s
            self.waits_for = self._waits()
        if not self.waits_for:
            self._begun = True
            self._on_begin(self.deadline_s)

    def is_up(self, before_s: float) -> bool:
        """Whether the deadline is at most so many seconds away."""
        return self._begun and self._clock() >= self.deadline_s - before_s
