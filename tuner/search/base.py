"""Search strategies over one task: what to try next, given what is known. No I/O.

A search is rebuilt from the store after a restart: feed `observe` the task's records.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, runtime_checkable

from tuner.candidate import Candidate, Draft
from tuner.kernel_set import KernelSet
from tuner.measure import Evaluated
from tuner.record import Record, Trial
from tuner.task import Instance, Task


class Search(Protocol):
    """One task's search. Called from one thread."""

    def drafts(self, n: int) -> list[Draft]:
        """At most `n` drafts of candidates; fewer where enough are known or requested."""

    def absorb(self, evaluated: Iterable[Evaluated]) -> None:
        """Take answers to drafts in."""

    def propose(self, n: int) -> list[Trial]:
        """At most `n` trials, of rung 0. None was proposed or tried before, and no candidate of
        the same program was for the same shape, whether that gave a time or failed."""

    def observe(self, records: Iterable[Record]) -> None:
        """Learn how rung-0 trials of this task ended."""

    @property
    def exhausted(self) -> bool:
        """Whether nothing new turns up any more and all that did was proposed."""


@runtime_checkable
class ChoosesFinalists(Protocol):
    """A search that knows itself who should be timed again."""

    def finalists(self) -> list[tuple[Candidate, Instance]]:
        """Candidates and the shapes to time them on, those of one shape together."""


@runtime_checkable
class Doubts(Protocol):
    """A search that expects something of its trials."""

    def doubts(self, record: Record) -> bool:
        """Whether a time, not observed yet, is so far above what was expected that it is more
        likely the machine's doing than the candidate's."""


@runtime_checkable
class ChoosesKernels(Protocol):
    """A search whose task gets a few kernels for all its shapes."""

    def kernel_set(self, records: Sequence[Record]) -> KernelSet | None:
        """The kernels, from all records of the task; None where nothing of use was measured."""


SearchMaker = Callable[[Task, int], Search]
"""Makes the search of a task from the run's seed."""


def stream(seed: int, task_key: str, number: int) -> random.Random:
    """The random stream of one draft of one task."""
    text = f"{seed}/{task_key}/{number}".encode()
    return random.Random(int.from_bytes(hashlib.sha256(text).digest()[:8], "big"))


class Freshness:
    """Remembers what turned up before, and notices when nothing new does.

    Candidates that realise to the same program count as the same: one timing serves all.
    """

    def __init__(self, patience: int) -> None:
        self._patience = patience
        self._misses = 0
        self._keys: set[str] = set()
        self._codes: set[str] = set()

    def admit(self, candidate: Candidate, code_hash: str) -> bool:
        """Whether the candidate is new; remembers it if so."""
        key = candidate.key
        if key in self._keys or (code_hash and code_hash in self._codes):
            return False
        self._keys.add(key)
        if code_hash:
            self._codes.add(code_hash)
        self._misses = 0
        return True

    def forget(self, candidate: Candidate, code_hash: str) -> None:
        """Let a candidate that was never measured turn up again."""
        self._keys.discard(candidate.key)
        self._codes.discard(code_hash)

    def know(self, record: Record) -> None:
        """Remember a candidate that was tried, however that ended, and its program."""
        self._keys.add(record.trial.candidate.key)
        if record.code_hash:
            self._codes.add(record.code_hash)

    def miss(self) -> None:
        """A draft gave nothing new."""
        self._misses += 1

    @property
    def dry(self) -> bool:
        """Whether as many drafts in a row as the patience allows gave nothing new."""
        return self._misses >= self._patience


def by_task(evaluated: Sequence[Evaluated]) -> dict[str, list[Evaluated]]:
    """Answers grouped by the task they are of."""
    groups: dict[str, list[Evaluated]] = {}
    for answer in evaluated:
        groups.setdefault(answer.draft.task_key, []).append(answer)
    return groups
