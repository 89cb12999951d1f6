"""How busy slots were counts only the time in which there was enough to do."""

from __future__ import annotations

from benchmarks.fleet.slots import with_backlog
from tuner.record import Status
from tuner.view.phase import Phase
from tuner.view.progress import Snapshot
from tuner.view.task_view import TaskView


def snapshot(
    trials: int, runner: dict[str, float], builder: dict[str, float] | None = None
) -> Snapshot:
    used = {"runner": runner, "builder": builder or {"busy": 1.0}}
    task = TaskView("t", statuses={Status.OK: trials})
    return Snapshot(phase=Phase.SEARCH, tasks=(task,), utilisation=used)


def test_the_beginning_and_the_end_of_a_run_are_left_out() -> None:
    run = [
        snapshot(0, {"starting": 9.0}),
        snapshot(4, {"starting": 9.0, "no_builds": 7.0, "busy": 2.0}),
        snapshot(50, {"starting": 9.0, "no_builds": 8.0, "busy": 20.0}),
        snapshot(90, {"starting": 9.0, "no_builds": 8.0, "busy": 29.0, "waiting": 0.0}),
        snapshot(99, {"starting": 9.0, "no_builds": 50.0, "busy": 30.0}, {"draining": 5.0}),
    ]
    found = with_backlog(run, slots=4)
    assert found["busy"] == 27 / 28
    assert found["no_builds"] == 1 / 28


def test_a_run_without_a_backlog_was_not_busy_with_one() -> None:
    assert with_backlog([snapshot(9, {"busy": 1.0})], slots=4) == {}
