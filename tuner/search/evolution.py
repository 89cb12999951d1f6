"""Steady-state evolutionary search: a rolling archive instead of generations.

Parents are drawn from the fastest candidates measured so far and, to look further than one
mutation, from the best that were only predicted. Valid and new children wait in a pool, ranked by
the cost model; children of several spaces compete in it, the first of each space that the user
declared ahead of all others. A proposal takes the top of the pool, or with probability epsilon any
of it. How often each space is drawn from is learned (see `tuner.search.shares`). Neighbours of
candidates in flight are held back, and their siblings a little, so that a batch is not ten
variations of one bet. Ansor and MetaSchedule evolve a population between two batches of trials;
here nothing waits for a generation to end: every answer and every record changes the next draft.
"""

from __future__ import annotations

import bisect
import math
import random
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass

from tuner.arrays import Features
from tuner.candidate import Candidate, Draft, family
from tuner.measure import Evaluated
from tuner.record import Record, Trial
from tuner.search.base import Freshness, stream
from tuner.search.diversity import crowding
from tuner.search.shares import Shares
from tuner.search.transfer import Seeds
from tuner.task import DECLARED, Task


@dataclass(frozen=True, slots=True)
class EvolutionSettings:
    """Knobs of the search.

    Attributes:
        pool_size: candidates that drafts should fill the pool to.
        ready_size: candidates in the pool below which a proposal waits while drafts are out.
        archive_size: measured candidates kept as parents.
        first_samples: candidates in the archive until which drafts are fresh samples or children of
            seeds only.
        seeded_share: share of these first drafts that are children of seeds, where there are seeds.
        fresh_share: share of later drafts that are fresh samples.
        predicted_share: share of parents taken from the pool instead of the archive.
        epsilon: share of proposals drawn from the whole pool instead of its top.
        rank_decay: weight of the archive's next rank against the one before.
        sibling_penalty: ranks that one sibling in flight costs, as a share of the pool.
        neighbour_penalty: ranks that the same place as a candidate in flight costs, as a share of
            the pool; less the further off (see `tuner.search.diversity`).
        drop_per_proposal: worst candidates of the pool that are dropped for each proposal. They
            make room for children of newer parents, so that one trial costs about this many drafts.
        patience: drafts in a row without a new candidate before the space counts as exhausted.
    """

    pool_size: int = 96
    ready_size: int = 48
    archive_size: int = 48
    first_samples: int = 8
    seeded_share: float = 0.5
    fresh_share: float = 0.15
    predicted_share: float = 0.25
    epsilon: float = 0.1
    rank_decay: float = 0.85
    sibling_penalty: float = 0.05
    neighbour_penalty: float = 1.0
    drop_per_proposal: int = 7
    patience: int = 400


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A candidate in the pool."""

    candidate: Candidate
    code_hash: str
    parent_key: str
    score: float
    model_version: int
    features: Features | None


@dataclass(slots=True)
class _Scale:
    """Mean and spread of one model version's scores, which make versions comparable."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def add(self, score: float) -> None:
        """Take in one score (Welford's update)."""
        self.count += 1
        delta = score - self.mean
        self.mean += delta / self.count
        self.squares += delta * (score - self.mean)

    def standardise(self, score: float) -> float:
        """The distance of a score above the version's mean, in standard deviations."""
        spread = math.sqrt(self.squares / self.count) if self.count > 1 else 0.0
        return (score - self.mean) / spread if spread > 0 else 0.0


