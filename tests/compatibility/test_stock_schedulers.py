"""Who gets the trials, who is told of them, and where the time went: stock's answers and ours."""

from __future__ import annotations

import gc
import tempfile
import time
import weakref
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.compatibility.worker_programs import (
    LATENCY_S,
    PER_TASK,
    Machines,
    context,
    our_artifact,
    stock,
    stocks_callback,
    tuned_by_stock,
)
from tests.tuner.session.replayed import make_session, recorded_space, searched
from tuner.candidate import Draft
from tuner.cost_models.xgb import XgbModel
from tuner.errors import UsageError
from tuner.record import Measurement, Record, Status, Trial
from tuner.replay.recorded import RecordedSpace
from tuner.replay.replay import VirtualClock
from tuner.search.registry import search_maker
from tuner.session.allocator import Allocator
from tuner.session.observer import Silent
from tuner.source import Source
from tuner.storage.sqlite_store import MemoryStore
from tuner.user_code.contract import check
from tuner.user_code.faults import LayerFailed
from tuner.user_code.guarded import guard
from tuner.utilisation import BUILDER, RUNNER, Utilisation, shares, total
from tuner.view.task_view import TaskView

pytestmark = [pytest.mark.tvm]

TASKS = ("doubled", "squared", "shifted")


def tuned_by_us(spaces: RecordedSpace, *, trials: int = 1000, **settings: Any) -> Counter[str]:
    """The number of trials of each task."""
    store = MemoryStore()
    make_session(spaces, store, trials=trials, **settings).run()
    return Counter(record.trial.task_key for record in searched(store))


def ended_as(spaces: RecordedSpace, tasks: str, measurement: Measurement) -> RecordedSpace:
    """The spaces, in which all trials of some tasks end in the same way."""
    return {
        key: [replace(row, measurement=measurement) for row in rows] if key in tasks else rows
        for key, rows in spaces.items()
    }


class Fair:
    """An allocator: the task with the fewest trials first."""

    def order(self, views: Sequence[TaskView]) -> Sequence[str]:
        return [view.key for view in sorted(views, key=lambda view: view.trials)]


def fair_of_stock() -> Any:
    """The same rule as a task scheduler of stock's."""
    from tvm.ir.utils import derived_object

    ms = stock()

    @derived_object
    class Scheduler(ms.task_scheduler.PyTaskScheduler):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.served = Counter[int]()

        def next_task_id(self) -> int:
            tasks = self._outer().tasks_
            for number, task in enumerate(tasks):
                if task.runner_futures is not None:
                    self.join_running_task(number)
            alive = [number for number, task in enumerate(tasks) if not task.is_terminated]
            chosen = min(alive, key=self.served.__getitem__, default=-1)
            self.served[chosen] += 1
            return chosen

    return Scheduler()


