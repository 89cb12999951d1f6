"""The last lines of a run, word for word, for each way that it can end."""

from __future__ import annotations

from dataclasses import replace

from cluster.app.console.closing_text import closing_lines
from tuner.record import Status
from tuner.view.outcome import Step
from tuner.view.phase import Phase
from tuner.view.progress import Snapshot
from tuner.view.run_view import SpaceView
from tuner.view.task_view import TaskView


def task(
    name: str,
    weight: float,
    default_s: float | None,
    best_s: float | None,
    history: tuple[float | None, ...],
) -> TaskView:
    counts = {Status.OK: len(history)}
    return TaskView(name, name, weight, 0.0, counts, default_s, best_s, history)


CONV = task("conv", 2.0, 0.010, 0.004, (0.008,) * 30 + (0.004,) * 10)
DENSE = task("dense", 1.0, 0.010, 0.002, (0.002,) * 40)
SNAPSHOT = Snapshot(
    phase=Phase.DONE,
    elapsed_s=1200.0,
    time_budget_s=1200.0,
    trials_budget=960,
    trials_per_s=0.1,
    tasks=(CONV, DENSE),
)
STEPS = (
    Step("tuner bench runs/x", "whole-model latency"),
    Step("tuner export runs/x --lib model.so", "the compiled model"),
)


def text(*tasks: TaskView, **snapshot: object) -> str:
    seen = replace(SNAPSHOT, tasks=tasks, **snapshot)  # type: ignore[arg-type]
    return "\n".join(closing_lines(seen, "time", STEPS, "mlflow ui")) + "\n"


NEXT = """\
  next  tuner bench runs/x                   whole-model latency
        tuner export runs/x --lib model.so   the compiled model
        mlflow ui
"""


def test_a_run_that_won_and_could_win_more() -> None:
    assert text(CONV, DENSE) == (
        """\
The time budget is spent: 80 trials, 20:00 of this session.
  won   kernels 30.0 ms → 10.0 ms, 3.00x as fast, most of it by conv (60%), dense (40%)
  left  conv 80% of the time, 50.0% faster in its last 10; \
dense 20%, flat over its last 10 trials
"""
        + NEXT
    )


def test_a_space_that_gave_nothing_and_tasks_that_cannot_be_compared_are_named() -> None:
    slow = task("slow", 1.0, None, 0.001, (0.001,) * 3)
    spaces = tuple(
        SpaceView(name, None, failed, failed, failed, (), None)
        for name, failed in (("declared:mine", 12), ("other", 1))
    )
    assert text(CONV, slow, spaces=spaces) == (
        """\
The time budget is spent: 43 trials, 20:00 of this session.
  won   kernels 20.0 ms → 8.00 ms, 2.50x as fast, by conv (100%)
  left  conv 89% of the time, 50.0% faster in its last 10; slow 11%, 3 trials
        not compared, without a time or without their default's: slow
        space declared:mine: all 12 trials failed, and so did those of 1 more
"""
        + NEXT
    )


def test_the_page_that_shows_the_run_is_named_where_it_is_here() -> None:
    lines = closing_lines(SNAPSHOT, "time", STEPS, "mlflow ui", "runs/x/r.html")
    assert lines[3] == "  page  runs/x/r.html"


def test_a_run_that_won_nothing_says_so() -> None:
    same = task("conv", 1.0, 0.004, 0.004, (0.004,) * 40)
    assert text(same).splitlines()[1:3] == [
        "  won   nothing: no schedule was faster than the default's 4.00 ms; conv had 40 trials",
        "  left  conv 100% of the time, flat over its last 10 trials",
    ]


def test_a_run_whose_default_has_no_time_does_not_guess() -> None:
    slow = task("slow", 1.0, None, 0.001, (0.001,) * 8)
    assert text(slow).splitlines()[1:3] == [
        "  won   not known: the default schedule of slow has no time",
        "  left  slow 100% of the time, flat over its last 2 trials",
    ]


def test_a_run_without_results_says_why() -> None:
    assert text(elapsed_s=3.0).splitlines()[:2] == [
        "The time budget is spent: 0 trials, 0:03 of this session.",
        "  won   nothing: nothing was measured",
    ]
    failed = replace(task("conv", 1.0, None, None, ()), statuses={Status.WRONG: 5})
    assert text(failed).splitlines()[1] == "  won   nothing: all 5 trials failed"
    waiting = text(message="no machine has such a device")
    assert waiting.splitlines()[1] == "  won   nothing: no machine has such a device"


def test_one_task_alone_need_not_be_named_as_the_one_that_gained() -> None:
    alone = text(DENSE).splitlines()[1]
    assert alone == "  won   kernels 10.0 ms → 2.00 ms, 5.00x as fast"
