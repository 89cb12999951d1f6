"""Moves a run's entries to a sink: batches, retries, backoff. Knows neither MLflow nor
processes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from tuner.errors import TunerError
from tuner.tracking.child_runs import MOST_CHILDREN, all_tried, heaviest
from tuner.tracking.entries import Entry, Metrics, TaskEntry, TrackingPaths, artifacts
from tuner.tracking.progress import Progress
from tuner.tracking.reader import Position, RunReader
from tuner.tracking.sink import Gone, Refused, Sink, Unavailable

_log = logging.getLogger(__name__)

Clock = Callable[[], float]
"""Monotonic seconds."""
_MOST = 500
"""Records and entries in one push."""


@dataclass(slots=True)
class Retry:
    """One of two things to push, which do not hold each other up: when it is tried next."""

    push: Callable[[], bool]
    failures: int = 0
    not_before: float = 0.0
    error: str = ""

    def step(self, clock: Clock, *, longest_wait_s: float) -> bool:
        """Push once; return True if something was done. Raises Gone. If the server takes nothing,
        or the run cannot be read, this is logged and the next try is delayed."""
        if clock() < self.not_before:
            return False
        try:
            moved = self.push()
        except (Unavailable, TunerError, OSError) as failure:
            if not self.failures or str(failure) != self.error:
                _log.warning("cannot push, trying again: %s", failure)
            self.failures, self.error = self.failures + 1, str(failure)
            self.not_before = clock() + min(longest_wait_s, 2.0 ** min(self.failures - 1, 5))
            return False
        self.failures, self.error = 0, ""
        return moved


class RunDrain:
    """Moves a run to a sink, batch by batch, and keeps its progress on disk. Files do not hold up
    the rest where a store of artifacts is broken.

    Of many tasks only some get a run: what came before that was decided is pushed once more, with
    them.
    """

    def __init__(
        self, paths: TrackingPaths, sink: Sink, progress: Progress, *, clock: Clock
    ) -> None:
        """Go on from `progress`."""
        self.paths = paths
        self.failures = 0
        """Steps in a row in which something could not be pushed, and nothing could."""
        self._sink = sink
        self._clock = clock
        self._progress = progress
        self._reader = RunReader(paths)
        self._batch = 100
        self._may_restart = True
        self._chosen: frozenset[str] = frozenset()
        self._settled: frozenset[str] = frozenset()
        """The tasks for which the choice of those that get a run was made."""
        self._data, self._files = Retry(self._push_data), Retry(self._push_file)

    def step(self, *, longest_wait_s: float = 30.0) -> bool:
        """Push a batch and a file; return True if there may be more at once."""
        shown, before = self.progress, self._progress
        failed = self._data.failures + self._files.failures
        moved = self._step(self._data, longest_wait_s)
        if self._sink.knows(""):
            moved |= self._step(self._files, longest_wait_s)
        self._sink.set_timeout(min(60, 5 * 2 ** min(self._data.failures // 2, 4)))
        if self.progress != shown:
            self.progress.save(self.paths.progress)
        if self._progress != before:
            self.failures = 0
        elif self._data.failures + self._files.failures > failed:
            self.failures += 1
        return moved

    def _step(self, retry: Retry, longest_wait_s: float) -> bool:
        try:
            return retry.step(self._clock, longest_wait_s=longest_wait_s)
        except Gone as failure:
            return self._restart(retry, str(failure))

    def _restart(self, retry: Retry, reason: str) -> bool:
        """Push all from the start, once: a user who deletes a run twice means it."""
        if not self._may_restart:
            retry.failures, retry.error = retry.failures + 1, reason
            retry.not_before = self._clock() + 30.0
            return False
        _log.warning("the run is gone over there, pushing all of it again: %s", reason)
        self._may_restart = False
        self._sink.forget()
        self._progress = replace(self._progress, at=Position(), check=0, files={})
        return True

    def _push_data(self) -> bool:
        if not self._reader.may_be_read:
            return False
        self._progress = _trust(self._progress, self._reader)
        if not self._sink.knows(""):
            self._progress = replace(self._progress, at=Position(), check=0)
        items = self._reader.after(self._progress.at, self._batch)
        if not items:
            return self._choose(at_end=True)
        entries = [entry for item in items for entry in item.entries if self._takes(entry)]
        try:
            if entries:
                self._sink.push(entries)
        except Unavailable:
            self._batch = max(1, self._batch // 2)  # a slow server gets less at a time
            raise
        except Refused as error:
            if len(items) > 1:  # the bad one is found by bisection
                self._batch = max(1, len(items) // 2)
                return True
            _log.warning("left out, refused: %s (%s)", error, entries[0])
            self._advance(items[-1].end, dropped=len(entries))
        else:
            self._batch = min(_MOST, self._batch * 2)
            self._advance(items[-1].end, pushed=len(entries))
        self._choose(at_end=False)
        return True

    def _advance(self, at: Position, *, pushed: int = 0, dropped: int = 0) -> None:
        self._progress = replace(
            self._progress,
            at=at,
            check=self._reader.check(at),
            pushed=self._progress.pushed + pushed,
            dropped=self._progress.dropped + dropped,
        )

    def _takes(self, entry: Entry) -> bool:
        """Whether an entry is for a run that there is, or shall be."""
        task = entry.task if isinstance(entry, TaskEntry | Metrics) else None
        few = len(self._reader.metrics.progress) <= MOST_CHILDREN
        return task is None or few or task in self._chosen or self._sink.knows(task)

    def _choose(self, *, at_end: bool) -> bool:
        """Choose the tasks that get a run, once it can be done; return True if there are more of
        them now, so that all has to be pushed again.

        Args:
            at_end: whether all was read that there is.
        """
        progress = self._reader.metrics.progress
        had = {key for key in progress if self._sink.knows(key)} | self._chosen
        if len(progress) <= MOST_CHILDREN or len(had) >= MOST_CHILDREN:
            return False
        if self._settled == progress.keys():
            return False
        if not all_tried(progress.values()) and not (at_end and self._reader.over):
            return False
        self._settled = frozenset(progress)
        if (chosen := heaviest(progress, had)) <= had:
            return False
        self._chosen = chosen
        self._progress = replace(self._progress, at=Position(), check=0)
        self.progress.save(self.paths.progress)  # before there is a run that lacks what was before
        return True

    def _push_file(self) -> bool:
        before = self._progress
        if self._reader.may_be_read:
            in_files = self._reader.write_file(before.in_files)
            self._progress = replace(before, in_files=in_files)
        for name, path, written in artifacts(self.paths.run_dir):
            if before.files.get(name) != written:
                self._sink.upload(name, path)
                files, pushed = {**before.files, name: written}, before.pushed + 1
                self._progress = replace(self._progress, files=files, pushed=pushed)
                break
        return self._progress != before

    def wind_up(self) -> None:
        """Note that the session is over: push all that waits now, and the last records too."""
        self._reader.over = True
        self._data.not_before = self._files.not_before = 0.0

    def drained(self) -> bool:
        """Whether everything was pushed; False also where that cannot be told."""
        try:
            return not count_pending(self.paths, self._progress)
        except (TunerError, OSError):
            return False

    @property
    def progress(self) -> Progress:
        """The progress so far."""
        return replace(self._progress, error=self._data.error or self._files.error)


def count_pending(paths: TrackingPaths, progress: Progress) -> int:
    """The number of records, entries, samples and files still to be pushed.

    Raises:
        OSError, TunerError: the run cannot be read.
    """
    reader = RunReader(paths)
    progress = _trust(progress, reader)
    unsent = [n for n, _, written in artifacts(paths.run_dir) if progress.files.get(n) != written]
    return reader.left(progress.at) + reader.files_left(progress.in_files) + len(unsent)


def _trust(progress: Progress, reader: RunReader) -> Progress:
    """The progress, or the start where the run is not the one that it was made on."""
    if reader.check(progress.at) == progress.check:
        return progress
    return replace(progress, at=Position(), check=0, in_files=0, files={})
