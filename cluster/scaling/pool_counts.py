"""The numbers of a pool, for whoever watches it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PoolCounts:
    """A pool of workers of one kind at one moment.

    Attributes:
        ready: workers that can take jobs.
        wanted: workers that there should be.
        waiting: jobs that no worker holds.
        lost: workers that were lost so far, in their start or later.
    """

    ready: int
    wanted: int
    waiting: int
    lost: int
