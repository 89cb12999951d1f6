"""When a run's time begins: with the first moment at which it can measure a trial."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from cluster.scaling.pool_policy import PoolCounts
from tuner.utilisation import RUNNER

_USUAL_S = 15.0
"""The time that a runner takes to start on a device that is free."""
_LOOK_EVERY_S = 5.0


class Beginning:
    """Says what a run waits for until it has a worker of each kind.

    Args:
        counts: gives the numbers of its workers, by kind.
        beside: gives the other runs that measure on the same devices.
    """

    def __init__(
        self,
        counts: Callable[[], Mapping[str, PoolCounts]],
        beside: Callable[[], Sequence[str]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._counts, self._beside, self._clock = counts, beside, clock
        self._looked_s = clock() + _USUAL_S - _LOOK_EVERY_S
        self._others: Sequence[str] = ()

    def waits(self) -> str:
        """What the run waits for, in one line; empty once it can measure a trial."""
        missing = [kind for kind, counts in self._counts().items() if not counts.ready]
        now_s = self._clock()
        if RUNNER in missing and now_s - self._looked_s >= _LOOK_EVERY_S:
            self._looked_s, self._others = now_s, self._beside()
        if RUNNER in missing and self._others:
            others = " and ".join(self._others)
            return f"waits for a device, taken by {others}; its time has not begun"
        return "workers start" if missing else ""
