"""Evolution: parents are fast, the pool is ranked, batches are spread."""

from __future__ import annotations

from collections import Counter

import numpy as np

from tuner.candidate import Candidate, CandidateKind
from tuner.measure import Evaluated
from tuner.record import Measurement, Record, Status, Trial
from tuner.search.base import Search
from tuner.search.evolution import Evolution, EvolutionSettings
from tuner.task import Task

TASK = Task("key", "name", "module", "target")


def chosen_by(search: Search, n: int) -> list[Candidate]:
    return [trial.candidate for trial in search.propose(n)]


def candidate(number: int) -> Candidate:
    return Candidate(CandidateKind.TRACE, f"[{number}]", "rules:test")


def ok(number: int, latency_s: float) -> Record:
    return Record(Trial(TASK.key, candidate(number)), Measurement(Status.OK, (latency_s,)))


def test_the_first_drafts_are_fresh_samples() -> None:
    drafts = Evolution(TASK, 1).drafts(20)
    assert all(d.parent is None for d in drafts)


def test_parents_are_drawn_from_the_fastest() -> None:
    search = Evolution(TASK, 1, EvolutionSettings(pool_size=1000, predicted_share=0.0))
    search.observe(ok(n, 1e-3 * (n + 1)) for n in range(40))
    parents = Counter(d.parent.key for d in search.drafts(1000) if d.parent)
    fast = sum(parents[candidate(n).key] for n in range(10))
    slow = sum(parents[candidate(n).key] for n in range(30, 40))
    assert fast > 5 * slow
    assert 700 < parents.total() < 1000, "some drafts stay fresh samples"


def test_the_best_scored_is_proposed_first() -> None:
    search = Evolution(TASK, 1, EvolutionSettings(epsilon=0.0, ready_size=1))
    drafts = search.drafts(30)
    search.absorb(Evaluated(d, candidate(d.number), score=float(d.number)) for d in drafts)
    best = max(d.number for d in drafts)
    assert chosen_by(search, 1) == [candidate(best)]


def test_siblings_of_candidates_in_flight_are_held_back() -> None:
    search = Evolution(
        TASK,
        1,
        EvolutionSettings(
            epsilon=0.0, first_samples=2, fresh_share=0.0, ready_size=1, sibling_penalty=0.2
        ),
    )
    search.observe([ok(1001, 1e-3), ok(1002, 1.1e-3)])
    drafts = search.drafts(60)
    favourite = candidate(1001).key

    def score(parent: Candidate | None) -> float:
        return 1.0 if parent and parent.key == favourite else 0.99

    search.absorb(Evaluated(d, candidate(d.number), score=score(d.parent)) for d in drafts)
    parent_of = {candidate(d.number).key: d.parent.key for d in drafts if d.parent}
    chosen = Counter(parent_of[c.key] for c in chosen_by(search, 8))
    assert len(chosen) == 2


def clones_and_others(search: Evolution) -> tuple[set[str], list[Candidate]]:
    """Twenty near-clones of the most promising, then twenty that lie elsewhere; a batch of six."""
    drafts = search.drafts(40)
    clones = {candidate(d.number).key for d in drafts[:20]}

    def features(place: int) -> np.ndarray:
        where = [0.001 * place, 0.0] if place < 20 else [float(place), float(place % 7)]
        return np.array(where, dtype=np.float32)

    search.absorb(
        Evaluated(d, candidate(d.number), score=-0.1 * i, features=features(i))
        for i, d in enumerate(drafts)
    )
    return clones, chosen_by(search, 6)


def test_near_clones_of_the_top_candidate_do_not_fill_a_batch() -> None:
    clones, batch = clones_and_others(Evolution(TASK, 1, EvolutionSettings(epsilon=0.0)))
    assert batch[0].key in clones, "the most promising comes first"
    assert sum(c.key in clones for c in batch) <= 2
    off = EvolutionSettings(epsilon=0.0, neighbour_penalty=0.0)
    clones, batch = clones_and_others(Evolution(TASK, 1, off))
    assert all(c.key in clones for c in batch), "what the penalty is there for"


