"""Times that contradict what was expected are taken once more before they count. Pure."""

from __future__ import annotations

from dataclasses import replace

from tuner.record import Record, Status, TrialKey


class SecondLooks:
    """Holds the first record of each trial that is measured again.

    On a machine that others share, one time in twenty is too slow by a half and more, for longer
    than a trial takes: more samples at once do not mend it. A search that learns from such a time
    is misled about all kernels alike. Of 33 times that were far above what had been predicted, and
    were known better later, 27 were wrong by more than a fifth.
    """

    def __init__(self) -> None:
        self._first: dict[TrialKey, Record] = {}

    def begin(self, record: Record) -> bool:
        """Remember a doubtful record until its trial was measured again; False where this is it."""
        if record.trial.key in self._first:
            return False
        self._first[record.trial.key] = record
        return True

    def settle(self, record: Record) -> Record:
        """What counts of a trial: the faster of two times. A failure counts, for a kernel that
        fails once cannot be trusted; that it was lost, or cut off, says nothing."""
        first = self._first.pop(record.trial.key, None)
        if first is None or first.latency_s is None:
            return record
        again, run_s = record.measurement, first.measurement.run_s + record.measurement.run_s
        slower = record.latency_s is not None and record.latency_s >= first.latency_s
        if slower or again.status in (Status.LOST, Status.CENSORED):
            again = first.measurement
        kept = replace(again, build_s=first.measurement.build_s, run_s=run_s)
        return replace(record, measurement=kept)

    def left(self) -> list[Record]:
        """Forget those that were not measured again; their first records, which count then."""
        records = list(self._first.values())
        self._first.clear()
        return records
