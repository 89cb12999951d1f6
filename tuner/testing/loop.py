"""What allocators, observers and stores of one's own keep to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tuner.candidate import Candidate, CandidateKind
from tuner.contracts.contracts import CONTRACTS
from tuner.contracts.seams import KeepsRecords
from tuner.cost_models.base import FittedModel
from tuner.dynamic.dispatch_tree import Leaf
from tuner.dynamic.kernel_set import KernelSet, ShapeTimes
from tuner.record import Measurement, Provenance, Record, Status, Trial
from tuner.session.allocator import Allocator
from tuner.session.observer import Observer
from tuner.storage.facts import Tasks
from tuner.task import Task
from tuner.user_code.contract import check
from tuner.view.phase import Phase
from tuner.view.progress import Snapshot
from tuner.view.task_view import TaskView

TASK = Task("0" * 16, "name", "module", '{"kind":"llvm"}')


SHAPE = (("T", 64),)
KERNELS = KernelSet(
    (Candidate(CandidateKind.TRACE, "[0]", "kernel:test"),),
    Leaf(0),
    losses=(1.0,),
    loss=1.0,
    shapes=(ShapeTimes(SHAPE, 1.0, 0, 3e-6, 3e-6, True),),
    error=None,
    judged=0,
)


def view(key: str, *, trials: int = 0, best_s: float | None = None) -> TaskView:
    """A task as an allocator sees it."""
    counts = {Status.OK: trials}
    return TaskView(key, key, 1.0, 1e6, counts, best_s=best_s, history=[best_s] * trials)


def record(number: int, latency_s: float = 1e-3) -> Record:
    """A record of a candidate with this number."""
    candidate = Candidate(CandidateKind.TRACE, f"[{number}]", "rules:test")
    measured = Measurement(Status.OK, (latency_s,) * 3)
    provenance = Provenance("worker", "device", "toolchain")
    return Record(Trial(TASK.key, candidate), measured, provenance, time_s=1.0 + number)


def snapshot(phase: Phase = Phase.SEARCH) -> Snapshot:
    """A session's progress."""
    return Snapshot(
        phase=phase,
        elapsed_s=1.0,
        time_budget_s=10.0,
        trials_budget=10,
        trials_per_s=1.0,
        tasks=(view(TASK.key, trials=1, best_s=1e-3),),
    )


def run_in(folder: Path) -> Path:
    """The folder of a run, in one of runs."""
    run = folder / "runs" / "run"
    run.mkdir(parents=True, exist_ok=True)
    return run


class AllocatorContract:
    """Subclass it as `Test...` with `made`, which makes an allocator from nothing."""

    made: Callable[[], Allocator]

    @pytest.fixture
    def allocator(self) -> Allocator:
        """An allocator that was not asked yet."""
        return type(self).made()

    def test_it_names_tasks_that_there_are_each_once(self, allocator: Allocator) -> None:
        views = [view("a"), view("b", trials=9, best_s=1.0), view("c", trials=3)]
        order = list(allocator.order(views))
        assert set(order) <= {"a", "b", "c"}
        assert len(order) == len(set(order))

    def test_where_there_is_one_task_it_is_served(self, allocator: Allocator) -> None:
        assert list(allocator.order([view("a", trials=40, best_s=1e-3)])) == ["a"]

    def test_where_there_is_none_nobody_is(self, allocator: Allocator) -> None:
        assert list(allocator.order([])) == []

    def test_no_task_waits_for_ever(self, allocator: Allocator) -> None:
        """Each is the first to be served once the others have had a thousand trials."""
        for waiting in "abc":
            views = [view(key, trials=0 if key == waiting else 1000, best_s=1.0) for key in "abc"]
            served = 0
            while next(iter(allocator.order(views))) != waiting:
                served += 1
                assert served < 1000


class ObserverContract:
    """Subclass it as `Test...` with `made`, which makes an observer from a run's folder."""

    made: Callable[[Path], Observer]

    def test_it_hears_of_a_whole_session(self, tmp_path: Path) -> None:
        """And of another after it, as where a run goes on."""
        for _ in range(2):
            observer = type(self).made(run_in(tmp_path))
            check(observer, CONTRACTS["observers"].protocol, "observer")
            observer.on_start([TASK])
            observer.on_snapshot(snapshot())
            for number in range(3):
                observer.on_record(record(number), 1e-3)
            observer.on_model(FittedModel(1, b"model", 16, None, 0.1))
            observer.on_kernels(TASK.key, KERNELS)
            observer.on_end(snapshot(Phase.DONE))


class StoreContract:
    """Subclass it as `Test...` with `made`, which makes a store from a run's folder."""

    made: Callable[[Path], KeepsRecords]

    @pytest.fixture
    def store(self, tmp_path: Path) -> Any:
        """An open store, which knows a task."""
        store = type(self).made(run_in(tmp_path))
        store.put(Tasks([TASK]))
        yield store
        store.close()

    def test_it_gives_back_what_it_was_given(self, store: KeepsRecords) -> None:
        given = [record(number) for number in range(4)]
        store.append_many([(each, None) for each in given])
        assert sorted(store.scan(), key=_time) == given

    def test_a_record_that_comes_again_is_there_once(self, store: KeepsRecords) -> None:
        store.append_many([(record(1), None)])
        store.append_many([(record(1), None)])
        assert len(list(store.scan())) == 1

    def test_a_task_that_comes_again_changes_nothing(self, store: KeepsRecords) -> None:
        store.append_many([(record(1), None)])
        store.put(Tasks([TASK]))
        assert len(list(store.scan())) == 1


def _time(record: Record) -> float:
    return record.time_s
