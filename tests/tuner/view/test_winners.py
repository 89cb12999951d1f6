"""The winning records of a run, as it leaves them at its end."""

from __future__ import annotations

from dataclasses import replace

from tests.tuner.view.test_folds import MATMUL, candidate, record
from tuner.dynamic.dispatch_tree import Leaf
from tuner.dynamic.kernel_set import KernelSet
from tuner.record import Measurement, Record, Status, Trial, record_from_json
from tuner.storage.facts import Tasks
from tuner.storage.sqlite_store import MemoryStore
from tuner.task import Task
from tuner.view.winners import winning_lines, winning_records

SYMBOLIC = Task("symbolic", "symbolic", "", "", shapes=(((("T", 1),), 1.0), ((("T", 64),), 1.0)))


def store_of(*tasks: Task) -> MemoryStore:
    store = MemoryStore()
    store.put(Tasks(tasks))
    return store


def on_shape(size: int, number: int, latency_s: float) -> Record:
    trial = Trial(SYMBOLIC.key, candidate(number), (("T", size),))
    return Record(trial, Measurement(Status.OK, (latency_s,)))


def test_nothing_measured_nothing_left() -> None:
    assert winning_records(store_of(MATMUL, SYMBOLIC)) == []
    assert winning_lines(store_of(MATMUL)) == b""


def test_the_winner_of_each_task() -> None:
    store = store_of(MATMUL)
    for made in (record(1, 3.0), record(2, 1.0), record(3, 2.0)):
        store.append_many([(made, None)])
    assert [r.trial.candidate for r in winning_records(store)] == [candidate(2)]


def test_the_fastest_record_of_each_shape() -> None:
    store = store_of(SYMBOLIC)
    for made in (on_shape(64, 1, 3.0), on_shape(1, 1, 0.5), on_shape(64, 2, 2.0)):
        store.append_many([(made, None)])
    assert winning_records(store) == [on_shape(1, 1, 0.5), on_shape(64, 2, 2.0)]


def retimed(size: int, number: int, latency_s: float, rung: int) -> Record:
    made = on_shape(size, number, latency_s)
    return replace(made, trial=replace(made.trial, rung=rung))


def test_the_records_that_count_of_the_kernels_that_were_chosen() -> None:
    """Whoever restores them comes to the same kernels, though others were faster on a shape."""
    store = store_of(SYMBOLIC)
    lucky, chosen = on_shape(1, 9, 0.1), [retimed(1, 1, 0.5, 2), retimed(64, 1, 2.5, 1)]
    beaten = [on_shape(1, 1, 0.4), retimed(1, 1, 0.6, 1), retimed(64, 1, 3.0, 2)]
    for made in (lucky, *beaten, *chosen, on_shape(64, 2, 9.0)):
        store.append_many([(made, None)])
    kernels = KernelSet((candidate(1),), Leaf(0), (1.0,), 1.0, (), None, 0)
    found = winning_records(store, {SYMBOLIC.key: kernels})
    assert found == [lucky, *chosen]


def test_its_lines_are_records_again() -> None:
    store = store_of(SYMBOLIC)
    store.append_many([(on_shape(64, 1, 3.0), None)])
    lines = winning_lines(store).decode().splitlines()
    assert [record_from_json(line) for line in lines] == [on_shape(64, 1, 3.0)]
