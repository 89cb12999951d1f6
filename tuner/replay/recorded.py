"""Recorded candidates, as replays take them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tuner.arrays import Features
from tuner.candidate import Candidate
from tuner.record import Measurement, Status


@dataclass(frozen=True, slots=True)
class Recorded:
    """One candidate of a recorded space, or a draft that gave none (its status is INVALID).

    Attributes:
        code_hash: hash of its program; empty where it was not recorded.
        parent: key of the candidate that it is a mutation of, maybe of another task; None for a
            fresh sample.
        estimate_s: its template's estimate; infinite where there is none.
        rounds_s: its times in several rounds, where it has them.
    """

    candidate: Candidate
    features: Features
    measurement: Measurement
    code_hash: str = ""
    parent: str | None = None
    estimate_s: float = math.inf
    rounds_s: tuple[float, ...] = ()

    @property
    def valid(self) -> bool:
        """Whether there is a candidate."""
        return self.measurement.status is not Status.INVALID


RecordedSpace = Mapping[str, Sequence[Recorded]]
"""The recorded candidates of each task, by task key."""
