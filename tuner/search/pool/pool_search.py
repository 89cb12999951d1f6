"""Evolution over a pool: the settings of a task's templates are all known before the first trial.

A space worker lists them once, with features and analytic estimates. The first trials are in turns
the best estimated and drawn ones, the better estimated the likelier. Then a rule chooses
(`tuner.search.pool.rules`). A listing is of thousands of settings where a template has millions:
after every few trials mutants of the fastest join the pool, and survive by what is expected of
them.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence

import numpy as np

from tuner.arrays import Features, Floats32, Rows
from tuner.candidate import Candidate, Draft, knobs_of
from tuner.cost_models.prior import NO_PRIORS, Priors
from tuner.cost_models.process import ESTIMATE_COLUMN
from tuner.measure import Evaluated
from tuner.record import Record, Status, Trial
from tuner.search.base import stream
from tuner.search.pool.rules import INCUMBENTS, Choice, Rule, Trials, fit
from tuner.search.pool.settings_pool import SettingsPool
from tuner.search.transfer import Seeds
from tuner.task import Task

_FIRST = 8
_ATTEMPTS = 3
_HOPELESS = 24
"""Trials without a time, after which a template is taken not to work here."""
_BREED_EVERY = 4
"""Trials between two generations of mutants."""


class PoolSearch:
    """Searches the settings of one task's templates.

    Args:
        seed: of everything random.
        seeds: candidates of this task to propose first, and those of similar tasks, near which
            settings are listed too.
        priors: see `SettingsPool`.
    """

    def __init__(
        self, task: Task, seed: int, rule: Rule, seeds: Seeds, priors: Priors = NO_PRIORS
    ) -> None:
        self._task, self._seed, self._rule = task, seed, rule
        self._rng = stream(seed, task.key, -1)
        self._pool = SettingsPool(priors)
        self._trials = Trials()
        self._first = deque(seeds.known)
        self._to_list: deque[Candidate | None] = deque([None, *seeds.parents])
        self._strange: list[Record] = []  # of candidates that were not listed
        self._number = self._out = self._bred = 0
        self._lost: Counter[Candidate | None] = Counter()
        self._asked: set[str] = set()  # keys of the candidates whose neighbours were listed
        self._expected: dict[int, tuple[float, int]] = {}
        """The logarithm of the latency that was expected of a setting when it was chosen, and the
        number of times that were known then."""

    def drafts(self, n: int) -> list[Draft]:
        """Drafts of listings: of the whole pool, of what was measured in an earlier session, and of
        mutants."""
        self._breed()
        drafts: list[Draft] = []
        while self._to_list and len(drafts) < n:
            parent = self._to_list.popleft()
            self._number += 1
            seed = stream(self._seed, self._task.key, self._number).randrange(2**31)
            drafts.append(Draft(self._task.key, self._number, seed, parent, listing=True))
        self._out += len(drafts)
        return drafts

    def _breed(self) -> None:
        """Have settings near the fastest listed, once enough was tried since the last time."""
        due = len(self._trials.times_s) // _BREED_EVERY
        if due > self._bred and not self._out:
            self._bred = due
            for number in self._trials.fastest(INCUMBENTS):
                self._list_near(self._pool.candidate(number))

    def _list_near(self, candidate: Candidate) -> None:
        """Have the settings near a candidate listed, once."""
        if candidate.key not in self._asked:
            self._asked.add(candidate.key)
            self._to_list.append(candidate)

    def absorb(self, evaluated: Iterable[Evaluated]) -> None:
        """Take in listings. One that was lost with its worker is asked for again, a few times."""
        for answer in evaluated:
            self._out -= 1
            if answer.error:
                self._lost[answer.draft.parent] += 1
                if self._lost[answer.draft.parent] < _ATTEMPTS:
                    self._to_list.append(answer.draft.parent)
            self._pool.add(answer.settings)
        strange, self._strange = self._strange, []
        self.observe(strange)

    def propose(self, n: int) -> list[Trial]:
        """The settings that the rule chooses."""
        trials: list[Trial] = []
        while len(trials) < n and (candidate := self._next()) is not None:
            trials.append(Trial(self._task.key, candidate))
        return trials

    def _next(self) -> Candidate | None:
        while self._first:
            candidate = self._first.popleft()
            number = self._pool.number(candidate)
            if candidate.key not in self._asked and number not in self._trials.known:
                self._list_near(candidate)
                if number is not None:
                    self._trials.waiting.add(number)
                return candidate
        untried = self._trials.untried(self._pool)
        if not len(untried):
            return None
        choice = self._choose(untried)
        self._trials.waiting.add(choice.number)
        if choice.expected is not None:
            self._expected[choice.number] = (choice.expected, len(self._trials.times_s))
        return self._pool.candidate(choice.number)

    def _choose(self, untried: Rows) -> Choice:
        """What the rule says; at first, in turns, the best estimated and one drawn, of the template
        that was tried least."""
        known = self._trials.known
        if len(known) >= _FIRST:
            return self._rule.choose(self._pool, self._trials, untried)
        of_template = self._pool.least_tried(untried, known)
        if len(known) % 2 == 0:
            return Choice(self._pool.best_estimated(of_template))
        return Choice(self._pool.draw(of_template, self._rng.random()))

    def observe(self, records: Iterable[Record]) -> None:
        """Learn from records. A candidate of an earlier session that was not listed is listed now,
        with its neighbours."""
        for record in records:
            candidate = record.trial.candidate
            if knobs_of(candidate) is None:
                continue
            if (number := self._pool.number(candidate)) is not None:
                self._know(number, record)
                continue
            self._strange.append(record)
            self._list_near(candidate)

    def _know(self, number: int, record: Record) -> None:
        self._trials.waiting.discard(number)
        measured = record.measurement
        # The fastest sample: other load of a machine only ever makes samples slower.
        given = measured.status in (Status.OK, Status.CENSORED, Status.DUPLICATE)
        latency_s = min(measured.samples_s, default=None) if given else None
        if latency_s is not None and number not in self._trials.times_s:
            self._trials.times_s[number] = latency_s
            self._trials.failed.discard(number)
        elif latency_s is None and number not in self._trials.times_s:
            self._trials.failed.add(number)

    def answer_for(self, candidate: Candidate) -> Evaluated | None:
        """See `tuner.search.base.KnowsCandidates`."""
        if (number := self._pool.number(candidate)) is None:
            return None
        expected, version = self._expected.get(number, (0.0, 0))
        return Evaluated(
            Draft(self._task.key, number, 0),
            candidate,
            score=-expected,
            model_version=version,
            estimate_s=float(np.exp2(self._pool.analytic([number])[0, ESTIMATE_COLUMN])),
        )

    @property
    def times(self) -> int:
        """See `tuner.search.base.KnowsCandidates`."""
        return len(self._trials.times_s)

    def examples(self) -> tuple[Features, Floats32]:
        """See `tuner.search.base.KnowsCandidates`."""
        times_s = self._trials.times_s
        return self._pool.analytic([*times_s]), np.array([*times_s.values()], dtype=np.float32)

    def expect_s(self, candidates: Sequence[Candidate]) -> Sequence[float] | None:
        """See `tuner.search.base.KnowsCandidates`."""
        numbers = [n for c in candidates if (n := self._pool.number(c)) is not None]
        if len(numbers) < len(candidates):  # one was not listed, as a default schedule is not
            return None
        model = fit(self._pool, self._trials.times_s)
        expected: list[float] = np.exp(model.means(self._pool.features[numbers])).tolist()
        return expected

    @property
    def hopeless(self) -> bool:
        """Whether many trials gave no time, and none did."""
        return not self._trials.times_s and len(self._trials.failed) >= _HOPELESS

    @property
    def exhausted(self) -> bool:
        """Whether every listed setting was proposed and no more are to be listed."""
        if self._out or self._to_list or self._first:
            return False
        return len(self._trials) == len(self._pool)
