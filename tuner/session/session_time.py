"""The time of a session, which begins once a trial can be measured."""

from __future__ import annotations

from collections.abc import Callable


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