class TestTasks:
    def test_a_single_task_gets_exactly_its_trials(self) -> None:
        machines = Machines()
        assert tuned_by_stock([context("doubled")], machines=machines) == {"doubled": PER_TASK}
        assert machines.devices == ["cpu"] * PER_TASK
        assert tuned_by_us(recorded_space("a", 100), trials=PER_TASK) == {"a": PER_TASK}

    @pytest.mark.parametrize("scheduler", ["RoundRobin", "GradientBased"])
    def test_all_tasks_are_served_until_nothing_is_left_of_any(self, scheduler: str) -> None:
        made = getattr(stock().task_scheduler, scheduler)()
        theirs = tuned_by_stock([context(name) for name in TASKS], scheduler=made)
        assert theirs == dict.fromkeys(TASKS, PER_TASK)
        assert tuned_by_us(recorded_space("abc", PER_TASK)) == dict.fromkeys("abc", PER_TASK)

    def test_a_users_own_rule_serves_tasks_alike(self) -> None:
        theirs = tuned_by_stock([context(name) for name in TASKS], scheduler=fair_of_stock())
        assert theirs == dict.fromkeys(TASKS, PER_TASK)
        mine = tuned_by_us(recorded_space("abc", 100), trials=36, allocator=Fair())
        assert max(mine.values()) - min(mine.values()) <= 1

    def test_the_heavier_of_equal_tasks_gets_more_than_the_others(self) -> None:
        contexts = [context(name) for name in TASKS]
        made = stock().task_scheduler.GradientBased()
        theirs = tuned_by_stock(contexts, scheduler=made, trials=20, weights=[1.0, 50.0, 1.0])
        mine = tuned_by_us(
            recorded_space("abc", 200), trials=60, weights={"a": 1.0, "b": 50.0, "c": 1.0}
        )
        assert [name for name, _ in theirs.most_common(1)] == ["squared"]
        assert [key for key, _ in mine.most_common(1)] == ["b"]
        assert set(theirs) == set(TASKS), "no task is left out"
        assert set(mine) == set("abc")

    def test_a_task_that_is_done_early_leaves_its_trials_to_the_others(self) -> None:
        ms = stock()
        done = context("doubled", silent_strategy(rounds=3))
        made = ms.task_scheduler.GradientBased()
        theirs = tuned_by_stock([done, context("squared"), context("shifted")], scheduler=made)
        assert +theirs == {"squared": PER_TASK, "shifted": PER_TASK}
        spaces = recorded_space("abc", 100)
        mine = tuned_by_us(
            {**spaces, "a": spaces["a"][:1]},
            trials=40,
            make_search=lambda task, seed: (
                Nothing() if task.key == "a" else search_maker("evolutionary")(task, seed)
            ),
        )
        assert mine["a"] == 1, "its default schedule, which every task has"
        assert sum(mine.values()) == 40

    def test_a_task_whose_builds_all_fail_does_not_stop_the_others(self) -> None:
        """Its builds cost stock the task's trials, and ours no trial."""
        contexts = [context(name) for name in TASKS]
        machines = Machines(broken=["doubled"])
        theirs = tuned_by_stock(contexts, machines=machines)
        assert theirs == dict.fromkeys(TASKS, PER_TASK)
        assert len(machines.devices) == 2 * PER_TASK
        failed = Measurement(Status.BUILD_FAILED, error="no compiler", build_s=0.1)
        mine = tuned_by_us(ended_as(recorded_space("abc", 60), "a", failed), trials=40)
        assert mine["b"] + mine["c"] == 40
        assert mine["a"] > 0

    def test_a_rule_that_is_missing_is_told(self) -> None:
        from tvm.ir.utils import derived_object

        ms = stock()

        @derived_object
        class Half(ms.task_scheduler.PyTaskScheduler):  # type: ignore[misc, name-defined]
            pass

        with pytest.raises(ValueError, match="next_task_id is not defined"):
            Half().next_task_id()
        with pytest.raises(UsageError, match="no allocator"):
            check(object(), Allocator, "allocator")

    def test_nothing_keeps_a_users_rule_alive_after_its_run(self) -> None:
        theirs = fair_of_stock()
        tuned_by_stock([context("doubled")], scheduler=theirs)
        mine = Fair()
        tuned_by_us(recorded_space("ab", 20), trials=10, allocator=mine)
        watched = weakref.ref(theirs), weakref.ref(mine)
        del theirs, mine
        gc.collect()
        assert [reference() for reference in watched] == [None, None]


def silent_strategy(rounds: int) -> Any:
    """A strategy of stock's that has nothing to propose for some rounds, and then ends."""
    from tvm.ir.utils import derived_object

    ms = stock()

    @derived_object
    class Nothing(ms.search_strategy.PySearchStrategy):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.left = rounds

        def _initialize_with_tune_context(self, context: Any) -> None:
            pass

        def pre_tuning(self, *given: Any) -> None:
            pass

        def post_tuning(self) -> None:
            pass

        def generate_measure_candidates(self) -> list[Any] | None:
            self.left -= 1
            return [] if self.left >= 0 else None

        def notify_runner_results(self, *given: Any) -> None:
            pass

        def clone(self) -> Any:
            return Nothing()

    return Nothing()


