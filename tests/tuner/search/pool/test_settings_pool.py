"""The pool of settings: each once, found again by its candidate."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tuner.search.pool.grid import OTHER, SIDE, SPACE, candidate, pool, settings, true_s
from tuner.candidate import Candidate, CandidateKind, form_of, of_knobs
from tuner.cost_models.prior import PriorModel
from tuner.search.pool.settings_pool import SettingsPool


def test_each_setting_is_in_it_once() -> None:
    made = pool(settings([(1, 1), (2, 2)]))
    assert made.add([settings([(2, 2), (3, 3)])]) == [2]
    assert len(made) == len(made.estimates_s) == len(made.spaces) == len(made.features) == 3
    assert [made.candidate(n) for n in range(3)] == [candidate(n, n) for n in (1, 2, 3)]


def test_a_candidate_has_the_number_it_was_listed_under() -> None:
    made = pool()
    assert all(made.number(made.candidate(n)) == n for n in range(SIDE * SIDE))


def test_what_was_not_listed_has_none() -> None:
    made = pool(settings([(1, 1)]))
    assert made.number(candidate(2, 1)) is None
    assert made.number(candidate(1, 1, OTHER)) is None
    assert made.number(of_knobs({"rows": 1}, SPACE)) is None
    assert made.number(Candidate(CandidateKind.TRACE, "[]", SPACE)) is None


def test_settings_of_several_templates_are_told_apart() -> None:
    made = pool(settings([(1, 1)]), settings([(1, 1)], space=OTHER))
    assert made.number(candidate(1, 1, OTHER)) == 1
    assert made.spaces.tolist() == [0, 1]


def test_how_many_knobs_differ() -> None:
    made = pool(settings([(1, 1), (1, 5), (4, 4)]), settings([(1, 1)], space=OTHER))
    assert made.changes(0).tolist() == [0, 1, 2, 3]


def test_what_is_known_of_other_tasks_corrects_estimates_and_the_analytic_ones_stay() -> None:
    listed = settings()
    prior = PriorModel()
    true = np.array([true_s(listed.candidate(n)) for n in range(len(listed))], dtype=np.float32)
    prior.fit(listed.features, true, np.zeros(len(true), dtype=np.int32))
    made = SettingsPool({form_of(SPACE): prior})
    numbers = made.add([listed])
    assert np.log(made.estimates_s / true).std() < 0.02
    assert made.estimates_s.min() == pytest.approx(np.exp2(settings().features[:, 1].min()))
    assert made.analytic(numbers).tolist() == settings().features.tolist()
    assert made.analytic([]).shape == (0, listed.features.shape[1])
    unknown = SettingsPool({"kernel:other-1": prior})
    unknown.add([listed])
    assert unknown.features.tolist() == settings().features.tolist()
