"""Recorded settings of templates: drafts are answered in the order of estimate and cost model."""

from __future__ import annotations

import statistics
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tuner.candidate import Candidate, Draft, knobs_of, of_knobs
from tuner.measure import Evaluated
from tuner.record import Measurement, Status
from tuner.replay.recorded import Recorded
from tuner.replay.recording import Recording, Row, load, save
from tuner.replay.replay import ReplaySpacePool
from tuner.task import Task

SPACE = "kernel:test-1"
ROWS, LANES = 20, 15


def candidate(rows: int, lanes: int, space: str = SPACE) -> Candidate:
    return of_knobs({"rows": rows, "lanes": lanes}, space)


def setting(rows: int, lanes: int, space: str = SPACE) -> Recorded:
    features = np.array([1.0, 0.0, rows, lanes], dtype=np.float32)
    measured = Measurement(Status.OK, (1e-3,))
    return Recorded(candidate(rows, lanes, space), features, measured, estimate_s=1e-6 * (1 + rows))


def grid(space: str = SPACE) -> list[Recorded]:
    return [setting(rows, lanes, space) for rows in range(ROWS) for lanes in range(LANES)[::-1]]


def answers(space: list[Recorded], parent: Candidate | None = None) -> list[Evaluated]:
    pool = ReplaySpacePool({"t": space}, capacity=10**6)
    pool.submit([Draft("t", n, seed=n, parent=parent) for n in range(400)])
    return pool.collect(0.0)


def knobs(answer: Evaluated, name: str) -> int:
    assert answer.candidate is not None
    found = knobs_of(answer.candidate)
    assert found is not None
    return found[name]


def test_fresh_drafts_come_in_the_order_of_the_estimate() -> None:
    found = [knobs(answer, "rows") for answer in answers(grid())]
    assert statistics.median(found) < ROWS / 8
    assert max(found) > ROWS / 2  # now and then what the estimate dislikes


def test_a_mutation_changes_few_knobs_by_little() -> None:
    for answer in answers(grid(), candidate(10, 7)):
        changed = [abs(knobs(answer, "rows") - 10), abs(knobs(answer, "lanes") - 7)]
        assert min(changed) == 0
        assert 0 < max(changed) <= 7


def test_templates_are_drawn_by_their_best_estimate_and_by_what_was_learned() -> None:
    slow = [
        Recorded(r.candidate, r.features, r.measurement, estimate_s=3 * r.estimate_s)
        for r in grid("kernel:slow-1")
    ]
    spaces = [a.candidate.space for a in answers([*grid(), *slow]) if a.candidate]
    assert 0.8 < spaces.count(SPACE) / len(spaces) < 1.0


def list_settings(space: list[Recorded], parent: Candidate | None = None) -> list[Candidate]:
    pool = ReplaySpacePool({"t": space})
    pool.submit([Draft("t", 1, seed=1, parent=parent, listing=True)])
    (answer,) = pool.collect(0.0)
    assert answer.candidate is None
    return [s.candidate(row) for s in answer.settings for row in range(len(s))]


def test_a_listing_has_all_fresh_samples_and_what_was_bred_shows_near_its_kin() -> None:
    bred = replace(setting(10, 8), parent=candidate(10, 7).key)
    space = [bred if r.candidate == bred.candidate else r for r in grid()]
    everything = list_settings(space)
    assert len(everything) == ROWS * LANES - 1
    assert bred.candidate not in everything
    near = list_settings(space, candidate(10, 7))
    assert near[0] == candidate(10, 7)
    assert bred.candidate in near
    assert list_settings(space, candidate(1, 1, "kernel:other-1")) == []


def test_answers_carry_the_estimate() -> None:
    for answer in answers(grid()):
        assert answer.estimate_s == pytest.approx(1e-6 * (1 + knobs(answer, "rows")))


def test_a_file_brings_settings_estimates_and_rounds_back(tmp_path: Path) -> None:
    rows = tuple(
        Row(
            candidate(n, 1).key, SPACE, str(n), "", Status.OK,
            (2e-3, 1e-3, 1e-3, 3e-3), 0.1, 0.1, estimate_s=1e-6 * n,
        )
        for n in range(3)
    )  # fmt: skip
    kept = Recording(
        Task("k" * 16, "t", "{}", "{}"),
        "cpu",
        "1",
        rows,
        np.zeros((3, 2), dtype=np.float32),
        payloads={candidate(n, 1).key: candidate(n, 1).payload for n in range(3)},
    )
    save(kept, path := tmp_path / "t.npz")
    found = load(path).recorded()
    assert [r.candidate for r in found] == [candidate(n, 1) for n in range(3)]
    assert [r.estimate_s for r in found] == pytest.approx([0.0, 1e-6, 2e-6])
    assert [r.rounds_s for r in found] == [pytest.approx((1e-3, 1e-3, 3e-3))] * 3
    assert [r.measurement.latency_s for r in found] == pytest.approx([1e-3] * 3)
