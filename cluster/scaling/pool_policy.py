"""The limits of a pool (attempts, deadlines, patience), and its numbers for whoever watches it."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PoolPolicy:
    """Limits of a pool.

    Attributes:
        attempts: number of attempts at a job before it is given up.
        start_deadline_s: time for a worker to become ready, the wait for a machine included. If no
            worker is ready when one misses it, none is expected to be any more.
        failed_starts: number of workers lost in a row, none being ready, after which none is
            expected to start. With the pauses in between that takes half a minute: a cluster whose
            machines die one after the other is no reason to give up.
        silence_s: time after which a ready worker that is not heard of is lost.
    """

    attempts: int = 3
    start_deadline_s: float = 90.0
    failed_starts: int = 6
    silence_s: float = math.inf


NORMAL = PoolPolicy()


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
