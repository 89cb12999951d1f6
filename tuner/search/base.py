"""Search strategies over one task: the choice of its next trials from its records. No I/O.

A search is rebuilt from the store after a restart: feed `observe` the task's records.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, runtime_checkable

from tuner.arrays import Features, Floats32
from tuner.candidate import Candidate, Draft
from tuner.dynamic.kernel_set import KernelSet
from tuner.measure import Evaluated
from tuner.record import Record, Status, Trial
from tuner.task import Instance, Task


class Search(Protocol):
    """One task's search. Called from one thread."""

    def drafts(self, n: int) -> list[Draft]:
        """At most `n` drafts of candidates; fewer where enough are known or requested."""

    def absorb(self, evaluated: Iterable[Evaluated]) -> None:
        """Take in answers to drafts."""

    def propose(self, n: int) -> list[Trial]:
        """At most `n` new trials, of rung 0: neither the candidate, nor another that realises to
        the same program, was proposed or tried on that shape before, however that ended."""

    def observe(self, records: Iterable[Record]) -> None:
        """Learn from rung-0 records of this task."""

    @property
    def exhausted(self) -> bool:
        """Whether no new candidates turn up any more and all known ones were proposed."""


@runtime_checkable
class ChoosesFinalists(Protocol):
    """A search that chooses the finalists of its task itself."""

    def finalists(self) -> list[tuple[Candidate, Instance]]:
        """Candidates and the shapes to time them on, those of one shape together."""


@runtime_checkable
class Doubts(Protocol):
    """A search that predicts the times of its trials."""

    def doubts(self, record: Record) -> bool:
        """Whether the time of a record, not observed yet, is so far above the prediction that the
        machine is more likely the cause than the candidate."""


@runtime_checkable
class KnowsCandidates(Protocol):
    """A search that proposes candidates of listings, which no draft was answered with, and learns
    their times by a model of its own."""

    def answer_for(self, candidate: Candidate) -> Evaluated | None:
        """What is known of a candidate, as the answer to a draft; None where nothing is."""

    @property
    def times(self) -> int:
        """The number of candidates with a time."""

    def examples(self) -> tuple[Features, Floats32]:
        """Their features and latencies, seconds."""

    def expect_s(self, candidates: Sequence[Candidate]) -> Sequence[float] | None:
        """The latencies that its model expects of candidates with a time; None without a model."""


@runtime_checkable
class ChoosesKernels(Protocol):
    """A search that chooses a few kernels for all shapes of its task."""

    def kernel_set(self, records: Sequence[Record]) -> KernelSet | None:
        """The kernel set, from all records of the task; None where no kernel has a time."""


SearchMaker = Callable[[Task, int], Search]
"""Makes the search of a task from the run's seed."""


def stream(seed: int, task_key: str, number: int) -> random.Random:
    """The random stream of one draft of one task."""
    text = f"{seed}/{task_key}/{number}".encode()
    return random.Random(int.from_bytes(hashlib.sha256(text).digest()[:8], "big"))


class Freshness:
    """Remembers the candidates seen so far, and notices when no new ones turn up.

    Candidates that realise to the same program count as the same: one timing serves all. The
    program of some is known only once a builder has written it.

    Args:
        patience: drafts in a row without a new candidate, or builds in a row that gave no new
            program, after which the space counts as exhausted.
    """

    def __init__(self, patience: int) -> None:
        self._patience = patience
        self._misses = self._unwritten = 0
        self._keys: set[str] = set()
        self._codes: set[str] = set()

    def admit(self, candidate: Candidate, code_hash: str) -> bool:
        """Whether the candidate is new; remembers it if so."""
        if candidate.key in self._keys or (code_hash and code_hash in self._codes):
            return False
        self._keys.add(candidate.key)
        if code_hash:
            self._codes.add(code_hash)
        self._misses = 0
        return True

    def forget(self, candidate: Candidate, code_hash: str) -> None:
        """Forget a candidate that was never measured, so that it counts as new again."""
        self._keys.discard(candidate.key)
        self._codes.discard(code_hash)

    def know(self, record: Record) -> None:
        """Remember a record's candidate and its program, however the trial ended."""
        self._keys.add(record.trial.candidate.key)
        if record.code_hash:
            self._codes.add(record.code_hash)
        gave_none = record.measurement.status in (Status.INVALID, Status.DUPLICATE)
        self._unwritten = self._unwritten + 1 if gave_none else 0

    def miss(self) -> None:
        """Count a draft that gave no new candidate."""
        self._misses += 1

    @property
    def dry(self) -> bool:
        """Whether `patience` drafts or builds in a row gave nothing new."""
        return max(self._misses, self._unwritten) >= self._patience


def by_task(evaluated: Sequence[Evaluated]) -> dict[str, list[Evaluated]]:
    """Answers grouped by the key of their task."""
    groups: dict[str, list[Evaluated]] = {}
    for answer in evaluated:
        groups.setdefault(answer.draft.task_key, []).append(answer)
    return groups
