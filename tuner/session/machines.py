"""What works for a session."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tuner.cost_models.learner import Learner
from tuner.measure import Measurer, SpacePool
from tuner.utilisation import Utilisation


@dataclass(frozen=True, slots=True)
class Machines:
    """What works for a session.

    Attributes:
        utilisation: what `measurer` and `space_pool` tell of their workers; None tells nothing.
        adapt: sizes the two to the cluster, and to what is left to do; each turn of a loop begins
            with it. Machines that stay as they are have nothing to adapt.
    """

    measurer: Measurer
    space_pool: SpacePool
    learner: Learner
    utilisation: Utilisation | None = None
    adapt: Callable[[], None] = lambda: None
