"""Tuning without machines: recorded candidates are served as if they were just measured.

A recorded space holds the earlier measurements of a task. `ReplaySpacePool` answers drafts from it
and `ReplayMeasurer` answers trials, both in virtual time, so that whole sessions run in a moment
and give the same result each time. For comparing search policies, and for tests of everything that
uses these seams.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from tuner.arrays import Features, Ints
from tuner.candidate import Draft
from tuner.cost_models.base import CostModel
from tuner.measure import Evaluated
from tuner.record import Measurement, Provenance, Record, Status, Trial, TrialKey
from tuner.replay.noise import Noise, keep_true
from tuner.replay.recorded import Recorded, RecordedSpace
from tuner.replay.recorded_settings import RecordedSettings

_NEIGHBOURS = 12
_SPREAD = 1 << 20
"""Steps between the least and the largest value of each feature, so that all weigh the same."""


class VirtualClock:
    """A clock that advances only when it is told to."""

    def __init__(self, now_s: float = 0.0) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        """Seconds since the clock was made."""
        return self.now_s


class ReplayMeasurer:
    """Delivers recorded measurements in the order in which they would end.

    Each slot builds and runs one trial at a time, for as long as the record says. Collecting moves
    the clock to the next end, or by the whole timeout if none comes in that time.

    Args:
        slots: trials at work at once.
        clock: is moved by `collect`; give it to the session too.
        noise: of each timing, drawn from the seed, the trial and how often it was timed before.
    """

    def __init__(
        self,
        spaces: RecordedSpace,
        *,
        slots: int,
        clock: VirtualClock,
        noise: Noise = keep_true,
        seed: int = 0,
    ) -> None:
        self._recorded = {
            (task_key, r.candidate.key): r for task_key, space in spaces.items() for r in space
        }
        self._noise, self._seed = noise, seed
        self._slots = slots
        self._clock = clock
        self._number = 0
        self._timings: Counter[TrialKey] = Counter()
        self._ends: list[tuple[float, int, Trial, Measurement]] = []

    def free(self) -> int:
        """Number of idle slots."""
        return self._slots - len(self._ends)

    def submit(self, trials: Sequence[Trial], cutoff_s: float | None = None) -> None:
        """Put trials to work; a trial that was never recorded is INVALID."""
        for trial in trials:
            measurement = _cut(self._time(trial), cutoff_s)
            end_s = self._clock.now_s + measurement.build_s + measurement.run_s
            self._number += 1
            heapq.heappush(self._ends, (end_s, self._number, trial, measurement))

    def _time(self, trial: Trial) -> Measurement:
        known = self._recorded.get((trial.task_key, trial.candidate.key))
        if known is None:
            return Measurement(Status.INVALID, error="not in the recorded space")
        latency_s = known.measurement.latency_s
        if latency_s is None or self._noise is keep_true:
            return known.measurement
        before = self._timings[trial.key]
        self._timings[trial.key] += 1
        rng = random.Random(f"{self._seed} {trial.key} {before}")
        return replace(known.measurement, samples_s=(self._noise(latency_s, known.rounds_s, rng),))

    def collect(self, timeout_s: float) -> list[Record]:
        """The record of the next trial to end, if it ends within the timeout."""
        until_s = self._clock.now_s + timeout_s
        if not self._ends or self._ends[0][0] > until_s:
            self._clock.now_s = until_s
            return []
        end_s, _, trial, measurement = heapq.heappop(self._ends)
        self._clock.now_s = max(self._clock.now_s, end_s)
        where = Provenance("replay", "recorded", "recorded")
        return [Record(trial, measurement, where, 1, self._clock.now_s)]

    def toolchain(self) -> str:
        """The toolchain named in all replayed records."""
        return "recorded"

    def close(self) -> None:
        """Drop the trials in flight."""
        self._ends.clear()


def _cut(measurement: Measurement, cutoff_s: float | None) -> Measurement:
    latency_s = measurement.latency_s
    if cutoff_s is None or latency_s is None or latency_s <= cutoff_s:
        return measurement
    return replace(measurement, status=Status.CENSORED, samples_s=(latency_s,))


class ReplaySpacePool:
    """Answers drafts from recorded spaces at once.

    A fresh draft gives any of the recorded fresh samples. A mutation gives one of the candidates
    nearest to its parent, by features; where the parent is of another task, one recorded as its
    mutation, or else a fresh sample. As large a share of mutations is refused as when the space was
    recorded. The settings of templates are listed, or chosen as their space chooses them (see
    `tuner.replay.recorded_settings`). The answer follows from the draft's seed and, the model's
    scores aside, from integers alone: it is the same on any machine.

    Args:
        load: makes a cost model from the bytes that `use_model` is given; None scores all as 0.
    """

    def __init__(
        self,
        spaces: RecordedSpace,
        *,
        capacity: int = 32,
        load: Callable[[bytes], CostModel] | None = None,
    ) -> None:
        self._maps = {
            task_key: RecordedSettings(space) if RecordedSettings.fits(space) else _Map(space)
            for task_key, space in spaces.items()
        }
        self._capacity = capacity
        self._load = load
        self._model: CostModel | None = None
        self._version = 0
        self._waiting: list[Draft] = []

    def free(self) -> int:
        """Number of further drafts that can be taken."""
        return self._capacity - len(self._waiting)

    def submit(self, drafts: Sequence[Draft]) -> None:
        """Take drafts."""
        self._waiting.extend(drafts)

    def collect(self, timeout_s: float) -> list[Evaluated]:
        """Answer all waiting drafts."""
        waiting, self._waiting = self._waiting, []
        drafts = [d for d in waiting if not d.listing]
        listed = [self._list(d) for d in waiting if d.listing]
        chosen = [self._maps[d.task_key].choose(d, random.Random(d.seed)) for d in drafts]
        scores = self._scores([r for r in chosen if r.valid])
        return listed + [
            Evaluated(
                draft,
                recorded.candidate,
                code_hash=recorded.code_hash,
                score=next(scores),
                model_version=self._version,
                features=recorded.features,
                estimate_s=recorded.estimate_s if math.isfinite(recorded.estimate_s) else None,
            )
            if recorded.valid
            else Evaluated(draft, error=recorded.measurement.error)
            for draft, recorded in zip(drafts, chosen, strict=True)
        ]

    def use_model(self, version: int, model: bytes) -> None:
        """Score from now on with this model."""
        if self._load is not None:
            self._model, self._version = self._load(model), version

    def close(self) -> None:
        """Drop the waiting drafts."""
        self._waiting.clear()

    def _list(self, draft: Draft) -> Evaluated:
        known = self._maps[draft.task_key]
        settings = known.settings(draft) if isinstance(known, RecordedSettings) else ()
        return Evaluated(draft, settings=settings)

    def _scores(self, recorded: Sequence[Recorded]) -> Iterator[float]:
        if self._model is None or not recorded:
            return iter([0.0] * len(recorded))
        scores = self._model.predict(np.stack([r.features for r in recorded]))
        return iter([float(score) for score in scores])


class _Map:
    """The neighbours of each candidate in one recorded space."""

    def __init__(self, space: Sequence[Recorded]) -> None:
        self._space = space
        self._samples = [i for i, r in enumerate(space) if r.parent is None]
        self._valid = [i for i, r in enumerate(space) if r.valid]
        self._place = {space[i].candidate.key: place for place, i in enumerate(self._valid)}
        self._refused = [i for i, r in enumerate(space) if r.parent is not None and not r.valid]
        self._children: dict[str, list[int]] = {}
        for i in self._valid:
            if (parent := space[i].parent) is not None:
                self._children.setdefault(parent, []).append(i)
        self._bred = len(self._refused) + sum(len(c) for c in self._children.values())
        self._ranks = _ranks(np.stack([space[i].features for i in self._valid]))
        self._nearest: dict[int, list[int]] = {}

    def choose(self, draft: Draft, rng: random.Random) -> Recorded:
        """The answer to a draft."""
        options = self._samples
        if draft.parent is not None:
            if self._refused and rng.randrange(self._bred) < len(self._refused):
                return self._space[rng.choice(self._refused)]
            options = self._mutations(draft.parent.key) or options
        return self._space[rng.choice(options)]

    def _mutations(self, parent: str) -> list[int]:
        place = self._place.get(parent)
        if place is None:
            return self._children.get(parent, [])
        if place not in self._nearest:
            distances = np.abs(self._ranks - self._ranks[place]).sum(axis=1)
            order = [int(i) for i in np.argsort(distances, kind="stable") if i != place]
            self._nearest[place] = [self._valid[i] for i in order[:_NEIGHBOURS]]
        return self._nearest[place]


def _ranks(features: Features) -> Ints:
    """Each column as whole numbers from 0 to `_SPREAD` in the order of its values."""
    ranks = np.zeros(features.shape, dtype=np.int64)
    for column in range(features.shape[1]):
        values, places = np.unique(features[:, column], return_inverse=True)
        ranks[:, column] = places * _SPREAD // max(1, len(values) - 1)
    return ranks
