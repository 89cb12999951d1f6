"""The settings of a task's templates that a search knows of, tried and not tried. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from tuner.arrays import Features, Floats, Floats32, Ints, Ints32, Rows
from tuner.candidate import Candidate, form_of, knobs_of, of_knobs
from tuner.cost_models.prior import NO_PRIORS, PriorModel, Priors
from tuner.cost_models.process import ESTIMATE_COLUMN, scale_of
from tuner.measure import Settings

_GREED = 3.0
"""Exponent of a draw among settings in the order of their estimates."""

_T = TypeVar("_T", np.float32, np.int32)


class SettingsPool:
    """Settings by number, in the order in which they were listed.

    Attributes:
        estimates_s: latency of each setting as estimated, corrected by what is known of other
            tasks.
        spaces: a number for each setting, the same for those of one template.
        features: vectors for a cost model, with the estimates.
        scale: of the features.

    Args:
        priors: what is known of the settings of other tasks.
    """

    def __init__(self, priors: Priors = NO_PRIORS) -> None:
        self._priors = priors
        self._off: dict[str, float] = {}
        self._analytic: Floats32 = np.zeros(0, dtype=np.float32)
        self._numbers: dict[tuple[int, tuple[int, ...]], int] = {}
        self._names: list[str] = []
        self._knobs: list[tuple[str, ...]] = []
        self._values: Ints32 = np.zeros((0, 0), dtype=np.int32)
        self.estimates_s: Floats = np.zeros(0)
        self.spaces: Ints = np.zeros(0, dtype=np.int64)
        self.features: Features = np.zeros((0, ESTIMATE_COLUMN + 1), dtype=np.float32)
        self.scale = scale_of(self.features)

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, settings: Iterable[Settings]) -> list[int]:
        """Take in listed settings; return the numbers of those that are new."""
        before = len(self)
        for part in settings:
            space = self._space(part)
            new = []
            for row, values in enumerate(part.values.tolist()):
                key = (space, tuple(values))
                if key not in self._numbers:
                    self._numbers[key] = len(self._numbers)
                    new.append(row)
            self.spaces = np.append(self.spaces, np.full(len(new), space))
            features = part.features[new]
            self._analytic = np.append(self._analytic, features[:, ESTIMATE_COLUMN])
            if (prior := self._priors.get(form_of(part.space))) is not None and len(features):
                features[:, ESTIMATE_COLUMN] = self._correct(part.space, features, prior)
            self.features = _below(self.features, features)
            self._values = _below(self._values, part.values[new])
        self.estimates_s = np.exp2(self.features[:, ESTIMATE_COLUMN].astype(np.float64))
        self.scale = scale_of(self.features)
        return list(range(before, len(self)))

    def _correct(self, space: str, features: Features, prior: PriorModel) -> Floats:
        """The logarithms of a template's estimates, corrected. The best of those that were listed
        first stays where it was: a template without a prior would seem slower or faster by what
        all estimates are off."""
        expected = prior.means(features) / math.log(2.0)
        least = float(features[:, ESTIMATE_COLUMN].min())
        return np.asarray(expected - self._off.setdefault(space, float(expected.min()) - least))

    def number(self, candidate: Candidate) -> int | None:
        """The number of a candidate; None where it was not listed."""
        if candidate.space not in self._names or not (knobs := knobs_of(candidate)):
            return None
        space = self._names.index(candidate.space)
        return self._numbers.get((space, tuple(knobs.get(name, -1) for name in self._knobs[space])))

    def candidate(self, number: int) -> Candidate:
        """The candidate of a number."""
        space = int(self.spaces[number])
        knobs = self._knobs[space]
        values = self._values[number, : len(knobs)].tolist()
        return of_knobs(dict(zip(knobs, values, strict=True)), self._names[space])

    def analytic(self, numbers: Sequence[int]) -> Features:
        """The features of some settings with their analytic estimates."""
        features = self.features[numbers]
        features[:, ESTIMATE_COLUMN] = self._analytic[numbers]
        return features

    def changes(self, number: int) -> Ints:
        """By how many knobs each setting differs from one; more than there are for settings of
        other templates."""
        apart = (self._values != self._values[number]).sum(axis=1)
        own = self.spaces == self.spaces[number]
        return np.asarray(np.where(own, apart, self._values.shape[1] + 1))

    def best_estimated(self, among: Rows) -> int:
        """Of some numbers the one with the least estimate; the first of equals."""
        return int(among[np.argmin(self.estimates_s[among])])

    def draw(self, among: Rows, chance: float) -> int:
        """One of some numbers by a chance from 0 to 1, the better estimated the likelier."""
        ranked = among[np.argsort(self.estimates_s[among], kind="stable")]
        return int(ranked[int(len(ranked) * chance**_GREED)])

    def least_tried(self, among: Rows, tried: Iterable[int]) -> Rows:
        """Of some numbers those of the template that was tried least; of several such templates the
        one with the best estimate."""
        tries = np.bincount(self.spaces[list(tried)], minlength=len(self._names))
        left = among[tries[self.spaces[among]] == tries[self.spaces[among]].min()]
        return np.asarray(left[self.spaces[left] == self.spaces[self.best_estimated(left)]])

    def _space(self, part: Settings) -> int:
        if part.space not in self._names:
            self._names.append(part.space)
            self._knobs.append(part.knobs)
        return self._names.index(part.space)


def _below(above: npt.NDArray[_T], below: npt.NDArray[_T]) -> npt.NDArray[_T]:
    """Two matrices as one, the narrower filled up with zeros."""
    width = max(above.shape[1], below.shape[1])
    parts = [np.pad(m, ((0, 0), (0, width - m.shape[1]))) for m in (above, below)]
    return np.concatenate(parts)
