"""Candidates that call libraries: each is measured once, and no search hears of them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.tuner.session.replayed import candidate, make_session, recorded_space, searched
from tuner.candidate import Candidate, CandidateKind
from tuner.record import Measurement, Record, Status
from tuner.replay.recorded import Recorded
from tuner.search.base import Search
from tuner.search.random_search import RandomSearch
from tuner.search.transfer import gather
from tuner.storage.sqlite_store import MemoryStore
from tuner.task import Task
from tuner.view.winners import choose_best


def library(version: str, latency_s: float) -> Recorded:
    """A library's function that takes this long; the fastest kernel takes 1 ms."""
    called = Candidate(CandidateKind.LIBRARY, "blas.mm", f"library:Blas@{version}")
    measured = Measurement(Status.OK, (latency_s,) * 3, build_s=0.1, run_s=0.2)
    return Recorded(called, None, measured)


def libraries_in(store: MemoryStore) -> list[Record]:
    return [r for r in store.scan() if r.trial.candidate.kind is CandidateKind.LIBRARY]


@pytest.mark.parametrize("strategy", ["evolutionary", "random"])
def test_each_has_a_turn_before_the_default_schedule(strategy: str) -> None:
    store = MemoryStore()
    offered = {"a": [library("1", 0.5), library("2", 0.4)]}
    make_session(
        recorded_space("ab", 100), store, trials=40, strategy=strategy, libraries=offered
    ).run()
    tried = [r.trial.candidate for r in searched(store) if r.trial.task_key == "a"]
    places = [tried.index(c) for c in (*(row.candidate for row in offered["a"]), candidate("a", 0))]
    assert places == sorted(places)
    assert places[1] <= 6
    assert len(searched(store)) == 40, "they are part of the budget"
    assert {r.trial.task_key for r in libraries_in(store)} == {"a"}


@pytest.mark.parametrize(("latency_s", "wins"), [(0.5e-3, True), (2e-3, False)])
def test_it_wins_only_where_it_is_faster(latency_s: float, wins: bool) -> None:
    store = MemoryStore()
    offered = {"a": [library("1", latency_s)]}
    make_session(recorded_space("a", 100), store, trials=60, libraries=offered).run()
    best = choose_best(store, "a")
    assert best is not None
    assert (best.trial.candidate.kind is CandidateKind.LIBRARY) == wins
    timed_again = [r for r in libraries_in(store) if r.trial.rung]
    assert bool(timed_again) == wins, "it is a finalist like any other"


def test_no_search_hears_of_it_then_or_in_a_session_that_goes_on() -> None:
    told: list[Record] = []

    class Listens(RandomSearch):
        def observe(self, records: Sequence[Record]) -> None:  # type: ignore[override]
            told.extend(records)
            super().observe(records)

    def make(task: Task, seed: int) -> Search:
        return Listens(task, seed)

    store = MemoryStore()
    offered = {"a": [library("1", 0.5e-3)]}
    for trials in (20, 40):
        make_session(
            recorded_space("a", 100), store, trials=trials, make_search=make, libraries=offered
        ).run()
    assert libraries_in(store)
    assert len([r for r in libraries_in(store) if not r.trial.rung]) == 1
    assert CandidateKind.LIBRARY not in {r.trial.candidate.kind for r in told}


def test_one_that_a_session_lacks_is_not_timed_again_and_loses_to_what_is() -> None:
    """Its file has another text by now: under its name another function would be called."""
    store = MemoryStore()
    before = {"a": [library("old", 0.5e-3)]}
    make_session(recorded_space("a", 100), store, trials=30, toolchain="1", libraries=before).run()
    first = choose_best(store, "a")
    assert first is not None
    assert first.trial.candidate == before["a"][0].candidate
    now = {"a": [library("new", 0.7e-3)]}
    make_session(recorded_space("a", 100), store, trials=50, toolchain="2", libraries=now).run()
    best = choose_best(store, "a")
    assert best is not None
    assert best.trial.candidate == now["a"][0].candidate


def test_one_that_is_named_again_counts_again_without_another_trial() -> None:
    store = MemoryStore()
    slow, fast = library("slow", 0.8e-3), library("fast", 0.5e-3)
    for trials, named in ((30, fast), (40, slow), (50, fast)):
        make_session(recorded_space("a", 100), store, trials=trials, libraries={"a": [named]}).run()
        best = choose_best(store, "a")
        assert best is not None
        assert best.trial.candidate == named.candidate
    assert len([r for r in libraries_in(store) if not r.trial.rung]) == 2
    kernel = choose_best(store, "a", schedules_only=True)
    assert kernel is not None
    assert kernel.trial.candidate.kind is not CandidateKind.LIBRARY


def test_it_is_no_seed_for_another_run() -> None:
    store = MemoryStore()
    offered = {"a": [library("1", 0.5e-3)]}
    make_session(recorded_space("a", 100), store, trials=30, libraries=offered).run()
    (entry,) = gather(list(store.tasks()), None, [store]).entries
    assert entry.best
    assert CandidateKind.LIBRARY not in {c.kind for c in entry.best}
