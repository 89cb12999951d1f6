"""The allocator: where the next trial is expected to save most, and nobody starved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tuner.record import Status
from tuner.session.allocator import Turns, priorities
from tuner.view.task_view import TaskView


def task(
    key: str,
    *,
    weight: float = 1.0,
    trials: int = 50,
    best_s: float | None = 1.0,
    history: Sequence[float | None] = (),
    is_open: bool = True,
) -> TaskView:
    counts = {Status.OK: trials}
    history = history or [best_s] * 50
    return TaskView(
        key, weight=weight, statuses=counts, best_s=best_s, history=history, open=is_open
    )


def order(*tasks: TaskView, floor: float = 0.01) -> list[str]:
    return priorities(tasks, first_trials=8, gain_floor=floor)


def test_every_task_gets_its_first_trials_before_any_gets_more() -> None:
    assert order(task("big", weight=100.0), task("new", trials=7, best_s=None))[0] == "new"


def test_of_tasks_with_as_many_first_trials_the_largest_share_comes_first() -> None:
    assert order(task("small", trials=2, best_s=0.1), task("large", trials=2))[0] == "large"


def test_a_task_below_the_floor_gets_a_few_trials_after_the_first_of_the_others() -> None:
    tiny = task("tiny", best_s=1e-4, trials=1)
    assert order(tiny, task("new", trials=7), floor=0.01) == ["new", "tiny"]
    assert order(tiny, task("old", trials=50), floor=0.01) == ["tiny", "old"]


def test_the_heavier_of_equal_tasks_comes_first() -> None:
    assert order(task("light"), task("heavy", weight=3.0)) == ["heavy", "light"]


def test_a_task_has_less_to_gain_the_more_trials_it_had() -> None:
    """A quarter as much with twice as many."""
    assert order(task("much tried", weight=3.9, trials=100), task("little tried"))[0] == (
        "little tried"
    )
    assert order(task("much tried", weight=4.1, trials=100), task("little tried"))[0] == (
        "much tried"
    )


def test_a_task_below_the_floor_of_gain_waits_for_all_others() -> None:
    tiny = task("tiny", best_s=1e-4, trials=8)
    assert order(tiny, task("big", trials=5000), floor=0.01) == ["big", "tiny"]


def test_a_task_without_a_valid_schedule_keeps_getting_trials() -> None:
    broken = task("broken", best_s=None, trials=9, history=[None] * 9)
    assert order(task("fine", trials=400), broken)[0] == "broken"


def test_an_exhausted_task_gets_nothing() -> None:
    assert order(task("a"), task("b", is_open=False)) == ["a"]


views = st.builds(
    TaskView,
    key=st.uuids().map(str),
    weight=st.floats(0.1, 100),
    flops=st.floats(0, 1e12),
    statuses=st.builds(lambda n: {Status.OK: n}, st.integers(0, 500)),
    best_s=st.none() | st.floats(1e-7, 10),
    history=st.lists(st.none() | st.floats(1e-7, 10), max_size=30),
    open=st.booleans(),
)


@given(st.lists(views, max_size=12, unique_by=lambda v: v.key))
def test_every_open_task_is_somewhere_in_the_order(tasks: list[TaskView]) -> None:
    keys = priorities(tasks, first_trials=8, gain_floor=0.01)
    assert sorted(keys) == sorted(t.key for t in tasks if t.open)


@given(st.lists(views, max_size=6, unique_by=lambda v: v.key), st.lists(st.booleans(), max_size=40))
def test_turns_are_what_the_order_would_be_if_it_were_made_anew_for_each_trial(
    tasks: list[TaskView], proposes: list[bool]
) -> None:
    rules = {"first_trials": 8, "gain_floor": 0.01}
    turns, starved = Turns(tasks, **rules), set[str]()  # type: ignore[arg-type]
    for has_one in proposes:
        anew = [k for k in priorities(tasks, **rules) if k not in starved]  # type: ignore[arg-type]
        assert turns.first == (anew[0] if anew else None)
        if not anew:
            break
        if has_one:
            turns.served()
            tasks = [replace(t, in_flight=t.in_flight + (t.key == anew[0])) for t in tasks]
        else:
            turns.passed()
            starved.add(anew[0])