def test_the_same_answers_give_the_same_batch() -> None:
    batches = [clones_and_others(Evolution(TASK, 1))[1] for _ in range(2)]
    assert batches[0] == batches[1]


def test_a_neighbour_is_welcome_again_once_the_one_in_flight_is_back() -> None:
    search = Evolution(TASK, 1, EvolutionSettings(epsilon=0.0, drop_per_proposal=0))
    clones, batch = clones_and_others(search)
    search.observe(
        Record(Trial(TASK.key, c), Measurement(Status.RUN_FAILED, error="crash")) for c in batch
    )
    assert chosen_by(search, 1)[0].key in clones


def test_candidates_of_several_spaces_share_the_pool_and_the_archive() -> None:
    def of_space(number: int, space: str) -> Candidate:
        return Candidate(CandidateKind.TRACE, f"[{number}]", space)

    search = Evolution(TASK, 1, EvolutionSettings(epsilon=0.0, ready_size=1, fresh_share=0.0))
    drafts = search.drafts(20)
    spaces = [f"space:{i % 3}" for i in range(20)]
    search.absorb(
        Evaluated(d, of_space(d.number, s), score=float(d.number))
        for d, s in zip(drafts, spaces, strict=True)
    )
    batch = chosen_by(search, 12)
    assert {c.space for c in batch} == set(spaces)
    search.observe(
        Record(Trial(TASK.key, c), Measurement(Status.OK, (1e-3 * (i + 1),)))
        for i, c in enumerate(batch)
    )
    assert {d.parent.space for d in search.drafts(200) if d.parent} == set(spaces)


def test_the_first_candidate_of_each_declared_space_is_tried_whatever_its_score() -> None:
    search = Evolution(TASK, 1, EvolutionSettings(epsilon=0.0, ready_size=1, pool_size=20))
    drafts = search.drafts(20)
    others = Candidate(CandidateKind.TRACE, "[99]", "declared:by_hand")
    search.absorb(Evaluated(d, candidate(d.number), score=50.0 + d.number) for d in drafts[:8])
    assert chosen_by(search, 1)[0].space == "rules:test"
    search.absorb([Evaluated(drafts[8], others, score=-1e6)])
    search.absorb(Evaluated(d, candidate(d.number), score=90.0 + d.number) for d in drafts[9:])
    assert chosen_by(search, 1) == [others], "nor was it dropped from a full pool"
    assert chosen_by(search, 1)[0].space == "rules:test"


def test_drafts_tell_spaces_what_the_search_has_learned() -> None:
    search = Evolution(TASK, 1)
    assert search.drafts(1)[0].weights == ()
    search.observe(ok(n, 1e-3) for n in range(8))
    assert dict(search.drafts(1)[0].weights) == {"rules:test": 1.0}


def test_scores_of_different_model_versions_are_not_compared_raw() -> None:
    search = Evolution(TASK, 1, EvolutionSettings(epsilon=0.0, ready_size=1))
    drafts = search.drafts(40)
    old, new = drafts[:20], drafts[20:]
    search.absorb(
        Evaluated(d, candidate(d.number), score=100.0 + i, model_version=1)
        for i, d in enumerate(old)
    )
    search.absorb(
        Evaluated(d, candidate(d.number), score=0.01 * i * i, model_version=2)
        for i, d in enumerate(new)
    )
    assert chosen_by(search, 1) == [candidate(new[-1].number)]


def test_a_proposal_waits_for_a_choice_while_more_is_on_order() -> None:
    search = Evolution(TASK, 1, EvolutionSettings(ready_size=10))
    drafts = search.drafts(20)
    search.absorb(Evaluated(d, candidate(d.number)) for d in drafts[:5])
    assert chosen_by(search, 1) == []
    search.absorb(Evaluated(d, candidate(d.number)) for d in drafts[5:])
    assert len(chosen_by(search, 1)) == 1
