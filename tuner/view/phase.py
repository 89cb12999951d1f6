"""The phases of a session, and why workers have no job in each."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from tuner.utilisation import BUILDER, RUNNER, SPACE, Idle


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


def idle_reasons(
    phase: Phase, *, in_flight: int, free: int, budget_left: int
) -> Mapping[str, Idle]:
    """The reasons why slots without a job have none, by kind.

    Args:
        phase: of the session.
        in_flight: trials submitted and not answered.
        free: trials that could still be submitted after the search has given all it has.
        budget_left: trials that may still be submitted.
    """
    kinds = (RUNNER, BUILDER, SPACE)
    if phase is Phase.FINALISTS:
        reasons = dict.fromkeys(kinds, Idle.FINALISTS)
    elif phase in (Phase.ENDING, Phase.DONE) or budget_left <= 0:
        reasons = dict.fromkeys(kinds, Idle.DRAINING)
    else:
        return {
            RUNNER: Idle.NO_BUILDS if in_flight else Idle.NO_CANDIDATES,
            BUILDER: Idle.NO_CANDIDATES if free > 0 else Idle.NOT_NEEDED,
            SPACE: Idle.NOT_NEEDED,
        }
    if in_flight and phase is not Phase.DONE:
        reasons[RUNNER] = Idle.NO_BUILDS
    return reasons