class Nothing:
    """A strategy of ours that has nothing to propose, and ends a little later."""

    def __init__(self) -> None:
        self._asked = 0

    def drafts(self, n: int) -> list[Draft]:
        return []

    def absorb(self, evaluated: Any) -> None:
        pass

    def propose(self, n: int) -> list[Trial]:
        self._asked += 1
        return []

    def observe(self, records: Any) -> None:
        pass

    @property
    def exhausted(self) -> bool:
        return self._asked >= 3


class Told(Silent):
    """An observer that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[Record] = []

    def on_record(self, record: Record, best_s: float | None) -> None:
        self.told.append(record)


class TestCallbacks:
    def test_one_is_told_of_each_trial_once_with_what_came_of_it(self) -> None:
        told = Counter[int]()

        def note(task_id: int, tried: Any, built: Any, ran: Any) -> None:
            assert len(tried) == len(built) == len(ran)
            assert all(result.error_msg is None for result in (*built, *ran))
            assert all(float(r.run_secs[0]) == pytest.approx(LATENCY_S) for r in ran)
            told[task_id] += len(ran)

        contexts = [context(name) for name in TASKS]
        tuned_by_stock(contexts, callbacks=[stocks_callback(note)])
        assert told == dict.fromkeys(range(3), PER_TASK)
        observer, store = Told(), MemoryStore()
        make_session(recorded_space("abc", 100), store, trials=30, observers=[observer]).run()
        assert observer.told == list(store.scan())
        assert len({record.trial.key for record in observer.told}) == len(observer.told)

    def test_one_that_raises_ends_the_run(self) -> None:
        def fail(*given: Any) -> None:
            raise ValueError("not in the mood")

        with pytest.raises(ValueError, match="not in the mood"):
            tuned_by_stock([context("doubled")], callbacks=[stocks_callback(fail)])
        source = Source("theirs.py", "", "Fails")
        theirs = guard(Fails, source, "observer")
        with pytest.raises(LayerFailed, match=r"ValueError: not in the mood \(observer"):
            tuned_by_us(recorded_space("a", 100), trials=10, observers=[theirs])

    @pytest.mark.parametrize(("seconds", "learned"), [(0.0, 0), (None, PER_TASK)])
    def test_runs_that_have_no_time_harm_no_cost_model(
        self, seconds: float | None, learned: int
    ) -> None:
        ms = stock()
        model = ms.cost_model.XGBModel(
            num_warmup_samples=4, num_tuning_cores=1, early_stopping_rounds=2
        )
        theirs = tuned_by_stock(
            [context("doubled")],
            machines=Machines(seconds=seconds),
            callbacks=[ms.measure_callback.UpdateCostModel()],
            cost_model=model,
        )
        assert theirs == {"doubled": PER_TASK}
        assert model.data_size == learned
        ok = Measurement(Status.OK, (0.0,), build_s=0.1, run_s=0.1)
        failed = Measurement(Status.RUN_FAILED, error="no device", build_s=0.1, run_s=0.1)
        spaces = ended_as(recorded_space("a", 60), "a", failed if seconds is None else ok)
        assert tuned_by_us(spaces, trials=20) == {"a": 20}
        mine, rows = XgbModel(1), np.zeros((20, 3), np.float32)
        mine.fit(rows, np.full(20, np.inf, np.float32), np.zeros(20, np.int32))
        assert not mine.predict(rows).any()

    def test_no_library_is_left_on_disk(self, tmp_path: Path, monkeypatch: Any) -> None:
        """Stock's are files that a callback removes; ours are bytes."""
        ms = stock()
        kept, removed = tmp_path / "kept", tmp_path / "removed"
        for folder, callbacks in (
            (kept, []),
            (removed, [ms.measure_callback.RemoveBuildArtifact()]),
        ):
            folder.mkdir()
            tuned_by_stock(
                [context("doubled")], machines=Machines(folder=folder), callbacks=callbacks
            )
        assert len(list(kept.iterdir())) == PER_TASK
        assert list(removed.iterdir()) == []
        monkeypatch.setattr(tempfile, "tempdir", str(removed))
        assert our_artifact("doubled")
        assert list(removed.iterdir()) == []

    def test_records_are_in_the_database_and_in_the_store(self) -> None:
        """Of what failed stock keeps an endless time, and ours no time but the reason."""
        ms = stock()
        for seconds, kept in ((LATENCY_S, LATENCY_S), (None, 1e10)):
            database = ms.database.MemoryDatabase()
            tuned_by_stock(
                [context("doubled")],
                machines=Machines(seconds=seconds),
                callbacks=[ms.measure_callback.AddToDatabase()],
                database=database,
            )
            assert len(database) == PER_TASK
            times = [float(r.run_secs[0]) for r in database.get_all_tuning_records()]
            assert times == pytest.approx([kept] * PER_TASK)
        store = MemoryStore()
        make_session(recorded_space("a", 100), store, trials=30).run()
        assert len(searched(store)) == 30
        for record in searched(store):
            assert (record.latency_s is None) == (record.measurement.error == "crash")


