"""The search for micro-kernels of a task with symbolic dimensions.

A trial is a pair of a kernel and a shape. A pair is worth what the kernel is expected to save,
weighted over all shapes, beyond the best set of kernels known so far (the marginal gain; DietCode
takes the kernel's best shape alone). Predictions are taken at the hopeful end of their error, so
what is uncertain is tried, and what a kernel is on one shape decides whether it is measured on
others. Weights packed ahead tie kernels together: of each layout a set is kept, and the layout of
the most hopeful set gets the next pair.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tuner.candidate import Candidate, CandidateKind, Draft, opened
from tuner.dynamic.choice import choose_kernels
from tuner.dynamic.fallback import smallest
from tuner.dynamic.gains import saved, spared
from tuner.dynamic.kernel_set import KernelSet
from tuner.dynamic.kernels import Kernel, Kernels, kernel_of
from tuner.dynamic.residuals import Floats
from tuner.dynamic.rivals import LEAST, rivals
from tuner.dynamic.selection import select, select_each
from tuner.measure import Evaluated
from tuner.record import Record, Trial
from tuner.search import Freshness, stream
from tuner.shapes import measured_shapes
from tuner.task import Instance, Task

_BASE_S, _RUNS = 0.05, 5.0
"""What a trial takes: so long, and so many runs of the kernel."""
_BUILD_S, _AT_ONCE = 0.3, 2
"""What a build takes before one was seen, and how many are made at once."""

_LOOKS, _NEARLY = 4, 1.25
"""Shapes that a space is tried on, whatever was learned, where its estimates come so near the best
of all."""
_ENOUGH, _DOUBTED, _LEAST_DOUBTED = 8, 2.5, 0.2
"""With so many pairs measured, a time is doubted that is so many standard deviations above what was
expected, and at least so much, as logarithms."""
_FIRST_CHOICE = 4
"""Kernels to choose the first pair from."""


@dataclass(frozen=True, slots=True)
class KernelSearchSettings:
    """Knobs of the search.

    Attributes:
        pool_size: kernels waiting that it aims for; a proposal waits for `ready_size` of them
            while more are on order.
        hope: standard deviations by which predictions are taken to be too high.
        fresh_share: of drafts that are fresh samples, once kernels were measured.
        rank_decay: weight of the next best parent against the one before.
        dropped: of the pool's worst, dropped for each new kernel that is proposed.
        patience: drafts in a row with nothing new before the space counts as searched through.
        spare: finalists beyond the number of kernels wanted; the last is for the smallest shape.
            With any, each shape has one more, that seems as good on it as those.
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
        most: kernels in the set that is looked for.
    """

    def __init__(
        self, task: Task, seed: int, most: int, settings: KernelSearchSettings | None = None
    ) -> None:
        self._task, self._seed, self._most = task, seed, most
        self._settings = settings or KernelSearchSettings()
        self._kernels = Kernels(task.shapes, fastest=True)
        anchors = measured_shapes(task.shapes)
        self._anchors = [self._kernels.place(instance) or 0 for instance, _ in anchors]
        self._weights = np.array([weight for _, weight in anchors], dtype=np.float64)
        self._pool: list[int] = []
        self._pending: dict[str, list[Record]] = {}
        self._unknown: list[Candidate] = []
        self._building: set[int] = set()
        self._proposed: set[tuple[int, int]] = set()
        self._number = self._ordered = self._useless = 0
        self._fresh = Freshness(self._settings.patience)
        self._builds_s: list[float] = []
        self._best: tuple[int, int] | None = None
        self._stale = True

    def drafts(self, n: int) -> list[Draft]:
        """Orders that would fill the pool, each for one shape, the heavy ones the likeliest."""
        told = [self._described(c) for c in self._unknown[:n]]
        del self._unknown[: len(told)]
        n = min(n - len(told), self._settings.pool_size - len(self._pool) - self._ordered)
        if self._fresh.dry or n <= 0:
            return told
        self._ordered += n
        return [*told, *(self._draft() for _ in range(n))]

    def _described(self, candidate: Candidate) -> Draft:
        self._ordered += 1
        return Draft(self._task.key, 0, 0, candidate, describe=True)

    def _draft(self) -> Draft:
        self._number += 1
        rng = stream(self._seed, self._task.key, self._number)
        anchor = rng.choices(range(len(self._anchors)), self._weights.tolist())[0]
        place = self._anchors[anchor]
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
        """Put new kernels into the pool; those that were asked about into the table."""
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
                self._pool.append(self._kernels.add(kernel))
            else:
                self._fresh.miss()

    def propose(self, n: int) -> list[Trial]:
        """The pairs of the largest expected gain."""
        chosen: list[Trial] = []
        while len(chosen) < n and self._ready:
            pair = self._best_pair()
            if pair is None:  # nothing in the pool is worth a trial: look for others
                self._drop_worst(len(self._pool) // 2)
                break
            number, place = pair
            self._stale = True
            self._proposed.add(pair)
            self._useless = 0
            if number in self._pool:
                self._pool.remove(number)
                self._building.add(number)
                self._drop_worst(self._settings.dropped)
            chosen.append(
                Trial(
                    self._task.key,
                    self._kernels[number].candidate,
                    self._kernels.instances[place],
                )
            )
        return chosen

    @property
    def _ready(self) -> bool:
        """Whether there is a choice, or nothing to wait for. The first pairs are proposed from a
        smaller one: builders wait for them."""
        wanted = min(self._settings.ready_size, _FIRST_CHOICE + 2 * len(self._proposed))
        short = len(self._pool) < wanted and self._ordered > 0
        return not short or self._fresh.dry

    def _best_pair(self) -> tuple[int, int] | None:
        """The pair of the largest expected gain; looked for again when anything changed."""
        if self._stale:
            self._best, self._stale = self._found_pair(), False
        return self._best

    def _found_pair(self) -> tuple[int, int] | None:
        measured = self._kernels.measured
        numbers = [*measured, *self._pool]
        if not numbers:
            return None
        if (hedge := self._hedge(numbers)) is not None:
            return hedge
        latencies_s, spreads = self._kernels.forecast(numbers, self._anchors)
        hopeful = self._hopeful(latencies_s, spreads)
        layouts = [self._kernels[n].layout for n in numbers]
        goals = select_each(hopeful, self._weights, self._most, layouts)
        for group in sorted(goals, key=lambda group: goals[group].loss):
            rows = [row for row, layout in enumerate(layouts) if layout == group]
            mine = [numbers[row] for row in rows]
            gains = self._gains(mine, latencies_s[rows], spreads[rows], group)
            efforts = np.sqrt(_BASE_S + _RUNS * latencies_s[rows])
            for wanted in self._wanted(gains):
                pair = self._pick(mine, wanted, efforts)
                if pair is not None:
                    return pair
        return None

    def _wanted(self, gains: Floats) -> list[Floats]:
        """Gains that the next pair is to be chosen by, and those where there is none by these: of
        all shapes, and every other time first of the one that was looked at least for its weight,
        among those where there is something to gain. Kernels that seem good for many shapes would
        otherwise come first for ever, and what one shape needs alone would not be found."""
        promising = gains.max(axis=0) > LEAST * self._weights
        if len(self._proposed) % 2 == 0 or not promising.any():
            return [gains]
        looks = Counter(place for _, place in self._proposed)
        seen = np.array([looks[place] + 1 for place in self._anchors]) / self._weights
        least = np.where(promising, seen, np.inf).argmin()
        return [gains * (np.arange(len(seen)) == least), gains]

    def _hedge(self, numbers: Sequence[int]) -> tuple[int, int] | None:
        """The pair of the least estimate, for its shape, of a space that nothing was tried of, or
        little of what its estimates promise: they may be wrong about all kernels of a space, and
        one trial of it may have been where it is worst."""
        tried = {(self._kernels[n].candidate.space, place) for n, place in self._proposed}
        if not tried:
            return None
        looks = Counter(space for space, _ in tried)
        spaces = [self._kernels[number].candidate.space for number in numbers]
        unknown = any(looks[space] == 0 for space in spaces)
        most, limit = (0, np.inf) if unknown else (_LOOKS - 1, _NEARLY)
        estimates_s = self._kernels.estimates_s(numbers, self._anchors)
        lost = estimates_s / estimates_s.min(axis=0)
        for row, (number, space) in enumerate(zip(numbers, spaces, strict=True)):
            open_ = looks[space] <= most and number not in self._building
            new = [open_ and (space, place) not in tried for place in self._anchors]
            lost[row, ~(new & (lost[row] <= limit))] = np.inf
        row, column = np.unravel_index(lost.argmin(), lost.shape)
        return (numbers[row], self._anchors[column]) if np.isfinite(lost[row, column]) else None

    def _pick(
        self, numbers: Sequence[int], gains: Floats, efforts: Floats
    ) -> tuple[int, int] | None:
        """The kernel that gains most for what it takes to have it, of those with a shape left to
        measure, on the shape where most of the gain is, for what it takes to measure."""
        built = np.array([number not in self._pool for number in numbers])
        build_s = float(np.median(self._builds_s)) if self._builds_s else _BUILD_S
        efforts_s = _BASE_S + np.where(built, 0.0, build_s / _AT_ONCE)
        # While builders have enough to do, the machine waits for what is built already.
        worth = gains.sum(axis=1) / efforts_s ** (1.0 if len(self._building) >= _AT_ONCE else 0.5)
        for row in np.argsort(-worth, kind="stable"):
            number = numbers[int(row)]
            if number in self._building:
                continue
            left = [
                (float(gains[row, column] / efforts[row, column]), -column)
                for column, place in enumerate(self._anchors)
                if (number, place) not in self._proposed
            ]
            if left and max(left)[0] > 0.0:
                return number, self._anchors[-max(left)[1]]
        return None

    def _drop_worst(self, number: int) -> None:
        """Make room in the pool for children of better parents."""
        number = min(number, len(self._pool) - self._settings.ready_size)
        if number <= 0:
            return
        self._useless += number
        self._stale = True
        hopeful = self._hopeful(*self._kernels.forecast(self._pool, self._anchors))
        worth = (hopeful / hopeful.min(axis=0)).min(axis=1)
        worst = np.argsort(-worth, kind="stable")[:number].tolist()
        self._kernels.drop(self._pool[row] for row in worst)
        self._pool = [kernel for row, kernel in enumerate(self._pool) if row not in worst]

    def _hopeful(self, latencies_s: Floats, spreads: Floats) -> Floats:
        """The hopeful end of forecasts."""
        return np.asarray(latencies_s * np.exp(-self._settings.hope * spreads))

    def _gains(
        self, numbers: Sequence[int], latencies_s: Floats, spreads: Floats, layout: str
    ) -> Floats:
        """What to know of each pair is worth, weighted: a kernel that may be faster than what
        serves a shape by what it would save, the one that serves it by what would be lost with it
        if it is slower than it seems."""
        known = self._kernels.measured
        mine = [n for n in known if self._kernels[n].layout == layout] or known
        if not mine:
            return self._weights * saved(latencies_s, spreads, np.full(len(self._anchors), np.inf))
        times_s = self._kernels.latencies_s(mine, self._anchors)
        chosen = np.array(select(times_s, self._weights, self._most).kernels)
        serving = chosen[times_s[chosen].argmin(axis=0)]
        shapes = np.arange(len(self._anchors))
        now_s = times_s[serving, shapes]
        times_s[serving, shapes] = np.inf
        next_s = times_s.min(axis=0)
        serves = np.asarray(numbers)[:, None] == np.asarray(mine)[serving]
        faster = saved(latencies_s, spreads, now_s)
        slower = spared(latencies_s, spreads, next_s) / now_s
        return np.asarray(self._weights * np.where(serves, slower, faster))

    def observe(self, records: Iterable[Record]) -> None:
        """Learn from trials; ask about kernels of an earlier session."""
        self._stale = True
        for record in records:
            candidate = record.trial.candidate
            if candidate.kind is CandidateKind.CLOSED:
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
        """See `tuner.search.Doubts`."""
        candidate = record.trial.candidate
        if candidate.kind is CandidateKind.CLOSED:  # it should take no longer than its kernel
            candidate, _ = opened(candidate)
        number = self._kernels.number(candidate)
        place = self._kernels.place(record.trial.instance)
        fastest_s = min(record.measurement.samples_s, default=0.0)  # of one that was cut off too
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
            if record.measurement.build_s:
                self._builds_s.append(record.measurement.build_s)
            number = self._kernels.number(record.trial.candidate)
            place = self._kernels.place(record.trial.instance)
            if number is not None:
                self._building.discard(number)
                if number in self._pool:
                    self._pool.remove(number)
                if place is not None:
                    self._proposed.add((number, place))

    def finalists(self) -> list[tuple[Candidate, Instance]]:
        """Kernels for the set, each with every shape that is measured, and those that could well
        be better, each with the shapes where they could."""
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
        """See `tuner.search.ChoosesKernels`."""
        return choose_kernels(self._task, records, self._kernel, self._most)

    def _kernel(self, candidate: Candidate) -> Kernel | None:
        number = self._kernels.number(candidate)
        return None if number is None else self._kernels[number]

    @property
    def exhausted(self) -> bool:
        """Whether nothing new turns up and no pair is expected to gain anything."""
        if self._ordered > 0 or self._unknown or self._building:
            return False
        dry = self._fresh.dry or self._useless > self._settings.patience
        return dry and self._best_pair() is None
