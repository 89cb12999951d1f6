"""What was won in a run, what is left to win, and what to do next, decided from its view."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tuner.candidate import Candidate, CandidateKind
from tuner.record import Measurement, Record, Status, Trial
from tuner.storage.base import RecordStore
from tuner.storage.facts import Defaults, Tasks
from tuner.storage.sqlite_store import MemoryStore
from tuner.task import Task
from tuner.view.folds import view_search
from tuner.view.outcome import (
    look_back,
    next_steps,
    rank_left,
    rank_won,
    settle,
    still_falls,
)
from tuner.view.phase import Phase
from tuner.view.progress import Snapshot
from tuner.view.run_view import RunView
from tuner.view.task_view import TaskView

ALL = {"tune", "status", "doctor", "bench", "export", "explain", "verify", "best"}


def task(
    name: str,
    weight: float,
    default_s: float | None,
    best_s: float | None,
    history: tuple[float | None, ...] = (),
    candidate: str = "winner",
) -> TaskView:
    counts = {Status.OK: len(history)}
    return TaskView(name, name, weight, 0.0, counts, default_s, best_s, history, candidate)


CONV = task("conv", 2.0, 0.010, 0.004, (0.008,) * 30 + (0.004,) * 10)
DENSE = task("dense", 1.0, 0.010, 0.002, (0.002,) * 40)


def run(*tasks: TaskView) -> RunView:
    return RunView(tasks=tasks)


def test_what_was_won_is_the_models_and_by_task() -> None:
    both = run(CONV, DENSE)
    assert (both.untuned_s, both.tuned_s) == pytest.approx((0.030, 0.010))
    assert both.gain == pytest.approx(3.0)
    assert rank_won(both) == [(CONV, pytest.approx(0.6)), (DENSE, pytest.approx(0.4))]


def test_what_is_left_is_where_the_time_is_now_and_whether_it_still_falls() -> None:
    both = run(DENSE, CONV)
    assert rank_left(both) == [(CONV, pytest.approx(0.8)), (DENSE, pytest.approx(0.2))]
    assert look_back(CONV) == (10, pytest.approx(0.5))
    assert look_back(DENSE) == (10, 0.0)
    assert still_falls(both)


def test_a_history_that_is_flat_in_its_last_quarter_does_not_fall() -> None:
    assert not still_falls(run(task("conv", 1.0, 0.010, 0.004, (0.008, *(0.004,) * 39))))
    few = task("conv", 1.0, 0.010, 0.004, (0.008, *(0.004,) * 6))
    assert still_falls(run(few)), "seven trials say nothing"
    assert look_back(few) == (1, None)


def test_tasks_that_hardly_count_are_not_named() -> None:
    many = run(CONV, *(task(f"t{n}", 1.0, 1e-5, 5e-6) for n in range(20)))
    assert [named.name for named, _ in rank_won(many)] == ["conv"]
    assert [named.name for named, _ in rank_left(many)] == ["conv"]


def test_a_winner_that_is_no_faster_than_its_default_won_nothing() -> None:
    same = run(task("conv", 1.0, 0.004, 0.004), task("set", 1.0, 0.004, 0.005))
    assert rank_won(same) == []
    assert same.gain == pytest.approx(1.0)


def test_tasks_without_a_time_or_without_their_defaults_are_not_compared() -> None:
    some = run(CONV, task("slow", 1.0, None, 0.001), task("broken", 1.0, None, None))
    assert some.gain == pytest.approx(2.5)
    assert some.uncompared == ("slow", "broken")
    assert (run().gain, rank_won(run()), rank_left(run())) == (None, [], [])


def steps(view: RunView, ended: str = "trials", commands: set[str] = ALL) -> list[str]:
    found = next_steps(view, "runs/x", "tuner tune ...", commands, ended)
    return [step.command for step in found]


FLAT = run(DENSE)
FALLING = run(CONV)
NOTHING_WON = run(task("conv", 1.0, 0.004, 0.004, (0.004,) * 40))
FAILED = run(replace(task("conv", 1.0, None, None), statuses={Status.WRONG: 5}))
BENCH, EXPORT = "tuner bench runs/x", "tuner export runs/x --lib model.so"


@pytest.mark.parametrize(
    ("view", "ended", "wanted"),
    [
        (FALLING, "trials", ["tuner tune ...", BENCH, EXPORT]),
        (FALLING, "done", [BENCH, EXPORT, "tuner verify runs/x"]),
        (FLAT, "time", [BENCH, EXPORT, "tuner verify runs/x"]),
        (FLAT, "signal", ["tuner tune ...", BENCH, EXPORT]),
        (NOTHING_WON, "trials", ["tuner explain runs/x"]),
        (FAILED, "trials", ["tuner status runs/x", "tuner doctor"]),
        (FAILED, "signal", ["tuner tune ..."]),
    ],
)
def test_what_to_do_next_fits_how_it_ended(view: RunView, ended: str, wanted: list[str]) -> None:
    assert steps(view, ended) == wanted


def test_kernels_for_many_shapes_are_shown_and_not_explained() -> None:
    open_task = task("matmul", 1.0, None, 0.004, (0.004,) * 40, candidate="")
    assert steps(run(open_task)) == ["tuner best runs/x"]
    assert steps(run(open_task, NOTHING_WON.tasks[0])) == ["tuner explain runs/x"]


def test_a_budget_that_was_spent_before_any_trial_was_too_small() -> None:
    """Nothing failed, so there is nothing to look into."""
    (step,) = next_steps(run(), "runs/x", "tuner tune ...", ALL, "time")
    assert step.command == "tuner tune ..."
    assert step.why == "go on with more budget: it was spent before any trial"
    assert steps(run(), "signal") == ["tuner tune ..."]
    assert steps(run(), "done") == ["tuner status runs/x", "tuner doctor"]


def test_no_command_is_named_that_is_not_there() -> None:
    assert steps(FLAT, commands=ALL - {"verify"}) == [BENCH, EXPORT, "tuner explain runs/x"]


# ---- from a store ----

TASK = Task("key", "gemm", "{}", "{}", 1.0, 1e6)


def candidate(name: str, space: str = "ours") -> Candidate:
    return Candidate(CandidateKind.TRACE, name, space)


def record(name: str, seconds: float | None, *, space: str = "ours", rung: int = 0) -> Record:
    trial = Trial(TASK.key, candidate(name, space), rung=rung)
    if seconds is None:
        return Record(trial, Measurement(Status.WRONG, error="another result"))
    return Record(trial, Measurement(Status.OK, (seconds,)))


def a_run() -> MemoryStore:
    store = MemoryStore()
    store.put(Tasks([TASK]), Defaults({TASK.key: candidate("default").key}))
    store.append_many([(record("default", 0.010), None)])
    return store


def settle_all(store: RecordStore, chosen_s: float | None = None) -> Snapshot:
    """The last snapshot of a session on all tasks of a store, settled."""
    tasks = tuple(
        view if chosen_s is None else replace(view, best_s=chosen_s) for view in view_search(store)
    )
    return settle(Snapshot(phase=Phase.DONE, tasks=tasks), store)


def test_it_is_read_from_records_and_re_timings_count() -> None:
    store = a_run()
    for n in range(11):
        store.append_many([(record(f"c{n}", 0.009 - n * 0.0005), None)])
    store.append_many([(record("c10", 0.005, rung=1), None)])
    store.append_many([(record("default", 0.012, rung=1), None)])
    seen = settle_all(store)
    assert seen.settled
    assert (seen.untuned_s, seen.tuned_s) == pytest.approx((0.012, 0.005))
    ((left, _),) = rank_left(seen)
    assert len(left.history) == 12
    assert look_back(left) == (3, pytest.approx(1 - 0.004 / 0.0055))


def test_a_space_all_of_whose_trials_failed_is_named() -> None:
    store = a_run()
    for n in range(3):
        store.append_many([(record(f"b{n}", None, space="mine"), None)])
    store.append_many([(record("good", 0.005), None)])
    (space,) = (space for space in settle_all(store).spaces if space.fruitless)
    assert (space.space, space.failed) == ("mine", 3)


def test_a_symbolic_task_counts_with_its_kernel_set() -> None:
    store = MemoryStore()
    shapes = (((("T", 1),), 1.0), ((("T", 2),), 1.0))
    symbolic = Task("key", "gemm", "{}", "{}", 1.0, 1e6, shapes)
    default = candidate("default")
    store.put(Tasks([symbolic]), Defaults({"key": default.key}))
    for instance, _ in shapes:
        for which, seconds in ((default, 0.010), (candidate("fast"), 0.002)):
            store.append_many(
                [(Record(Trial("key", which, instance), Measurement(Status.OK, (seconds,))), None)]
            )
    seen = settle_all(store, chosen_s=0.004)
    assert seen.tuned_s == pytest.approx(0.004)
    assert [won.name for won, _ in rank_won(seen)] == ["gemm"]


def test_an_empty_run() -> None:
    assert settle_all(MemoryStore()).uncompared == ()
    store = MemoryStore()
    store.put(Tasks([TASK]))
    assert settle_all(store).uncompared == ("gemm",)
