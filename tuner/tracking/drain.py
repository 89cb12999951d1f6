"""Moves a spool to a sink: batches, retries, backoff. Knows neither MLflow nor processes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.tracking.cursor import Cursor, Progress, count_pending
from tuner.tracking.sink import Gone, Refused, Sink, Unavailable
from tuner.tracking.spool import Artifact, Entry, TrackingPaths, read_lines

_log = logging.getLogger(__name__)

Clock = Callable[[], float]
"""Monotonic seconds."""


@dataclass(slots=True)
class Lane:
    """One reader of the spool: its cursor, how much it dares to push at once, when it tries again.

    A failed push halves the batch, so that a slow server gets less at a time and a bad entry is
    found by bisection; a good one doubles it.
    """

    cursor: Cursor
    takes: Callable[[Entry | None], bool]
    push: Callable[[Sequence[Entry]], None]
    most: int
    batch: int
    failures: int = 0
    not_before: float = 0.0

    def step(self, spool: Path, clock: Clock, *, longest_wait_s: float) -> bool:
        """Push one batch; True if the cursor moved. Raises Gone; other failures set the clock."""
        if clock() < self.not_before:
            return False
        entries, broken, end = self._next(spool)
        if end == self.cursor.offset:
            return False
        try:
            if entries:
                self.push(entries)
        except Refused as error:
            if len(entries) > 1:
                self.batch = max(1, len(entries) // 2)
                return True
            _log.warning("left out, refused: %s (%s)", error, entries[0])
            self.cursor = self.cursor.moved(spool, end, dropped=1)
            return True
        except Unavailable:
            self.failures += 1
            self.batch = max(1, self.batch // 2)
            pause_s = min(longest_wait_s, 2.0 ** min(self.failures - 1, 5))
            self.not_before = clock() + pause_s
            raise
        self.cursor = self.cursor.moved(spool, end, pushed=len(entries), dropped=broken)
        self.batch, self.failures = min(self.most, self.batch * 2), 0
        return True

    def _next(self, spool: Path) -> tuple[list[Entry], int, int]:
        """The next batch, how many broken lines are among it, and the offset where it ends."""
        entries: list[Entry] = []
        broken = 0
        end = self.cursor.offset
        for line in read_lines(spool, end):
            if self.takes(line.entry):
                if len(entries) == self.batch:
                    break
                if line.entry is None:
                    broken += 1
                else:
                    entries.append(line.entry)
            end = line.end
        return entries, broken, end


class SpoolDrain:
    """Moves a spool to a sink, batch by batch, and keeps how far it came on disk."""

    def __init__(
        self, paths: TrackingPaths, sink: Sink, progress: Progress, *, clock: Clock
    ) -> None:
        """Goes on from `progress`."""
        self._paths = paths
        self._sink = sink
        self._clock = clock
        self._target = progress.target
        self._error = progress.error
        self._may_restart = True
        self._data = Lane(progress.data, _is_data, sink.push, most=500, batch=100)
        self._artifacts = Lane(progress.artifacts, _is_artifact, sink.upload, most=8, batch=4)

    def step(self, *, longest_wait_s: float = 30.0) -> bool:
        """Push one batch of entries and one of files; True if there may be more at once."""
        before = self.progress
        moved = False
        error = ""
        for lane in (self._data, self._artifacts):
            try:
                moved |= lane.step(self._paths.spool, self._clock, longest_wait_s=longest_wait_s)
            except Unavailable as failure:
                error = str(failure)
                if lane.failures <= 1 or error != self._error:
                    _log.warning("cannot push, trying again: %s", error)
            except Gone as failure:
                error = str(failure)
                moved |= self._restart(error)
        waiting = any(lane.failures for lane in (self._data, self._artifacts))
        self._error = error or (self._error if waiting else "")
        self._sink.set_timeout(min(60, 5 * 2 ** min(self._data.failures // 2, 4)))
        if self.progress != before:
            self.progress.save(self._paths.offset)
        return moved

    def _restart(self, reason: str) -> bool:
        """Begin anew, once: who deletes a run twice means it."""
        if not self._may_restart:
            self._data.failures += 1
            self._data.not_before = self._clock() + 30.0
            return False
        _log.warning("the run is gone over there, pushing all of it again: %s", reason)
        self._may_restart = False
        self._sink.forget()
        self._data.cursor = Cursor()
        self._artifacts.cursor = Cursor()
        return True

    def retry_now(self) -> None:
        """Forget how long to wait: the end is near."""
        self._data.not_before = self._artifacts.not_before = 0.0

    def drained(self) -> bool:
        """Whether everything in the spool was pushed."""
        return count_pending(self._paths, self.progress) == 0

    @property
    def progress(self) -> Progress:
        """How far it came."""
        return Progress(self._target, self._data.cursor, self._artifacts.cursor, self._error)


def _is_artifact(entry: Entry | None) -> bool:
    return isinstance(entry, Artifact)


def _is_data(entry: Entry | None) -> bool:
    return not isinstance(entry, Artifact)
