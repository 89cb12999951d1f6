"""The model's latencies: one definition for all that show them."""

from __future__ import annotations

import pytest

from tuner.record import Status
from tuner.view.run_view import RunView
from tuner.view.task_view import TaskView

FASTER = TaskView("a", "faster", 1.0, 1e6, {Status.OK: 3, Status.WRONG: 1}, 0.002, 0.001)
UNTIMED = TaskView("b", "default without a time", 1.0, 0.0, {Status.OK: 1}, None, 0.008)
SLOWER = TaskView("c", "set slower than its default", 2.0, 0.0, {Status.LOST: 2}, 0.003, 0.004)
NEW = TaskView("d", "not measured")
RUN = RunView(tasks=(FASTER, UNTIMED, SLOWER, NEW))


def test_the_gain_is_over_tasks_with_both_times_and_no_task_became_slower() -> None:
    assert (RUN.untuned_s, RUN.tuned_s) == (pytest.approx(0.008), pytest.approx(0.007))
    assert RUN.gain == pytest.approx(8 / 7)
    assert RUN.uncompared == (UNTIMED.name, NEW.name)


def test_the_latency_is_over_all_tasks_that_have_one() -> None:
    assert RUN.latency_s == pytest.approx(0.001 + 0.008 + 2 * 0.003)
    assert sum(RUN.shares().values()) == pytest.approx(1.0)
    assert RUN.shares()["b"] == pytest.approx(8 / 15)
    assert RUN.shares(untuned=True) == {"a": 2 / 16, "b": 8 / 16, "c": 6 / 16}
    assert [task.key for task in RUN.by_time()] == ["b", "c", "a", "d"]


def test_trials_are_counted_by_how_they_ended() -> None:
    assert RUN.trials == 7
    assert RUN.statuses == {Status.OK: 4, Status.WRONG: 1, Status.LOST: 2}
    assert RUN.failures == {Status.WRONG: 1, Status.LOST: 2}
    assert (FASTER.trials, FASTER.failed) == (4, 1)


def test_a_run_without_a_time_says_so() -> None:
    nothing = RunView(tasks=(NEW,))
    assert (nothing.untuned_s, nothing.tuned_s, nothing.latency_s) == (None, None, None)
    assert (nothing.gain, nothing.shares()) == (None, {})
