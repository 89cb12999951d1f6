"""What a pool may cost: attempts, deadlines, patience."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PoolPolicy:
    """Limits of a pool.

    Attributes:
        attempts: how often a job may be lost before it is given up.
        start_deadline_s: for a worker to become ready, the wait for a machine included. Where
            none is ready by then, none will be.
        failed_starts: so many workers lost in a row before one was ready mean that none will be.
            With the pauses in between it takes half a minute: a cluster whose machines die one
            after the other is no reason to give up.
        silence_s: a ready worker that is not heard of for so long is lost.
    """

    attempts: int = 3
    start_deadline_s: float = 90.0
    failed_starts: int = 6
    silence_s: float = math.inf


NORMAL = PoolPolicy()
