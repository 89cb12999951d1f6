"""Random samples of the space, in the order they come: the replay of traces, and of functions."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from tuner.candidate import Candidate, Draft
from tuner.measure import Evaluated
from tuner.record import Record, Trial
from tuner.search.base import Freshness, stream
from tuner.task import Task


class RandomSearch:
    """Replays the space's sketches with random decisions; proposes them in the order they come.

    Args:
        anew: what makes the sketches runs anew for each sample, so that what it does may depend on
            what it draws (MetaSchedule's replay of functions).
    """

    def __init__(
        self,
        task: Task,
        seed: int,
        *,
        anew: bool = False,
        pool_size: int = 16,
        patience: int = 200,
    ) -> None:
        self._task = task
        self._anew = anew
        self._seed = seed
        self._pool_size = pool_size
        self._number = 0
        self._ordered = 0
        self._pool: deque[Candidate] = deque()
        self._fresh = Freshness(patience)

    def drafts(self, n: int) -> list[Draft]:
        """Fresh samples, as many as fill the pool."""
        if self._fresh.dry:
            return []
        n = max(0, min(n, self._pool_size - len(self._pool) - self._ordered))
        orders = []
        for _ in range(n):
            self._number += 1
            rng = stream(self._seed, self._task.key, self._number)
            orders.append(
                Draft(self._task.key, self._number, rng.randrange(2**31), anew=self._anew)
            )
        self._ordered += n
        return orders

    def absorb(self, evaluated: Iterable[Evaluated]) -> None:
        """Keep candidates that are valid and new."""
        for answer in evaluated:
            self._ordered -= 1
            if answer.candidate and self._fresh.admit(answer.candidate, answer.code_hash):
                self._pool.append(answer.candidate)
            else:
                self._fresh.miss()

    def propose(self, n: int) -> list[Trial]:
        """The candidates that have waited longest."""
        number = min(n, len(self._pool))
        return [Trial(self._task.key, self._pool.popleft()) for _ in range(number)]

    def observe(self, records: Iterable[Record]) -> None:
        """Remember the candidates that were measured, and learn nothing from them."""
        for record in records:
            self._fresh.know(record)

    @property
    def exhausted(self) -> bool:
        """Whether the space gave no new candidate for a long time and the pool is empty."""
        return self._fresh.dry and not self._pool and self._ordered <= 0
