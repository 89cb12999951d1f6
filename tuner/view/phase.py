"""The phases of a session."""

from __future__ import annotations

from enum import StrEnum


class Phase(StrEnum):
    """The phases of a session, in order."""

    STARTING = "starting"
    """Nothing is measured yet."""
    SEARCH = "search"
    ENDING = "ending"
    """Nothing new is begun; trials in flight come in."""
    FINALISTS = "finalists"
    """The best of each task are timed again."""
    DONE = "done"

    @property
    def searches(self) -> bool:
        """Whether trials of the budget may still be begun."""
        return self in (Phase.STARTING, Phase.SEARCH)

    @property
    def measures(self) -> bool:
        """Whether what comes in may be measured once more."""
        return self in (Phase.SEARCH, Phase.FINALISTS)

    @classmethod
    def least(cls, phases: list[Phase]) -> Phase:
        """The phase that is furthest behind."""
        return min(phases, key=list(cls).index)
