"""A point of a design space, as a draft gave it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from spaces.features.vectors import Vector
from tuner.candidate import Candidate
from tuner.measure import OnShapes


@dataclass(frozen=True, slots=True)
class Point:
    """A candidate, with what its space knows of it.

    Attributes:
        schedule: the schedule of the program, post-processing included; None where the space
            describes its points without writing them.
        code_hash: structural hash of the scheduled program; empty where there is none.
        features: features for the cost model, where its space knows them without the program.
        estimate_s: analytic latency, where its space has one.
        on_shapes: predictions on each shape of a program with symbolic dimensions.
        space_points: the number of points of its space, about, where it is known.
    """

    candidate: Candidate
    schedule: Any = None
    code_hash: str = ""
    features: Vector | None = None
    estimate_s: float | None = None
    on_shapes: OnShapes | None = None
    space_points: int | None = None
