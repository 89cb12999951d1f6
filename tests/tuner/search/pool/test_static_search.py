"""The search of a static task: templates where it has some, else traces."""

from __future__ import annotations

from tests.tuner.search.pool.grid import TASK, candidate, listing, record, settings
from tuner.candidate import Candidate, CandidateKind
from tuner.measure import Evaluated
from tuner.search.pool.rules import Neighbours
from tuner.search.pool.static_search import StaticSearch
from tuner.search.transfer import Seeds


def make_search() -> StaticSearch:
    return StaticSearch(TASK, 0, Neighbours(), Seeds())


def test_until_the_first_listing_is_answered_nothing_else_is_asked_for() -> None:
    search = make_search()
    (draft,) = search.drafts(10)
    assert draft.listing
    assert search.drafts(10) == []
    assert search.propose(1) == []
    assert not search.exhausted


def test_with_settings_their_pool_is_searched() -> None:
    search = make_search()
    search.absorb([listing(d, settings()) for d in search.drafts(1)])
    assert all(t.candidate.space == settings().space for t in search.propose(200))
    assert search.exhausted
    assert search.answer_for(candidate(1, 1)) is not None


def test_without_any_traces_evolve() -> None:
    search = make_search()
    search.absorb([listing(d) for d in search.drafts(1)])
    drafts = search.drafts(10)
    assert len(drafts) == 10
    assert not any(draft.listing for draft in drafts)
    trace = Candidate(CandidateKind.TRACE, "[[],[]]", "rules:llvm")
    search.absorb([Evaluated(drafts[0], trace), *(Evaluated(d, error="no") for d in drafts[1:])])
    assert search.answer_for(trace) is None


def test_a_lost_answer_says_neither() -> None:
    search = make_search()
    search.absorb([listing(d, error="lost") for d in search.drafts(1)])
    (draft,) = search.drafts(10)
    assert draft.listing
    assert draft.parent is None


def test_a_listing_that_fails_each_time_ends_in_traces_that_evolve() -> None:
    search = make_search()
    for attempt in range(3):
        (draft,) = search.drafts(10)
        assert draft.listing, attempt
        search.absorb([listing(draft, error="it always crashes")])
    assert not any(draft.listing for draft in search.drafts(10))


def test_records_that_came_before_the_answer_are_learned_from() -> None:
    search = make_search()
    search.observe([record(candidate(1, 1))])
    search.absorb([listing(d, settings()) for d in search.drafts(1)])
    drafts = search.drafts(10)
    search.absorb([listing(d) for d in drafts])
    found = {trial.candidate.key for trial in search.propose(1000)}
    assert candidate(1, 1).key not in found
    assert len(found) == 143


def fail(search: StaticSearch, count: int) -> None:
    search.observe(record(t.candidate, None) for t in search.propose(count))


def test_where_no_setting_of_a_template_works_traces_evolve() -> None:
    search = make_search()
    search.absorb([listing(d, settings()) for d in search.drafts(1)])
    fail(search, 30)
    drafts = search.drafts(10)
    assert len(drafts) == 10
    assert not any(draft.listing for draft in drafts)
    assert search.times == 0


def test_a_template_of_which_a_setting_works_is_kept() -> None:
    search = make_search()
    search.absorb([listing(d, settings()) for d in search.drafts(1)])
    search.observe([record(t.candidate) for t in search.propose(1)])
    fail(search, 30)
    assert all(t.candidate.space == settings().space for t in search.propose(200))
    assert search.times == 1
