"""When a run ends: what was won, what is left to win, and what to do next, decided from records."""

from __future__ import annotations

import pytest

from tuner.candidate import Candidate, CandidateKind
from tuner.record import Measurement, Record, Status, Trial
from tuner.report.closing import (
    Closing,
    Fruitless,
    TaskEnd,
    closing,
    closing_of_store,
    next_steps,
)
from tuner.storage.memory import MemoryStore
from tuner.task import Task

ALL = {"tune", "status", "doctor", "bench", "export", "explain", "verify"}
CONV = TaskEnd("conv", 2.0, 0.010, 0.004, (0.008,) * 30 + (0.004,) * 10)
DENSE = TaskEnd("dense", 1.0, 0.010, 0.002, (0.002,) * 40)


def test_what_was_won_is_the_models_and_by_task() -> None:
    said = closing([CONV, DENSE])
    assert (said.before_s, said.after_s) == pytest.approx((0.030, 0.010))
    assert said.gain == pytest.approx(3.0)
    assert [(row.task, row.share) for row in said.won] == [
        ("conv", pytest.approx(0.6)),
        ("dense", pytest.approx(0.4)),
    ]


def test_what_is_left_is_where_the_time_is_now_and_whether_it_still_falls() -> None:
    said = closing([DENSE, CONV])
    conv, dense = said.left
    assert (conv.task, conv.share) == ("conv", pytest.approx(0.8))
    assert (conv.trials, conv.lately, conv.saved) == (40, 10, pytest.approx(0.5))
    assert (dense.share, dense.saved) == (pytest.approx(0.2), 0.0)
    assert said.falling


def test_a_curve_that_is_flat_in_its_last_quarter_does_not_fall() -> None:
    flat = TaskEnd("conv", 1.0, 0.010, 0.004, (0.008, *(0.004,) * 39))
    assert not closing([flat]).falling
    few = TaskEnd("conv", 1.0, 0.010, 0.004, (0.008, *(0.004,) * 6))
    assert closing([few]).falling, "seven trials say nothing"
    assert closing([few]).left[0].saved is None


def test_tasks_that_hardly_count_are_not_named() -> None:
    small = [TaskEnd(f"t{n}", 1.0, 1e-5, 5e-6) for n in range(20)]
    said = closing([CONV, *small])
    assert [row.task for row in said.won] == ["conv"]
    assert [row.task for row in said.left] == ["conv"]


def test_a_winner_that_is_no_faster_than_its_default_won_nothing() -> None:
    said = closing([TaskEnd("conv", 1.0, 0.004, 0.004), TaskEnd("set", 1.0, 0.004, 0.005)])
    assert said.won == ()
    assert said.gain == pytest.approx(1.0)


def test_tasks_without_a_time_or_without_their_defaults_are_not_compared() -> None:
    said = closing([CONV, TaskEnd("slow", 1.0, None, 0.001), TaskEnd("broken", 1.0, None, None)])
    assert said.gain == pytest.approx(2.5)
    assert said.untimed == ("slow", "broken")
    assert closing([]) == Closing()


def steps(
    said: Closing, ended: str = "trials", commands: set[str] = ALL, *, tried: bool = True
) -> list[str]:
    found = next_steps(said, "runs/x", "tuner tune ...", commands, ended, tried=tried)
    return [step.command for step in found]


FLAT = closing([DENSE])
FALLING = closing([CONV])
NOTHING_WON = closing([TaskEnd("conv", 1.0, 0.004, 0.004, (0.004,) * 40)])
BENCH, EXPORT = "tuner bench runs/x", "tuner export runs/x --lib model.so"


@pytest.mark.parametrize(
    ("said", "ended", "wanted"),
    [
        (FALLING, "trials", ["tuner tune ...", BENCH, EXPORT]),
        (FALLING, "done", [BENCH, EXPORT, "tuner verify runs/x"]),
        (FLAT, "time", [BENCH, EXPORT, "tuner verify runs/x"]),
        (FLAT, "signal", ["tuner tune ...", BENCH, EXPORT]),
        (NOTHING_WON, "trials", ["tuner explain runs/x"]),
        (Closing(), "trials", ["tuner status runs/x", "tuner doctor"]),
        (Closing(), "signal", ["tuner tune ..."]),
    ],
)
def test_what_to_do_next_fits_how_it_ended(said: Closing, ended: str, wanted: list[str]) -> None:
    assert steps(said, ended) == wanted


def test_a_budget_that_was_spent_before_any_trial_was_too_small() -> None:
    """Nothing failed, so there is nothing to look into."""
    (step,) = next_steps(Closing(), "runs/x", "tuner tune ...", ALL, "time", tried=False)
    assert step.command == "tuner tune ..."
    assert step.why == "go on with more budget: it was spent before any trial"
    assert steps(Closing(), "signal", tried=False) == ["tuner tune ..."]
    assert steps(Closing(), "done", tried=False) == ["tuner status runs/x", "tuner doctor"]


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
    store.put_tasks([TASK], {TASK.key: candidate("default").key})
    store.append(record("default", 0.010))
    return store


def test_it_is_read_from_records_and_re_timings_count() -> None:
    store = a_run()
    for n in range(11):
        store.append(record(f"c{n}", 0.009 - n * 0.0005))
    store.append(record("c10", 0.005, rung=1))
    store.append(record("default", 0.012, rung=1))
    said = closing_of_store(store)
    assert (said.before_s, said.after_s) == pytest.approx((0.012, 0.005))
    (left,) = said.left
    assert (left.trials, left.lately) == (12, 3)
    assert left.saved == pytest.approx(1 - 0.004 / 0.0055)


def test_a_space_all_of_whose_trials_failed_is_named() -> None:
    store = a_run()
    for n in range(3):
        store.append(record(f"b{n}", None, space="mine"))
    store.append(record("good", 0.005))
    assert closing_of_store(store).fruitless == (Fruitless("mine", 3),)


def test_a_symbolic_task_counts_with_its_kernel_set() -> None:
    store = MemoryStore()
    shapes = (((("T", 1),), 1.0), ((("T", 2),), 1.0))
    task = Task("key", "gemm", "{}", "{}", 1.0, 1e6, shapes)
    default = candidate("default")
    store.put_tasks([task], {"key": default.key})
    for instance, _ in shapes:
        for which, seconds in ((default, 0.010), (candidate("fast"), 0.002)):
            store.append(Record(Trial("key", which, instance), Measurement(Status.OK, (seconds,))))
    said = closing_of_store(store, {"key": 0.004})
    assert said.after_s == pytest.approx(0.004)
    assert said.won[0].task == "gemm"


def test_an_empty_run() -> None:
    assert closing_of_store(MemoryStore()) == Closing()
    store = MemoryStore()
    store.put_tasks([TASK], {})
    assert closing_of_store(store) == Closing(untimed=("gemm",))
