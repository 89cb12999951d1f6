"""Tuning without machines: recorded candidates served as if they were just made and measured.

A recorded space is what was once measured of a task. `ReplaySpacePool` answers drafts from it and
`ReplayMeasurer` answers trials, both in virtual time, so that whole sessions run in a moment and
give the same result each time. For comparing search policies, and for tests of everything that
sits on the seams.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tuner.candidate import Candidate, Draft
from tuner.cost_model import CostModel
from tuner.measure import Evaluated, Features
from tuner.record import Measurement, Provenance, Record, Status, Trial

_NEIGHBOURS = 12


class VirtualClock:
    """A clock that goes only when it is told to."""

    def __init__(self, now_s: float = 0.0) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        """Seconds since it was made."""
        return self.now_s


@dataclass(frozen=True, slots=True)
class Recorded:
    """One candidate of a recorded space."""

    candidate: Candidate
    features: Features
    measurement: Measurement


RecordedSpace = Mapping[str, Sequence[Recorded]]
"""What was measured of each task, by task key."""


class ReplayMeasurer:
    """Delivers recorded measurements in the order in which they would end.

    Each slot builds and runs one trial at a time, as long as its record says. Collecting moves
    the clock to the next end, or by the whole timeout if nothing is in flight.

    Args:
        slots: trials at work at once.
        clock: moved by `collect`; give it to the session too.
    """

    def __init__(self, spaces: RecordedSpace, *, slots: int, clock: VirtualClock) -> None:
        self._recorded = {
            (task_key, r.candidate.key): r.measurement
            for task_key, space in spaces.items()
            for r in space
        }
        self._slots = slots
        self._clock = clock
        self._number = 0
        self._ends: list[tuple[float, int, Trial, Measurement]] = []

    def free(self) -> int:
        """Idle slots."""
        return self._slots - len(self._ends)

    def submit(self, trials: Sequence[Trial], cutoff_s: float | None = None) -> None:
        """Put trials to work; one that was never recorded is INVALID."""
        for trial in trials:
            measurement = self._recorded.get(
                (trial.task_key, trial.candidate.key),
                Measurement(Status.INVALID, error="not in the recorded space"),
            )
            measurement = _cut(measurement, cutoff_s)
            end_s = self._clock.now_s + measurement.build_s + measurement.run_s
            self._number += 1
            heapq.heappush(self._ends, (end_s, self._number, trial, measurement))

    def collect(self, timeout_s: float) -> list[Record]:
        """The next to end, if it ends within the timeout."""
        until_s = self._clock.now_s + timeout_s
        if not self._ends or self._ends[0][0] > until_s:
            self._clock.now_s = until_s
            return []
        end_s, _, trial, measurement = heapq.heappop(self._ends)
        self._clock.now_s = max(self._clock.now_s, end_s)
        where = Provenance("replay", "recorded", "recorded")
        return [Record(trial, measurement, where, 1, self._clock.now_s)]

    def close(self) -> None:
        """Drop what is in flight."""
        self._ends.clear()


def _cut(measurement: Measurement, cutoff_s: float | None) -> Measurement:
    latency_s = measurement.latency_s
    if cutoff_s is None or latency_s is None or latency_s <= cutoff_s:
        return measurement
    return replace(measurement, status=Status.CENSORED, samples_s=(latency_s,))


class ReplaySpacePool:
    """Answers drafts from recorded spaces at once.

    A fresh draft is any recorded candidate; a mutation is one of the nearest to its parent, by
    features. Which one follows from the draft's seed.

    Args:
        load: makes a cost model from what `use_model` is given; None scores everything 0.
    """

    def __init__(
        self,
        spaces: RecordedSpace,
        *,
        capacity: int = 32,
        load: Callable[[bytes], CostModel] | None = None,
    ) -> None:
        self._spaces = spaces
        self._index = {
            task_key: {r.candidate.key: i for i, r in enumerate(space)}
            for task_key, space in spaces.items()
        }
        self._features = {
            task_key: np.stack([r.features for r in space]) for task_key, space in spaces.items()
        }
        self._capacity = capacity
        self._load = load
        self._model: CostModel | None = None
        self._version = 0
        self._waiting: list[Draft] = []

    def free(self) -> int:
        """Room left."""
        return self._capacity - len(self._waiting)

    def submit(self, drafts: Sequence[Draft]) -> None:
        """Take drafts."""
        self._waiting.extend(drafts)

    def collect(self, timeout_s: float) -> list[Evaluated]:
        """Answer everything that waits."""
        drafts, self._waiting = self._waiting, []
        return [self._answer(draft) for draft in drafts]

    def use_model(self, version: int, model: bytes) -> None:
        """Score from now on with this model."""
        if self._load is not None:
            self._model, self._version = self._load(model), version

    def close(self) -> None:
        """Drop what waits."""
        self._waiting.clear()

    def _answer(self, draft: Draft) -> Evaluated:
        recorded = self._spaces[draft.task_key][self._choose(draft)]
        if recorded.measurement.status is Status.INVALID:
            return Evaluated(draft, error=recorded.measurement.error)
        score = 0.0
        if self._model is not None:
            score = float(self._model.predict(recorded.features[None, :])[0])
        return Evaluated(
            draft,
            recorded.candidate,
            score=score,
            model_version=self._version,
            features=recorded.features,
        )

    def _choose(self, draft: Draft) -> int:
        rng = random.Random(draft.seed)
        features = self._features[draft.task_key]
        parent = None
        if draft.parent is not None:
            parent = self._index[draft.task_key].get(draft.parent.key)
        if parent is None:
            return rng.randrange(len(features))
        distances = np.abs(features - features[parent]).sum(axis=1)
        nearest = np.argsort(distances, kind="stable")[1 : 1 + _NEIGHBOURS]
        return int(rng.choice(list(nearest))) if len(nearest) else parent
