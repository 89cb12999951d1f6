"""What a design space is."""

from __future__ import annotations

from typing import Any, Protocol

from spaces.design_space.point import Point
from tuner.candidate import Candidate, Draft


class Space(Protocol):
    """Schedules of one task's program. Its points are candidates that carry its name.

    The same draft gives the same point in any process.
    """

    @property
    def name(self) -> str:
        """The name, version included; its part before the colon is the family, by which candidates
        find back to it (see `spaces.design_space.realize`)."""

    def realize_draft(self, draft: Draft) -> Point:
        """Carry out a draft: a mutation of its parent, where that is a point of this space, else a
        fresh sample.

        Raises:
            InvalidCandidate: there is no point; the text says why.
        """

    def write(self, candidate: Candidate) -> Any:
        """Schedule the task's program as a point of this space says, post-processing included.

        Raises:
            InvalidCandidate: it cannot be scheduled so.
        """
