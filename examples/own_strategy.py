"""A search strategy of one's own: simulated annealing, one chain for each task.

tuner tune examples/gemm.py:gemm --strategy examples/own_strategy.py
"""

from __future__ import annotations

import itertools
import math
import random
from collections import deque
from collections.abc import Iterable

from tuner.candidate import Candidate, Draft
from tuner.measure import Evaluated
from tuner.record import Record, Trial
from tuner.search.base import Freshness
from tuner.task import Task


class Annealing:
    """Mutates where the chain stands; a slower candidate is accepted less and less often."""

    def __init__(self, task: Task, seed: int) -> None:
        self._task, self._rng = task, random.Random(f"{seed}/{task.key}")
        self._at: Candidate | None = None  # where the chain stands
        self._at_s, self._temperature = math.inf, 0.5
        self._numbers, self._ordered = itertools.count(1), 0
        self._waiting: deque[Candidate] = deque()
        self._fresh = Freshness(patience=200)

    def drafts(self, n: int) -> list[Draft]:
        n = 0 if self._fresh.dry else max(0, min(n, 8 - self._ordered - len(self._waiting)))
        self._ordered += n
        seeds = [self._rng.randrange(2**31) for _ in range(n)]
        return [Draft(self._task.key, next(self._numbers), seed, self._at) for seed in seeds]

    def absorb(self, evaluated: Iterable[Evaluated]) -> None:
        for answer in evaluated:
            self._ordered -= 1
            if answer.candidate and self._fresh.admit(answer.candidate, answer.code_hash):
                self._waiting.append(answer.candidate)
            else:
                self._fresh.miss()

    def propose(self, n: int) -> list[Trial]:
        n = min(n, len(self._waiting))
        return [Trial(self._task.key, self._waiting.popleft()) for _ in range(n)]

    def observe(self, records: Iterable[Record]) -> None:
        for record in records:
            self._fresh.know(record)
            if record.latency_s is None or record.trial.rung:
                continue
            worse = math.log(record.latency_s / self._at_s) if self._at else 0.0
            if worse <= 0 or self._rng.random() < math.exp(-worse / self._temperature):
                self._at, self._at_s = record.trial.candidate, record.latency_s
            self._temperature *= 0.97

    @property
    def exhausted(self) -> bool:
        return self._fresh.dry and not self._waiting and self._ordered <= 0


STRATEGY = Annealing
