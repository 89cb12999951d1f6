"""The machines of a session, behind its seams."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tuner.cost_models.learner import Learner
from tuner.measure import Measurer, SpacePool
from tuner.utilisation import Utilisation


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
