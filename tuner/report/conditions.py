"""What devices were like while kernels were timed on them, over a whole run."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from tuner.record import NO_CONDITIONS, Record


@dataclass(frozen=True, slots=True)
class TimingConditions:
    """Of all times of a run whose device told of itself.

    Attributes:
        timed: the number of such times.
        slowed: those that were taken at a lower clock, by the device's reasons.
        beside: those that were taken while other processes computed on the device.
        anchors_s: median time of the fixed work, by worker.
    """

    timed: int
    slowed: Mapping[str, int]
    beside: int
    anchors_s: Mapping[str, float]


class ConditionsFold:
    """Takes in the records of a run, and then tells their conditions."""

    def __init__(self) -> None:
        self._timed = self._beside = 0
        self._slowed: Counter[str] = Counter()
        self._anchors_s: defaultdict[str, list[float]] = defaultdict(list)

    def take(self, record: Record) -> None:
        """Take in the next record."""
        told = record.measurement.conditions
        if told == NO_CONDITIONS or record.latency_s is None:
            return
        self._timed += 1
        self._beside += told.strangers > 0
        if told.slowed_by:
            self._slowed[" and ".join(told.slowed_by)] += 1
        self._anchors_s[record.provenance.worker].append(told.anchor_s)

    def conditions(self) -> TimingConditions:
        """Those of all records so far."""
        anchors_s = {name: statistics.median(mine) for name, mine in self._anchors_s.items()}
        return TimingConditions(self._timed, dict(self._slowed), self._beside, anchors_s)
