"""A user's strategy, allocator and observers in a session; what fails ends it in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.replay.__main__ import compare
from benchmarks.replay.policies import RECORDINGS
from tests.tuner.session.replayed import make_session, recorded_space
from tuner.record import Record
from tuner.replay import recording
from tuner.search.registry import search_maker
from tuner.session.observer import Silent
from tuner.source import Source
from tuner.storage.sqlite_store import MemoryStore
from tuner.task import Task
from tuner.user_code.faults import LayerFailed
from tuner.user_code.guarded import guard
from tuner.user_code.load import load
from tuner.view.task_view import TaskView

EXAMPLE = Path(__file__).parents[3] / "examples" / "own_strategy.py"


def strategy_of(source: Source) -> Callable[[Task, int], Any]:
    return lambda task, seed: guard(lambda: load(source)(task, seed), source, "search strategy")


def example() -> Source:
    return Source(str(EXAMPLE), EXAMPLE.read_text(), "STRATEGY")


def searched(store: MemoryStore) -> list[Record]:
    return [record for record in store.scan() if not record.trial.rung]


def test_the_examples_strategy_spends_its_budget() -> None:
    store = MemoryStore()
    make = search_maker(strategy_of(example()))
    ended = make_session(recorded_space(["a", "b"], 200), store, trials=40, make_search=make).run()
    assert ended == "trials"
    assert len(searched(store)) == 40


def test_the_examples_strategy_needs_fewer_trials_than_chance_on_a_recorded_space() -> None:
    recorded = recording.load(RECORDINGS / "depthwise.npz")
    found = compare(
        {"depthwise": recorded}, ["depthwise"], ["random", str(EXAMPLE)], trials=96, seeds=2
    )
    means = found["geometric_mean_of_medians"]
    trials = {policy: mean["trials_to_within_5_percent"] for policy, mean in means.items()}
    assert trials[str(EXAMPLE)] < 0.75 * trials["random"]


class Backwards:
    """Serves the last task only."""

    def __init__(self) -> None:
        self.asked = 0

    def order(self, views: Sequence[TaskView]) -> list[str]:
        self.asked += 1
        return [views[-1].key, "no such task"]


def test_their_allocator_says_which_task_is_served() -> None:
    store, allocator = MemoryStore(), Backwards()
    session = make_session(
        recorded_space(["a", "b", "c"], 100), store, trials=12, allocator=allocator
    )
    assert session.run() == "trials"
    assert {r.trial.task_key for r in searched(store)} == {"c"}
    assert allocator.asked > 3


FAILING = """
class Fails:
    def __init__(self, folder=None): self.told = 0
    def on_record(self, record, best_s):
        self.told += 1
        if self.told == 9: raise OSError("its server is gone")
    def __getattr__(self, name): raise AttributeError(name)
    def on_start(self, tasks): pass
    def on_model(self, fitted): pass
    def on_snapshot(self, snapshot): pass
    def on_kernels(self, task_key, chosen): pass
    def on_end(self, snapshot): pass
"""


def test_an_observer_that_raises_ends_the_run_and_nothing_is_lost() -> None:
    source = Source("theirs.py", FAILING, "Fails")
    store = MemoryStore()
    theirs = guard(load(source), source, "observer")
    ours = Told()
    session = make_session(recorded_space(["a"], 100), store, trials=40, observers=[ours, theirs])
    with pytest.raises(LayerFailed, match=r"theirs\.py:6: OSError: its server is gone \(observer"):
        session.run()
    assert len(searched(store)) > len(ours.told), "what was in flight was kept, and told to nobody"
    assert store.sessions()[-1].reason == "failed"
    goes_on = make_session(recorded_space(["a"], 100), store, trials=40)
    assert goes_on.run() == "trials"
    assert len(searched(store)) == 40


class Told(Silent):
    def __init__(self) -> None:
        self.told: list[Record] = []

    def on_record(self, record: Record, best_s: float | None) -> None:
        self.told.append(record)


HANGING = """
import time
class Hangs:
    def __init__(self, task, seed): pass
    def drafts(self, n): return []
    def absorb(self, evaluated): pass
    def propose(self, n):
        time.sleep(3600)
    def observe(self, records): pass
    exhausted = False
"""


def test_a_strategy_that_hangs_ends_the_run_at_its_deadline() -> None:
    source = Source("theirs.py", HANGING, "Hangs")
    store = MemoryStore()
    session = make_session(
        recorded_space(["a"], 100),
        store,
        trials=40,
        make_search=lambda task, seed: guard(
            lambda: load(source)(task, seed), source, "search strategy", deadline_s=0.5
        ),
    )
    with pytest.raises(LayerFailed, match=r"theirs\.py:8: search strategy: propose has not retur"):
        session.run()
    assert store.sessions()[-1].reason == "failed"


def test_what_a_worker_says_of_a_fault_ends_the_run() -> None:
    store = MemoryStore()
    session = make_session(
        recorded_space(["a"], 100), store, trials=40, fault="theirs.py:3: KeyError: 'x' (builder)"
    )
    with pytest.raises(LayerFailed, match=r"theirs\.py:3"):
        session.run()
    assert all(not r.measurement.fault for r in store.scan())