class Evolution:
    """Evolutionary search over one task.

    Args:
        seed: of everything random.
        seeds: candidates of this task to propose before any other, and candidates of similar tasks
            to mutate in the beginning.
    """

    def __init__(
        self,
        task: Task,
        seed: int,
        settings: EvolutionSettings | None = None,
        *,
        seeds: Seeds | None = None,
    ) -> None:
        self._task = task
        self._seed = seed
        self._known = deque(seeds.known if seeds else ())  # to propose first
        self._foreign = seeds.parents if seeds else ()  # to mutate in the beginning
        self._settings = settings or EvolutionSettings()
        self._number = 0  # of the last draft
        self._ordered = 0  # drafts not answered yet
        self._pool: list[_Waiting] = []
        self._archive: list[Record] = []  # the fastest first
        self._in_flight: dict[str, str] = {}  # key of the parent by key of the candidate
        self._in_flight_features: dict[str, Features] = {}
        self._scales: dict[int, _Scale] = {}  # by the model's version
        self._fresh = Freshness(self._settings.patience)
        self._shares = Shares()
        self._tried: set[str] = set()  # names of spaces
        self._rng = stream(seed, task.key, -1)  # of proposals

    def drafts(self, n: int) -> list[Draft]:
        """Drafts that would fill the pool: mutations of good candidates, some fresh samples."""
        if self._fresh.dry:
            return []
        size = self._settings.pool_size
        n = max(0, min(n, size - len(self._pool) - self._ordered))
        self._ordered += n
        return [self._draft() for _ in range(n)]

    def _draft(self) -> Draft:
        self._number += 1
        rng = stream(self._seed, self._task.key, self._number)
        return Draft(
            self._task.key,
            self._number,
            rng.randrange(2**31),
            self._parent(rng),
            weights=self._shares.weights,
        )

    def _parent(self, rng: random.Random) -> Candidate | None:
        s = self._settings
        if len(self._archive) < s.first_samples:
            seeded = bool(self._foreign) and rng.random() < s.seeded_share
            return rng.choice(self._foreign) if seeded else None
        if rng.random() < s.fresh_share:
            return None
        if self._pool and rng.random() < s.predicted_share:
            best_first = sorted(self._pool, key=self._rank, reverse=True)
            # Skewed to the top of the best quarter.
            return best_first[int(len(best_first) / 4 * rng.random() ** 2)].candidate
        weights = [s.rank_decay**rank for rank in range(len(self._archive))]
        return rng.choices(self._archive, weights)[0].trial.candidate

    def absorb(self, evaluated: Iterable[Evaluated]) -> None:
        """Put valid and new candidates into the pool, and drop the worst of the pool."""
        for answer in evaluated:
            self._ordered -= 1
            if not answer.candidate or not self._fresh.admit(answer.candidate, answer.code_hash):
                self._fresh.miss()
                continue
            self._scales.setdefault(answer.model_version, _Scale()).add(answer.score)
            parent = answer.draft.parent
            self._pool.append(
                _Waiting(
                    answer.candidate,
                    answer.code_hash,
                    parent.key if parent else "",
                    answer.score,
                    answer.model_version,
                    answer.features,
                )
            )
        self._keep(self._settings.pool_size)

    def propose(self, n: int) -> list[Trial]:
        """The most promising candidates of the pool, spread over parents."""
        return [Trial(self._task.key, candidate) for candidate in self._chosen(n)]

    def _chosen(self, n: int) -> list[Candidate]:
        chosen = self._order_known_first(n)
        if chosen:
            return chosen
        waiting_for_more = self._ordered > 0 and not self._fresh.dry
        if waiting_for_more and len(self._pool) < self._settings.ready_size:
            return []
        while self._pool and len(chosen) < n:
            waiting = self._pool.pop(self._choose())
            self._tried.add(waiting.candidate.space)
            self._in_flight[waiting.candidate.key] = waiting.parent_key
            if waiting.features is not None:
                self._in_flight_features[waiting.candidate.key] = waiting.features
            chosen.append(waiting.candidate)
        dropped = self._settings.drop_per_proposal * len(chosen)
        self._keep(max(len(self._pool) - dropped, len(self._pool) // 2))  # never drop half at once
        return chosen

    def _order_known_first(self, n: int) -> list[Candidate]:
        """At most `n` seeds of this very task that were not measured in this run."""
        chosen: list[Candidate] = []
        while self._known and len(chosen) < n:
            candidate = self._known.popleft()
            if self._fresh.admit(candidate, ""):
                self._in_flight[candidate.key] = ""
                self._tried.add(candidate.space)
                chosen.append(candidate)
        return chosen

    def _choose(self) -> int:
        if self._rng.random() < self._settings.epsilon:
            return self._rng.randrange(len(self._pool))
        siblings = Counter(key for key in self._in_flight.values() if key)
        best_first = sorted(
            range(len(self._pool)), key=lambda i: self._rank(self._pool[i]), reverse=True
        )
        crowded = self._crowded()

        def penalised_rank(ranked: tuple[int, int]) -> float:
            rank, i = ranked
            penalty = self._settings.sibling_penalty * siblings[self._pool[i].parent_key]
            penalty += self._settings.neighbour_penalty * crowded[i]
            return rank + penalty * len(self._pool)

        return min(enumerate(best_first), key=penalised_rank)[1]

    def _crowded(self) -> list[float]:
        """The nearness of each candidate of the pool to those in flight; all 0 where not known."""
        features = [w.features for w in self._pool if w.features is not None]
        if not self._in_flight_features or len({len(f) for f in features}) != 1:
            return [0.0] * len(self._pool)
        near = iter(crowding(features, list(self._in_flight_features.values())))
        return [0.0 if w.features is None else next(near) for w in self._pool]

    def _keep(self, n: int) -> None:
        """Drop all but the best `n` of the pool; the others may turn up again."""
        if len(self._pool) <= n:
            return
        self._pool.sort(key=self._rank, reverse=True)
        for waiting in self._pool[n:]:
            self._fresh.forget(waiting.candidate, waiting.code_hash)
        del self._pool[n:]

    def observe(self, records: Iterable[Record]) -> None:
        """Archive candidates that were timed; forget those that are no longer in flight."""
        for record in records:
            candidate = record.trial.candidate
            self._in_flight.pop(candidate.key, None)
            self._in_flight_features.pop(candidate.key, None)
            self._fresh.know(record)
            self._shares.know(record)
            self._tried.add(candidate.space)
            if record.latency_s is not None and record.trial.rung == 0:
                bisect.insort(self._archive, record, key=_speed)
                del self._archive[self._settings.archive_size :]

    @property
    def exhausted(self) -> bool:
        """Whether the space gave no new candidate for a long time and the pool is empty."""
        return self._fresh.dry and not self._pool and not self._known and self._ordered <= 0

    def _rank(self, waiting: _Waiting) -> tuple[bool, float]:
        """Whether it is of a declared space that was never tried, then the standardised score: raw
        scores of different model versions cannot be compared."""
        space = waiting.candidate.space
        score = self._scales[waiting.model_version].standardise(waiting.score)
        return family(space) == DECLARED and space not in self._tried, score


def _speed(record: Record) -> tuple[float, str]:
    """Sort key: the fastest candidate first, of equals always the same one."""
    return record.latency_s or math.inf, record.trial.candidate.key
