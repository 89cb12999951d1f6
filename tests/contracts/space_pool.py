"""The contract of `tuner.measure.SpacePool`, for every implementation."""

from __future__ import annotations

import time
from collections import Counter

from tuner.candidate import Draft
from tuner.cost_models.process import ESTIMATE_COLUMN
from tuner.measure import Evaluated, SpacePool

_PATIENCE_S = 120.0


class SpacePoolContract:
    """Subclass it as `Test...` with fixtures `pool` and `task_key`."""

    def evaluate(self, pool: SpacePool, drafts: list[Draft]) -> list[Evaluated]:
        """Answers to all drafts."""
        until_s = time.monotonic() + _PATIENCE_S
        while pool.free() < 1:
            assert time.monotonic() < until_s, "no worker became free"
            pool.collect(0.2)
        pool.submit(drafts)
        answers: list[Evaluated] = []
        while len(answers) < len(drafts):
            assert time.monotonic() < until_s, f"{len(answers)} of {len(drafts)}"
            answers += pool.collect(0.5)
        return answers

    def test_every_draft_is_answered_once(self, pool: SpacePool, task_key: str) -> None:
        drafts = [Draft(task_key, n, seed=n) for n in range(20)]
        answers = self.evaluate(pool, drafts)
        assert Counter(a.draft for a in answers) == Counter(drafts)
        assert pool.collect(0.0) == []

    def test_a_valid_answer_has_a_candidate_and_features_of_one_length(
        self, pool: SpacePool, task_key: str
    ) -> None:
        answers = self.evaluate(pool, [Draft(task_key, n, seed=n) for n in range(12)])
        valid = [a for a in answers if a.candidate is not None]
        assert valid
        lengths = {a.features.shape for a in valid if a.features is not None}
        assert len(lengths) == 1
        assert all(a.features is not None for a in valid)

    def test_an_invalid_answer_says_why(self, pool: SpacePool, task_key: str) -> None:
        answers = self.evaluate(pool, [Draft(task_key, n, seed=n) for n in range(40)])
        assert all(a.error for a in answers if a.candidate is None)

    def test_the_same_draft_gives_the_same_candidate(self, pool: SpacePool, task_key: str) -> None:
        first = self.evaluate(pool, [Draft(task_key, n, seed=n) for n in range(8)])
        again = self.evaluate(pool, [Draft(task_key, n, seed=n) for n in range(8)])

        def candidates(answers: list[Evaluated]) -> dict[int, object]:
            return {a.draft.number: a.candidate for a in answers}

        assert candidates(first) == candidates(again)

    def test_a_mutation_of_a_parent_is_answered_too(self, pool: SpacePool, task_key: str) -> None:
        answers = self.evaluate(pool, [Draft(task_key, n, seed=n) for n in range(8)])
        parent = next(a.candidate for a in answers if a.candidate is not None)
        children = self.evaluate(
            pool, [Draft(task_key, 100 + n, seed=n, parent=parent) for n in range(12)]
        )
        keys = {c.candidate.key for c in children if c.candidate is not None}
        assert keys - {parent.key}

    def test_answers_come_scored_once_there_is_a_model(
        self, pool: SpacePool, task_key: str, model: bytes
    ) -> None:
        pool.use_model(3, model)
        answers = self.evaluate(pool, [Draft(task_key, n, seed=n) for n in range(16)])
        valid = [a for a in answers if a.candidate is not None]
        assert {a.model_version for a in valid} == {3}

    def test_a_listing_is_answered_once_with_settings_or_with_none(
        self, pool: SpacePool, task_key: str
    ) -> None:
        draft = Draft(task_key, 1, seed=1, listing=True)
        (answer,) = self.evaluate(pool, [draft])
        assert (answer.draft, answer.candidate, answer.error) == (draft, None, "")
        for settings in answer.settings:
            candidates = [settings.candidate(row) for row in range(len(settings))]
            assert len({c.key for c in candidates}) == len(settings) == len(settings.features)
            estimates = settings.features[:, ESTIMATE_COLUMN].tolist()
            assert estimates == sorted(estimates)