class Fails(Silent):
    """An observer that raises."""

    def on_record(self, record: Record, best_s: float | None) -> None:
        raise ValueError("not in the mood")


class TestTime:
    def test_nested_spans_of_stock_and_slots_of_ours_add_up(self) -> None:
        """Stock adds up named spans of one process; ours the seconds of every worker."""
        ms = stock()
        with ms.Profiler() as profiler, ms.Profiler.timeit("outer"):
            time.sleep(0.01)
            with ms.Profiler.timeit("inner"):
                time.sleep(0.01)
        spans = profiler.get()
        assert set(spans) == {"Total", "outer", "inner"}
        assert spans["Total"] >= spans["outer"] >= spans["inner"] > 0
        assert all(name in profiler.table() for name in spans)
        clock = VirtualClock()
        slots = Utilisation(clock)
        for kind in (BUILDER, RUNNER):
            slots.started(kind, "1")
        clock.now_s = 1.0
        slots.ready(BUILDER, "1")
        slots.given(BUILDER, "1")
        clock.now_s = 4.0
        slots.answered(BUILDER, "1", worked_s=2.0)
        spent = slots.seconds()
        worked = {category: seconds for category, seconds in spent[BUILDER].items() if seconds}
        assert worked == {"starting": 1.0, "busy": 2.0, "waiting": 1.0}
        assert [sum(seconds.values()) for seconds in spent.values()] == [4.0, 4.0], "all of it"

    def test_a_span_outside_of_a_profile_and_an_event_of_no_slot_count_nowhere(self) -> None:
        ms = stock()
        with ms.Profiler.timeit("alone"):
            assert ms.Profiler.current() is None
        slots = Utilisation(VirtualClock())
        slots.given(RUNNER, "nobody")
        slots.answered(RUNNER, "nobody")
        assert slots.seconds() == {}

    def test_a_whole_run_says_where_its_time_went(self) -> None:
        ms = stock()
        with ms.Profiler() as profiler:
            tuned_by_stock([context("doubled")])
        assert {"Total", "SendToBuilder", "SendToRunner"} <= set(profiler.get())
        first = {BUILDER: {"busy": 2.0, "waiting": 1.0}}
        again = {BUILDER: {"busy": 4.0, "no_candidates": 1.0}, RUNNER: {"busy": 8.0}}
        spent = total([first, again])
        assert shares(spent[BUILDER]) == {"busy": 0.75, "no_candidates": 0.125, "waiting": 0.125}
        assert spent[RUNNER] == {"busy": 8.0}
