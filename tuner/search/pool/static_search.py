"""The search of a static task: of its templates' settings, or of whatever else its space holds.

Which of the two it is, the first listing tells: a task without a template, and one with spaces or a
cost model of the user's, has no settings to list, and its traces evolve (`tuner.search.evolution`).
So do those of a task whose templates turn out not to work on these machines.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tuner.arrays import Features, Floats32
from tuner.candidate import Candidate, Draft
from tuner.cost_models.prior import NO_PRIORS, Priors
from tuner.measure import Evaluated
from tuner.record import Record, Trial
from tuner.search.base import Search
from tuner.search.evolution import Evolution
from tuner.search.pool.pool_search import PoolSearch
from tuner.search.pool.rules import Rule
from tuner.search.transfer import Seeds
from tuner.task import Task


class StaticSearch:
    """Searches a task's templates where it has some, else evolves traces.

    Args:
        rule: chooses among settings.
        priors: see `tuner.search.pool.settings_pool.SettingsPool`.
    """

    def __init__(
        self, task: Task, seed: int, rule: Rule, seeds: Seeds, priors: Priors = NO_PRIORS
    ) -> None:
        self._task, self._seed, self._seeds = task, seed, seeds
        self._search: Search = PoolSearch(task, seed, rule, seeds, priors)
        self._known: list[Record] = []  # while another search may have to learn from them
        self._undecided, self._asked = True, False

    def drafts(self, n: int) -> list[Draft]:
        """See `Search`."""
        if not self._undecided:
            return self._search.drafts(n)
        first = [] if self._asked else self._search.drafts(min(n, 1))
        self._asked |= bool(first)
        return first

    def absorb(self, evaluated: Iterable[Evaluated]) -> None:
        """See `Search`."""
        answers = list(evaluated)
        self._search.absorb(answers)
        if self._undecided and answers:
            self._decide(answers)

    def _decide(self, answers: Sequence[Evaluated]) -> None:
        """Take the first listing as the decision; one that was lost with its worker, and is asked
        for again, is none."""
        self._asked = False
        if all(answer.error for answer in answers) and not self._search.exhausted:
            return
        self._undecided = False
        if not any(answer.settings for answer in answers):
            self._search = self._evolution()
        known, self._known = self._known, []
        self.observe(known)

    def propose(self, n: int) -> list[Trial]:
        """See `Search`."""
        return [] if self._undecided else self._search.propose(n)

    def observe(self, records: Iterable[Record]) -> None:
        """See `Search`."""
        found = list(records)
        self._known += found
        if self._undecided:
            return
        self._search.observe(found)
        if isinstance(self._search, PoolSearch) and self._search.hopeless:
            self._search = self._evolution()
            self._search.observe(self._known)
        if not isinstance(self._search, PoolSearch) or any(r.latency_s for r in found):
            self._known.clear()

    def _evolution(self) -> Evolution:
        return Evolution(self._task, self._seed, seeds=self._seeds)

    def answer_for(self, candidate: Candidate) -> Evaluated | None:
        """See `tuner.search.base.KnowsCandidates`."""
        search = self._search
        return search.answer_for(candidate) if isinstance(search, PoolSearch) else None

    @property
    def times(self) -> int:
        """See `tuner.search.base.KnowsCandidates`."""
        return self._search.times if isinstance(self._search, PoolSearch) else 0

    def examples(self) -> tuple[Features, Floats32]:
        """See `tuner.search.base.KnowsCandidates`; of a task without a pool none are asked for."""
        assert isinstance(self._search, PoolSearch)
        return self._search.examples()

    def expect_s(self, candidates: Sequence[Candidate]) -> Sequence[float] | None:
        """See `tuner.search.base.KnowsCandidates`."""
        search = self._search
        return search.expect_s(candidates) if isinstance(search, PoolSearch) else None

    @property
    def exhausted(self) -> bool:
        """See `Search`."""
        return not self._undecided and self._search.exhausted
