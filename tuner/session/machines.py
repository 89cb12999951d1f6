"""The machines of a session, behind its seams, and why they have no job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tuner.cost_models.learner import Learner
from tuner.measure import Measurer, SpacePool
from tuner.utilisation import BUILDER, RUNNER, SPACE, Idle, Utilisation
from tuner.view.phase import Phase


@dataclass(frozen=True, slots=True)
class Machines:
    """The workers of a session, behind its seams.

    Attributes:
        utilisation: the time of these workers by its use; None where they do not report it.
        adapt: sizes `measurer` and `space_pool` to the cluster and to the work that is left, at the
            start of each turn of the loop. Machines of a fixed size have nothing to adapt.
        waits: why no trial can be measured yet; empty once one can. The session's time begins then;
            at once where it is None.
    """

    measurer: Measurer
    space_pool: SpacePool
    learner: Learner
    utilisation: Utilisation | None = None
    adapt: Callable[[], None] = lambda: None
    waits: Callable[[], str] | None = None


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
