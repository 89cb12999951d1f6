"""Evolution over a pool: listed once, bred from the fastest, resumed from records."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from itertools import pairwise

import pytest

from tests.tuner.search.pool.grid import (
    OTHER,
    TASK,
    candidate,
    listing,
    record,
    settings,
    true_s,
)
from tuner.candidate import Candidate, CandidateKind, knobs_of, of_knobs
from tuner.record import Measurement, Record, Status, Trial
from tuner.search.pool.pool_search import PoolSearch
from tuner.search.pool.rules import Improvement, Neighbours
from tuner.search.transfer import Seeds


def make_search(seeds: Seeds = Seeds(), seed: int = 0) -> PoolSearch:  # noqa: B008 - frozen
    return PoolSearch(TASK, seed, Neighbours(), seeds)


def begin(seeds: Seeds = Seeds()) -> PoolSearch:  # noqa: B008 - frozen
    search = make_search(seeds)
    drafts = search.drafts(99)
    search.absorb(listing(d, *([settings()] if d.parent is None else [])) for d in drafts)
    return search


def propose(search: PoolSearch, count: int) -> list[Candidate]:
    return [trial.candidate for trial in search.propose(count)]


def test_the_whole_pool_is_asked_for_once() -> None:
    search = make_search()
    (draft,) = search.drafts(10)
    assert (draft.listing, draft.parent) == (True, None)
    assert search.drafts(10) == []
    assert search.propose(1) == []
    assert not search.exhausted


def test_a_listing_that_was_lost_is_asked_for_again() -> None:
    search = make_search()
    (draft,) = search.drafts(10)
    search.absorb([listing(draft, error="lost: its machine is gone")])
    (again,) = search.drafts(10)
    assert (again.listing, again.parent) == (True, None)


def test_one_that_fails_each_time_is_not_asked_for_for_ever() -> None:
    search = begin()
    search.observe([record(candidate(40, 40))])
    asked = 0
    while drafts := search.drafts(10):
        search.absorb(listing(draft, error="it always crashes") for draft in drafts)
        asked += len(drafts)
    assert asked == 3


def test_the_first_are_in_turns_the_best_estimated_and_drawn_ones() -> None:
    first = [(knobs_of(c) or {})["rows"] for c in propose(begin(), 8)]
    assert first[::2] == [0, 0, 0, 0]
    assert max(first[1::2]) > 0
    assert propose(begin(), 8) == propose(begin(), 8)


def test_nothing_is_proposed_twice_and_the_end_is_known() -> None:
    search = begin()
    found = propose(search, 1000)
    assert len({c.key for c in found}) == len(found) == 144
    assert search.exhausted


def test_after_every_four_times_mutants_of_the_fastest_are_listed() -> None:
    search = begin()
    for c in propose(search, 3):
        search.observe([record(c)])
    assert search.drafts(10) == []
    search.observe(record(c) for c in propose(search, 1))
    drafts = search.drafts(10)
    assert len(drafts) == 3
    assert all(d.listing for d in drafts)
    times = [true_s(d.parent) for d in drafts if d.parent]
    assert all(a <= b for a, b in pairwise(times))
    search.absorb([listing(drafts[0], settings([(40, 40)])), *map(listing, drafts[1:])])
    assert candidate(40, 40) in propose(search, 1000)
    assert search.drafts(10) == []


def test_of_several_templates_each_is_tried_among_the_first() -> None:
    """Though the estimates of one are better than those of the other."""
    search = make_search()
    parts = settings(), settings(space=OTHER, slower=1.01)
    search.absorb([listing(d, *parts) for d in search.drafts(1)])
    assert Counter(c.space for c in propose(search, 8)) == {settings().space: 4, OTHER: 4}


def test_candidates_of_an_earlier_session_are_known_and_not_tried_again() -> None:
    """Also one that was a mutant, which the first listing does not have."""
    search, mutant = make_search(), candidate(40, 40)
    search.observe([record(candidate(1, 1)), record(mutant)])
    drafts = search.drafts(10)
    assert [d.parent for d in drafts] == [None, candidate(1, 1), mutant]
    search.absorb(
        [
            listing(drafts[0], settings()),
            listing(drafts[1]),
            listing(drafts[2], settings([(40, 40)])),
        ]
    )
    found = propose(search, 1000)
    assert len(found) == 143
    assert not {candidate(1, 1).key, mutant.key} & {c.key for c in found}


def test_one_that_failed_is_not_tried_again_and_is_no_incumbent() -> None:
    search = begin()
    first, *others = propose(search, 10)
    search.observe([record(first, None)])
    search.observe(record(c) for c in others)
    assert first not in propose(search, 1000)


def test_records_of_other_kinds_are_none_of_its_business() -> None:
    search = begin()
    default = Candidate(CandidateKind.TRACE, "[[],[]]", "default")
    search.observe([Record(Trial(TASK.key, default), Measurement(Status.OK, (1.0,)))])
    assert search.drafts(10) == []
    assert len(propose(search, 1000)) == 144


def test_seeds_of_the_task_come_first_and_those_of_others_are_looked_around() -> None:
    mine, foreign = candidate(5, 5), of_knobs({"rows": 3, "lanes": 70}, settings().space)
    search = make_search(Seeds(known=(mine,), parents=(foreign,)))
    drafts = search.drafts(10)
    assert [d.parent for d in drafts] == [None, foreign]
    search.absorb([listing(drafts[0], settings()), listing(drafts[1], settings([(3, 70)]))])
    found = propose(search, 1000)
    assert found[0] == mine
    assert len(found) == len({c.key for c in found}) == 145


def test_what_is_known_of_a_candidate_is_told() -> None:
    search = begin()
    answer = search.answer_for(candidate(5, 1))
    assert answer is not None
    assert answer.estimate_s == pytest.approx(1e-3 * (1.0 + 0.02 * 5))
    assert search.answer_for(candidate(99, 1)) is None


def test_what_the_process_expected_of_a_setting_is_told() -> None:
    search = PoolSearch(TASK, 0, Improvement(), Seeds())
    search.absorb([listing(d, settings()) for d in search.drafts(1)])
    told = []
    for _ in range(40):
        (trial,) = search.propose(1)
        answer = search.answer_for(trial.candidate)
        assert answer is not None
        if answer.model_version:
            told.append(abs(-answer.score - math.log(true_s(trial.candidate))))
        search.observe([record(trial.candidate)])
    assert len(told) > 20
    assert statistics.median(told) < 0.05
    features, latencies_s = search.examples()
    assert len(features) == len(latencies_s) == search.times == 40
