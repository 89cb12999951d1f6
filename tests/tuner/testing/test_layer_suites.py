"""The suites that users inherit: right classes pass them, wrong ones do not."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tuner.effort import Timing
from tuner.session.allocator import priorities
from tuner.session.observer import Silent
from tuner.storage.sqlite_store import MemoryStore, SqliteStore
from tuner.testing import (
    AllocatorContract,
    BuilderContract,
    FeaturesContract,
    MutatorContract,
    ObserverContract,
    PostprocContract,
    RunnerContract,
    StoreContract,
)
from tuner.view.task_view import TaskView


class Ours:
    def order(self, views: Sequence[TaskView]) -> list[str]:
        return priorities(views, first_trials=8, gain_floor=0.01)


class TestOurAllocator(AllocatorContract):
    made = Ours


class TestAnObserver(ObserverContract):
    def made(folder: Path) -> Silent:  # type: ignore[override,misc]
        return Silent()


class TestAStoreInMemory(StoreContract):
    def made(folder: Path) -> MemoryStore:  # type: ignore[override,misc]
        return MemoryStore()


class TestAStoreOnDisk(StoreContract):
    def made(folder: Path) -> SqliteStore:  # type: ignore[override,misc]
        return SqliteStore(folder / "theirs.sqlite")


class Words:
    def __init__(self, target: str) -> None:
        self.target = target

    def extract(self, module_json: str, schedules: Sequence[Any]) -> list[Any]:
        return [np.array([len(str(s.mod)), str(s.mod).count("for")]) for s in schedules]


class Turned:
    def apply(self, trace: Any, rng: random.Random) -> Any:
        for inst in trace.insts:
            decision = trace.get_decision(inst)
            if inst.kind.name == "SamplePerfectTile" and len(set(map(int, decision))) > 1:
                return trace.with_decision(inst, list(reversed(decision)), True)
        return None


class Short:
    def apply(self, schedule: Any) -> bool:
        schedule.annotate(schedule.get_sblock("root"), "theirs", 1)
        return len(schedule.trace.insts) % 7 > 0


class Plain:
    def build(self, module: Any, target: Any) -> Any:
        import tvm

        return tvm.compile(module, target=target).mod


class Once:
    def time(
        self,
        module: Any,
        arguments: Sequence[Any],
        device: Any,
        timing: Timing,
        cutoff_s: float | None,
    ) -> Sequence[float]:
        found = module.time_evaluator("main", device, number=1, repeat=3)(*arguments)
        return tuple(found.results)


@pytest.mark.tvm
class TestFeatures(FeaturesContract):
    made = Words


@pytest.mark.tvm
class TestAMutator(MutatorContract):
    made = Turned


@pytest.mark.tvm
class TestAPostProcessor(PostprocContract):
    made = Short


@pytest.mark.tvm
class TestABuilder(BuilderContract):
    made = Plain


@pytest.mark.tvm
class TestARunner(RunnerContract):
    made = Once


class Starves(Ours):
    def order(self, views: Sequence[TaskView]) -> list[str]:
        return [view.key for view in views]


class Forgets(MemoryStore):
    def scan(self, *given: Any, **named: Any) -> Iterator[Any]:
        return iter(())


def test_an_allocator_that_starves_a_task_fails() -> None:
    suite = AllocatorContract()
    with pytest.raises(AssertionError):
        type("TestIt", (AllocatorContract,), {"made": Starves})().test_no_task_waits_for_ever(
            Starves()
        )
    suite.test_no_task_waits_for_ever(Ours())


def test_a_store_that_forgets_fails() -> None:
    with pytest.raises(AssertionError):
        StoreContract().test_it_gives_back_what_it_was_given(Forgets())


@pytest.mark.tvm
def test_features_of_the_target_alone_fail() -> None:
    class Blind(Words):
        def extract(self, module_json: str, schedules: Sequence[Any]) -> list[Any]:
            return [np.array([len(self.target)]) for _ in schedules]

    class TestIt(FeaturesContract):
        made = Blind

    with pytest.raises(AssertionError):
        TestIt().test_they_tell_programs_apart()
