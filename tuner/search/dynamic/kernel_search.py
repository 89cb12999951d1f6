"""The search for micro-kernels of a task with symbolic dimensions.

A trial is a pair of a kernel and a shape; `tuner.search.dynamic.acquisition` chooses the next one.
This keeps a pool of kernels to choose from, and learns from records.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tuner.candidate import Candidate, CandidateKind, Draft, generic_of
from tuner.dynamic.kernel_set import KernelSet
from tuner.dynamic.shapes import choose_measured
from tuner.measure import Evaluated
from tuner.record import Record, Trial
from tuner.search.base import Freshness, stream
from tuner.search.dynamic.acquisition import Pair, Prospects
from tuner.search.dynamic.kernel_selection import choose_kernels
from tuner.search.dynamic.kernel_table import Kernel, Kernels, kernel_of
from tuner.search.dynamic.retiming import rivals
from tuner.search.dynamic.small_shape_fallback import smallest
from tuner.search.dynamic.subset_selection import select
from tuner.task import Instance, Task

_ENOUGH, _DOUBTED, _LEAST_DOUBTED = 8, 2.5, 0.2
"""Times are doubted once `_ENOUGH` pairs are measured: those that are above the prediction by more
than `_DOUBTED` standard deviations and by more than `_LEAST_DOUBTED`, as logarithms."""
_FIRST_CHOICE = 4
"""Kernels in the pool before the first pair is chosen."""


@dataclass(frozen=True, slots=True)
class KernelSearchSettings:
    """Knobs of the search.

    Attributes:
        pool_size: kernels that drafts should fill the pool to.
        ready_size: kernels in the pool below which a proposal waits while drafts are out.
        hope: standard deviations that the optimistic bound of a latency lies below its prediction.
        fresh_share: share of drafts that are fresh samples, once kernels were measured.
        rank_decay: weight of the next best parent against the one before.
        dropped: worst kernels of the pool that are dropped for each new kernel that is proposed.
        patience: drafts in a row without a new kernel before the space counts as exhausted.
        spare: finalists beyond the number of kernels wanted; the last is for the smallest shape.
            Unless it is 0, each shape gets one more finalist, if one seems as good on it.
    """

    pool_size: int = 40
    ready_size: int = 16
    hope: float = 1.0
    fresh_share: float = 0.25
    rank_decay: float = 0.7
    dropped: int = 1
    patience: int = 300
    spare: int = 3


class KernelSearch:
    """Searches the kernels of one task.

    Args:
        seed: of everything random.
        most: most kernels in the set that is searched.
    """

    def __init__(
        self, task: Task, seed: int, most: int, settings: KernelSearchSettings | None = None
    ) -> None:
        self._task, self._seed, self._most = task, seed, most
        self._settings = settings or KernelSearchSettings()
        self._kernels = Kernels(task.shapes, fastest=True)
        anchors = choose_measured(task.shapes)
        self._anchors = [self._kernels.place(instance) or 0 for instance, _ in anchors]
        self._weights = np.array([weight for _, weight in anchors], dtype=np.float64)
        self._prospects = Prospects(
            self._kernels, self._anchors, self._weights, most, self._settings.hope
        )
        self._pending: dict[str, list[Record]] = {}
        self._unknown: list[Candidate] = []
        self._number = self._ordered = self._useless = 0
        self._fresh = Freshness(self._settings.patience)
        self._best: Pair | None = None
        self._stale = True

    def drafts(self, n: int) -> list[Draft]:
        """Drafts that would fill the pool, each for a shape drawn by weight."""
        told = [self._describe(c) for c in self._unknown[:n]]
        del self._unknown[: len(told)]
        n = min(n - len(told), self._settings.pool_size - len(self._prospects.pool) - self._ordered)
        if self._fresh.dry or n <= 0:
            return told
        self._ordered += n
        return [*told, *(self._draft() for _ in range(n))]

    def _describe(self, candidate: Candidate) -> Draft:
        self._ordered += 1
        return Draft(self._task.key, 0, 0, candidate, describe=True)

    def _draft(self) -> Draft:
        self._number += 1
        rng = stream(self._seed, self._task.key, self._number)
        (place,) = rng.choices(self._anchors, self._weights.tolist())
        return Draft(
            self._task.key,
            self._number,
            rng.randrange(2**31),
            self._parent(rng, place),
            self._kernels.instances[place],
        )

    def _parent(self, rng: random.Random, place: int) -> Candidate | None:
        known = self._kernels.measured
        if not known or rng.random() < self._settings.fresh_share:
            return None
        order = np.argsort(self._kernels.latencies_s(known, [place])[:, 0], kind="stable")
        weights = [self._settings.rank_decay**rank for rank in range(len(order))]
        return self._kernels[known[int(rng.choices(order.tolist(), weights)[0])]].candidate

    def absorb(self, evaluated: Iterable[Evaluated]) -> None:
        """Put new kernels into the pool; put kernels of an earlier session into the table."""
        self._stale = True
        for answer in evaluated:
            self._ordered -= 1
            kernel = kernel_of(answer)
            if kernel is None:
                self._fresh.miss()
                continue
            if answer.draft.describe:
                self._kernels.add(kernel)
                self._take(self._pending.pop(kernel.candidate.key, ()))
            elif self._fresh.admit(kernel.candidate, answer.code_hash):
                self._prospects.pool.append(self._kernels.add(kernel))
            else:
                self._fresh.miss()

    def propose(self, n: int) -> list[Trial]:
        """The pairs with the largest expected gain."""
        chosen: list[Trial] = []
        while len(chosen) < n and self._ready:
            pair = self._best_pair()
            if pair is None:  # nothing in the pool is worth a trial: look for others
                self._drop_worst(len(self._prospects.pool) // 2)
                break
            number, place = pair
            self._stale = True
            self._useless = 0
            if self._prospects.take(pair):
                self._drop_worst(self._settings.dropped)
            kernel, instance = self._kernels[number], self._kernels.instances[place]
            chosen.append(Trial(self._task.key, kernel.candidate, instance))
        return chosen

    @property
    def _ready(self) -> bool:
        """Whether the pool is full enough to choose from, or no draft is out. The first pairs are
        chosen from fewer kernels: builders wait for them."""
        wanted = min(self._settings.ready_size, _FIRST_CHOICE + 2 * len(self._prospects.proposed))
        short = len(self._prospects.pool) < wanted and self._ordered > 0
        return not short or self._fresh.dry

    def _best_pair(self) -> Pair | None:
        """The pair with the largest expected gain; computed again only after a change."""
        if self._stale:
            self._best, self._stale = self._prospects.next_pair(), False
        return self._best

    def _drop_worst(self, number: int) -> None:
        """Make room in the pool for children of better parents."""
        number = min(number, len(self._prospects.pool) - self._settings.ready_size)
        if number <= 0:
            return
        self._useless += number
        self._stale = True
        self._prospects.drop_worst(number)

    def observe(self, records: Iterable[Record]) -> None:
        """Learn from records; have kernels of an earlier session described."""
        self._stale = True
        for record in records:
            candidate = record.trial.candidate
            if candidate.kind is CandidateKind.SPECIALISED:
                continue
            number = self._kernels.number(candidate)
            self._fresh.know(record)
            if number is not None:
                self._take([record])
            elif record.trial.instance:
                if candidate.key not in self._pending:
                    self._unknown.append(candidate)
                self._pending.setdefault(candidate.key, []).append(record)

    def doubts(self, record: Record) -> bool:
        """See `tuner.search.base.Doubts`."""
        candidate = record.trial.candidate
        if candidate.kind is CandidateKind.SPECIALISED:  # should be no slower than its kernel
            candidate, _ = generic_of(candidate)
        number = self._kernels.number(candidate)
        place = self._kernels.place(record.trial.instance)
        fastest_s = min(record.measurement.samples_s, default=0.0)  # also if it was cut off
        if number is None or place is None or not 0 < fastest_s < math.inf:
            return False
        if self._kernels.pairs < _ENOUGH:
            return False
        (expected_s,), (spread,) = (each[0] for each in self._kernels.forecast([number], [place]))
        above = math.log(fastest_s / expected_s)
        return bool(above > max(_DOUBTED * spread, _LEAST_DOUBTED))

    def _take(self, records: Iterable[Record]) -> None:
        for record in records:
            self._kernels.observe(record)
            number = self._kernels.number(record.trial.candidate)
            place = self._kernels.place(record.trial.instance)
            if number is not None:
                self._prospects.settle(number, place, record.measurement.build_s)

    def finalists(self) -> list[tuple[Candidate, Instance]]:
        """Kernels for the set, each with every shape that is measured, and their rivals, each with
        the shapes where it may be better."""
        known = self._kernels.measured
        if not known:
            return []
        latencies_s, spreads = self._kernels.of_measured().forecast(known, self._anchors)
        layouts = [self._kernels[n].layout for n in known]
        most = self._most + self._settings.spare
        chosen = list(select(latencies_s, self._weights, most, layouts).kernels)
        alike = [row for row, layout in enumerate(layouts) if layout == layouts[chosen[0]]]
        smallest_s = latencies_s[:, smallest([self._kernels.instances[p] for p in self._anchors])]
        fallback = min(alike, key=lambda row: float(smallest_s[row]))
        if fallback not in chosen:
            chosen = [*chosen[: most - 1], fallback]
        if self._settings.spare:
            room = most - len(chosen)
            more = rivals(latencies_s, spreads, self._weights, chosen, alike, room)
        else:
            more = [[] for _ in self._anchors]
        return [
            (self._kernels[known[row]].candidate, self._kernels.instances[place])
            for place, others in zip(self._anchors, more, strict=True)
            for row in (*chosen, *others)
        ]

    def kernel_set(self, records: Sequence[Record]) -> KernelSet | None:
        """See `tuner.search.base.ChoosesKernels`."""
        return choose_kernels(self._task, records, self._kernel, self._most)

    def _kernel(self, candidate: Candidate) -> Kernel | None:
        number = self._kernels.number(candidate)
        return None if number is None else self._kernels[number]

    @property
    def exhausted(self) -> bool:
        """Whether no new kernels turn up and no pair has an expected gain."""
        if self._ordered > 0 or self._unknown or self._prospects.building:
            return False
        dry = self._fresh.dry or self._useless > self._settings.patience
        return dry and self._best_pair() is None
