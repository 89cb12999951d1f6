"""What every search strategy keeps to, whatever it is told and in whatever order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tuner.candidate import Candidate, CandidateKind, of_knobs
from tuner.measure import Evaluated
from tuner.record import Measurement, Record, Status, Trial
from tuner.search.base import Search
from tuner.task import Task

TASK = Task("key", "name", "module", "target")


def chosen_by(search: Search, n: int) -> list[Candidate]:
    return [trial.candidate for trial in search.propose(n)]


def candidate(number: int) -> Candidate:
    return Candidate(CandidateKind.TRACE, f"[{number}]", "rules:test")


def record(c: Candidate, latency_s: float | None) -> Record:
    measurement = (
        Measurement(Status.OK, (latency_s,)) if latency_s else Measurement(Status.RUN_FAILED)
    )
    return Record(Trial(TASK.key, c), measurement)


def ended(c: Candidate, status: Status) -> Record:
    return Record(Trial(TASK.key, c), Measurement(status))


class StrategyContract:
    """Subclass it as `Test...` with `made`, which makes a search from a task and a seed."""

    made: Callable[[Task, int], Search]

    @pytest.fixture
    def search(self) -> Search:
        """A search that has done nothing yet."""
        return type(self).made(TASK, 3)

    def test_gives_no_more_drafts_than_asked_for(self, search: Search) -> None:
        assert len(search.drafts(5)) <= 5
        assert search.drafts(0) == []

    def test_stops_ordering_when_enough_is_on_order(self, search: Search) -> None:
        ordered = 0
        while drafts := search.drafts(16):
            ordered += len(drafts)
            assert ordered < 10_000
        assert ordered > 0

    def test_same_seed_same_first_drafts(self) -> None:
        make = type(self).made
        assert make(TASK, 3).drafts(8) == make(TASK, 3).drafts(8)
        assert make(TASK, 3).drafts(8) != make(TASK, 4).drafts(8)

    def test_proposes_each_candidate_once(self, search: Search) -> None:
        proposed: list[str] = []
        for _ in range(30):
            drafts = search.drafts(16)
            search.absorb(Evaluated(d, candidate(d.seed % 40)) for d in drafts)
            proposed += [c.key for c in chosen_by(search, 4)]
        assert len(proposed) == len(set(proposed))

    def test_proposes_one_of_candidates_that_realise_to_the_same_program(
        self, search: Search
    ) -> None:
        drafts = search.drafts(16)
        search.absorb(Evaluated(d, candidate(d.number), code_hash="same") for d in drafts)
        assert len(chosen_by(search, 16)) == 1

    def test_does_not_propose_what_an_earlier_session_measured(self, search: Search) -> None:
        search.observe([record(candidate(n), 1.0) for n in range(20)])
        drafts = search.drafts(16)
        search.absorb(Evaluated(d, candidate(d.number % 20)) for d in drafts)
        assert chosen_by(search, 16) == []

    def test_does_not_propose_a_program_that_was_tried_whatever_came_of_it(
        self, search: Search
    ) -> None:
        """Also after a restart, when only the records are left."""
        tried = [record(candidate(1000), 1.0), record(candidate(1001), None)]
        search.observe(replace(r, code_hash=f"code {n}") for n, r in enumerate(tried))
        drafts = search.drafts(16)
        search.absorb(
            Evaluated(d, candidate(d.number), code_hash=f"code {i % 4}")
            for i, d in enumerate(drafts)
        )
        codes = {candidate(d.number).key: f"code {i % 4}" for i, d in enumerate(drafts)}
        assert {codes[c.key] for c in chosen_by(search, 16)} == {"code 2", "code 3"}

    def test_does_not_propose_the_twin_of_one_in_flight(self, search: Search) -> None:
        first, *others = search.drafts(16)
        search.absorb([Evaluated(first, candidate(0), code_hash="same")])
        search.absorb(Evaluated(d, error="refused") for d in others)
        assert chosen_by(search, 1) == [candidate(0)]
        for draft in search.drafts(4):
            search.absorb([Evaluated(draft, candidate(draft.number), code_hash="same")])
        assert chosen_by(search, 4) == []

    def test_a_space_that_only_repeats_itself_is_exhausted(self, search: Search) -> None:
        for _ in range(2000):
            if search.exhausted:
                return
            search.absorb(Evaluated(d, candidate(1)) for d in search.drafts(16))
            search.observe(record(c, 1.0) for c in chosen_by(search, 16))
        pytest.fail("never noticed")

    def test_a_space_whose_every_point_a_builder_refuses_is_exhausted(self, search: Search) -> None:
        for _ in range(2000):
            if search.exhausted:
                return
            search.absorb(
                Evaluated(d, of_knobs({"n": d.number}, "kernel:a")) for d in search.drafts(16)
            )
            search.observe(ended(c, Status.INVALID) for c in chosen_by(search, 4))
        pytest.fail("never noticed")

    def test_one_build_that_succeeds_is_hope_enough(self, search: Search) -> None:
        for round_ in range(100):
            search.absorb(
                Evaluated(d, of_knobs({"n": d.number}, "kernel:a")) for d in search.drafts(16)
            )
            status = Status.RUN_FAILED if round_ % 10 == 0 else Status.DUPLICATE
            search.observe(ended(c, status) for c in chosen_by(search, 4))
        assert not search.exhausted

    def test_a_space_that_gives_nothing_valid_is_exhausted(self, search: Search) -> None:
        for _ in range(2000):
            if search.exhausted:
                return
            search.absorb(Evaluated(d, error="refused") for d in search.drafts(16))
        pytest.fail("never noticed")
