"""Times of another toolchain are not mixed in silently: they are counted, winners are marked."""

from __future__ import annotations

import numpy as np

from tuner.candidate import Candidate, CandidateKind
from tuner.cost_models.dataset import Dataset
from tuner.record import Measurement, Provenance, Record, Status, Trial
from tuner.storage.facts import Tasks
from tuner.storage.sqlite_store import MemoryStore
from tuner.task import Task
from tuner.view.folds import view_run, view_winners
from tuner.view.outcome import find_stale
from tuner.view.run_view import RunView, ToolchainView
from tuner.view.task_view import TaskView

CONV, DENSE = Task("c", "conv", "{}", "{}", 1.0, 1.0), Task("d", "dense", "{}", "{}", 1.0, 1.0)
OLD, NEW = "tvm=1", "tvm=2"


def record(task: Task, name: str, seconds: float, toolchain: str, rung: int = 0) -> Record:
    trial = Trial(task.key, Candidate(CandidateKind.TRACE, name, "ours"), rung=rung)
    good = Measurement(Status.OK, (seconds,))
    return Record(trial, good, Provenance("w", "d", toolchain))


def store_of(*records: Record) -> MemoryStore:
    store = MemoryStore()
    store.put(Tasks([CONV, DENSE]))
    store.append_many([(r, None) for r in records])
    return store


def test_a_run_of_one_toolchain_has_no_mark() -> None:
    store = store_of(record(CONV, "a", 1.0, OLD), record(DENSE, "a", 1.0, OLD))
    run = view_run(store)
    assert run.toolchains == (ToolchainView(OLD, 2, ("conv", "dense")),)
    assert find_stale(run) == ()


def test_of_two_it_is_said_whose_time_is_of_the_older() -> None:
    store = store_of(
        record(CONV, "a", 1.0, OLD), record(DENSE, "a", 2.0, OLD), record(DENSE, "b", 1.0, NEW)
    )
    run = view_run(store)
    assert run.toolchains == (ToolchainView(OLD, 2, ("conv",)), ToolchainView(NEW, 1, ("dense",)))
    assert [task.toolchain for task in view_winners(store)] == [OLD, NEW]
    assert [task.toolchain for task in run.tasks] == [OLD, NEW], "while the search goes on, too"
    assert find_stale(run) == ("conv",)


def test_a_winner_that_was_timed_again_is_no_more_of_the_older() -> None:
    store = store_of(
        record(CONV, "a", 1.0, OLD), record(DENSE, "b", 1.0, NEW), record(CONV, "a", 1.1, NEW, 1001)
    )
    run = view_run(store, winners=True)
    assert find_stale(run) == ()
    assert run.tasks[0].toolchain == NEW


def test_what_is_not_known_is_not_marked() -> None:
    used = tuple(ToolchainView(name, 1, ()) for name in (OLD, NEW))
    unknown, older = TaskView("c", "conv"), TaskView("d", "dense", toolchain=OLD)
    assert find_stale(RunView(tasks=(unknown, older), toolchains=used)) == ("dense",)
    assert find_stale(RunView(tasks=(older,))) == ()
    run = view_run(store_of(record(CONV, "a", 1.0, "")))
    assert (run.toolchains, run.tasks[0].toolchain) == ((), "")


def test_the_cost_model_ranks_no_two_times_of_different_toolchains() -> None:
    dataset = Dataset()
    vector = np.zeros(3, dtype=np.float32)
    nowhere = Record(record(CONV, "x", 1.0, "").trial, Measurement(Status.BUILD_FAILED))
    for one in (
        nowhere,
        record(CONV, "a", 1.0, OLD),
        record(DENSE, "a", 1.0, OLD),
        record(CONV, "b", 1.0, NEW),
        nowhere,
    ):
        dataset.add(one, vector)
    first, old, other, new, last = dataset.snapshot().groups
    assert first == old, "what was never run belongs to what was"
    assert new == last
    assert len({int(old), int(other), int(new)}) == 3
