"""Moves a run's entries to a sink: batches, retries, backoff. Knows neither MLflow nor
processes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tuner.errors import TunerError
from tuner.tracking.child_runs import ChildRuns
from tuner.tracking.cursor import Cursor, Progress
from tuner.tracking.sink import Gone, Refused, Sink, Unavailable
from tuner.tracking.source import ReportFile, Source, SpoolLines
from tuner.tracking.spool import Entry, TrackingPaths
from tuner.tracking.stored_records import RecordCurves, RecordFiles

_log = logging.getLogger(__name__)

Clock = Callable[[], float]
"""Monotonic seconds."""


@dataclass(slots=True)
class Lane:
    """One reader of a source: its cursor, the size of its next batch, the time of its next try.

    A failed push halves the batch, so that a slow server gets less at a time and a bad entry is
    found by bisection; a successful push doubles it.
    """

    source: Source
    cursor: Cursor
    push: Callable[[Sequence[Entry]], None]
    most: int
    batch: int
    failures: int = 0
    not_before: float = 0.0
    error: str = ""

    def step(self, clock: Clock, *, longest_wait_s: float) -> bool:
        """Push one batch; return True if the cursor moved. Raises Gone. If the server takes
        nothing, or the source cannot be read, this is logged and the next try is delayed."""
        if clock() < self.not_before:
            return False
        try:
            moved = self._step()
        except (Unavailable, TunerError, OSError) as failure:
            if not self.failures or str(failure) != self.error:
                _log.warning("cannot push, trying again: %s", failure)
            self.failures, self.error = self.failures + 1, str(failure)
            self.batch = max(1, self.batch // 2)
            pause_s = min(longest_wait_s, 2.0 ** min(self.failures - 1, 5))
            self.not_before = clock() + pause_s
            return False
        self.failures, self.error = 0, ""
        return moved

    def _step(self) -> bool:
        self.cursor = self.trusted()
        items = self.source.after(self.cursor.offset, self.batch)
        if not items:
            return False
        end, full = items[-1].end, [item for item in items if item.entries]
        entries = [entry for item in full for entry in item.entries]
        try:
            if entries:
                self.push(entries)
        except Refused as error:
            if len(full) > 1:
                self.batch = max(1, len(full) // 2)
                return True
            _log.warning("left out, refused: %s (%s)", error, entries[0])
            self.cursor = self.cursor.moved(self.source, end, dropped=len(entries))
            return True
        broken = sum(item.broken for item in items)
        self.cursor = self.cursor.moved(self.source, end, pushed=len(entries), dropped=broken)
        self.batch = min(self.most, self.batch * 2)
        return True

    def left(self) -> int:
        """The number of items still to be pushed. Raises as the source."""
        return self.source.left(self.trusted().offset)

    def trusted(self) -> Cursor:
        """The cursor, as far as the source confirms it. Raises as the source."""
        return self.cursor.trusted(self.source)


class RunDrain:
    """Moves a run's entries to a sink, batch by batch, and keeps its progress on disk.

    A record is pushed once its task was announced, a session's end after all its records. Of many
    tasks only some get a run: what came before that was decided is pushed once more, with them.
    """

    def __init__(
        self, paths: TrackingPaths, sink: Sink, progress: Progress, *, clock: Clock
    ) -> None:
        """Go on from `progress`."""
        self.paths = paths
        self._sink = sink
        self._clock = clock
        self._target = progress.target
        self._may_restart = True
        self.failures = 0
        """Steps in a row in which something could not be pushed, and nothing could."""
        self._children = ChildRuns(paths, sink.knows)
        sources = _sources(paths, sink.knows, self._children.left_out, self._end_waits)
        data, artifacts, curves, files, system, report = sources
        self._curves, self._record_files = curves, files
        self._data = Lane(data, progress.data, self._push, most=500, batch=100)
        self._artifacts = Lane(artifacts, progress.artifacts, sink.upload, most=8, batch=4)
        self._records = Lane(curves, progress.records, sink.push, most=500, batch=100)
        self._files = Lane(files, progress.files, sink.upload, most=1, batch=1)
        self._system = Lane(system, progress.system, sink.push, most=100, batch=50)
        self._report = Lane(report, progress.report, sink.upload, most=1, batch=1)
        self._lanes = (
            *(self._data, self._artifacts, self._records),
            *(self._files, self._system, self._report),
        )

    def step(self, *, longest_wait_s: float = 30.0) -> bool:
        """Push a batch from each source; return True if there may be more at once."""
        before, failed_before = self.progress, [lane.failures for lane in self._lanes]
        moved = self._choose()
        for spooled, stored in ((self._data, self._records), (self._artifacts, self._files)):
            moved |= self._step(spooled, longest_wait_s)
            if not spooled.failures and self._may_read_records():
                moved |= self._step(stored, longest_wait_s)
        if self._sink.knows("") and not self._data.failures:
            moved |= self._step(self._system, longest_wait_s)
            moved |= self._step(self._report, longest_wait_s)
        failures = max(self._data.failures, self._records.failures)
        self._sink.set_timeout(min(60, 5 * 2 ** min(failures // 2, 4)))
        if self.progress != before:
            self.progress.save(self.paths.offset)
        if self.progress.cursors != before.cursors:
            self.failures = 0
        elif any(lane.failures > n for lane, n in zip(self._lanes, failed_before, strict=True)):
            self.failures += 1
        return moved

    def _step(self, lane: Lane, longest_wait_s: float) -> bool:
        try:
            return lane.step(self._clock, longest_wait_s=longest_wait_s)
        except Gone as failure:
            return self._restart(lane, str(failure))

    def _restart(self, lane: Lane, reason: str) -> bool:
        """Push all from the start, once: a user who deletes a run twice means it."""
        if not self._may_restart:
            lane.failures, lane.error = lane.failures + 1, reason
            lane.not_before = self._clock() + 30.0
            return False
        _log.warning("the run is gone over there, pushing all of it again: %s", reason)
        self._may_restart = False
        self._sink.forget()
        for each in self._lanes:
            each.cursor = Cursor()
        return True

    def _push(self, entries: Sequence[Entry]) -> None:
        self._children.read_spool()
        if taken := [entry for entry in entries if self._children.takes(entry)]:
            self._sink.push(taken)

    def _choose(self) -> bool:
        """Decide on the tasks that get a run; return True if there are more of them now."""
        try:
            if not self._may_read_records() or not self._children.look():
                return False
        except (TunerError, OSError):
            return False  # which the lanes tell
        for lane in (self._data, self._records):
            lane.cursor = Cursor()
        self.progress.save(self.paths.offset)  # before there is a run that lacks what was before
        return True

    def _may_read_records(self) -> bool:
        return self._sink.knows("") and self._curves.may_be_read

    def _end_waits(self) -> bool:
        """Whether a session's end must wait for records; not for records that cannot be read, nor
        for those of a later session."""
        try:
            return self._may_read_records() and self._curves.ready(self._records.trusted().offset)
        except (TunerError, OSError):
            return False

    def wind_up(self) -> None:
        """Note that the session is over: push all that waits now, and the last records too."""
        self._curves.over = self._record_files.over = self._children.over = True
        for lane in self._lanes:
            lane.not_before = 0.0

    def drained(self) -> bool:
        """Whether everything was pushed; False also where that cannot be told."""
        try:
            return not any(lane.left() for lane in self._lanes)
        except (TunerError, OSError):
            return False

    @property
    def progress(self) -> Progress:
        """The progress so far."""
        data, artifacts, records, files, system, report = (lane.cursor for lane in self._lanes)
        error = next((lane.error for lane in self._lanes if lane.error), "")
        return Progress(self._target, data, artifacts, records, files, system, report, error)


def count_pending(paths: TrackingPaths, progress: Progress) -> int:
    """The number of whole lines of the spool, records and files of records still to be pushed.

    Raises:
        OSError, TunerError: the spool or the store cannot be read.
    """
    sources: tuple[Source, ...] = _sources(
        paths, lambda task: True, lambda task: False, lambda: False
    )
    pairs = zip(sources, progress.cursors, strict=True)
    return sum(source.left(cursor.trusted(source).offset) for source, cursor in pairs)


def _sources(
    paths: TrackingPaths,
    knows: Callable[[str], bool],
    left_out: Callable[[str], bool],
    holds: Callable[[], bool],
) -> tuple[SpoolLines, SpoolLines, RecordCurves, RecordFiles, SpoolLines, ReportFile]:
    """The sources to push from, in the order of `Progress.cursors`."""
    return (
        SpoolLines(paths.spool, artifacts=False, holds=holds),
        SpoolLines(paths.spool, artifacts=True),
        RecordCurves(paths.store, paths.spool, knows, left_out),
        RecordFiles(paths.store, paths.folder),
        SpoolLines(paths.system, artifacts=False),
        ReportFile(paths),
    )
