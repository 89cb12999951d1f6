"""Why workers have no job."""

from __future__ import annotations

import pytest

from tuner.session.machines import idle_reasons
from tuner.utilisation import BUILDER, RUNNER, SPACE, Idle
from tuner.view.phase import Phase


@pytest.mark.parametrize(
    ("phase", "in_flight", "free", "budget_left", "runner", "builder"),
    [
        (Phase.SEARCH, 0, 3, 9, Idle.NO_CANDIDATES, Idle.NO_CANDIDATES),
        (Phase.SEARCH, 2, 1, 9, Idle.NO_BUILDS, Idle.NO_CANDIDATES),
        (Phase.SEARCH, 5, 0, 9, Idle.NO_BUILDS, Idle.NOT_NEEDED),
        (Phase.SEARCH, 2, 3, 0, Idle.NO_BUILDS, Idle.DRAINING),
        (Phase.ENDING, 0, 3, 9, Idle.DRAINING, Idle.DRAINING),
        (Phase.FINALISTS, 1, 3, 9, Idle.NO_BUILDS, Idle.FINALISTS),
        (Phase.FINALISTS, 0, 3, 9, Idle.FINALISTS, Idle.FINALISTS),
    ],
)
def test_why_slots_are_idle(
    phase: Phase, in_flight: int, free: int, budget_left: int, runner: Idle, builder: Idle
) -> None:
    reasons = idle_reasons(phase, in_flight=in_flight, free=free, budget_left=budget_left)
    assert (reasons[RUNNER], reasons[BUILDER]) == (runner, builder)
    assert set(reasons) == {RUNNER, BUILDER, SPACE}
