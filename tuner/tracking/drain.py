"""Moves a run's entries to a sink: batches, retries, backoff. Knows neither MLflow nor
processes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tuner.errors import TunerError
from tuner.tracking.child_runs import MOST_CHILDREN, all_tried, heaviest
from tuner.tracking.entries import Entry, Metrics, Start, TrackingPaths, artifacts
from tuner.tracking.progress import Progress
from tuner.tracking.reader import Item, RunReader
from tuner.tracking.sink import Gone, Refused, Sink, Unavailable

_log = logging.getLogger(__name__)

Clock = Callable[[], float]
"""Monotonic seconds."""
_MOST = 500
"""Records and entries in one push."""


@dataclass(slots=True)
class Retry:
    """One of the things to push, which do not hold each other up: when it is tried next."""

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
    """Moves a run to a sink, batch by batch, and keeps its progress on disk. Records and entries,
    files of records and other files do not hold each other up.

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
        self._failed: set[str] = set()
        """Files that could not be sent, which wait until the others had their turn."""
        self._data = Retry(self._push_data)
        self._files = (Retry(self._push_records), Retry(self._push_file))

    def step(self, *, longest_wait_s: float = 30.0) -> bool:
        """Push a batch and a file; return True if there may be more at once."""
        shown, before, failed = self.progress, self._progress, self._count_failures()
        moved = self._step(self._data, longest_wait_s)
        for retry in self._files:
            if self._sink.knows(""):
                moved |= self._step(retry, longest_wait_s)
        self._sink.set_timeout(min(60, 5 * 2 ** min(self._data.failures // 2, 4)))
        if self.progress != shown:
            self.progress.save(self.paths.progress)
        if self._progress != before:
            self.failures = 0
        elif self._count_failures() > failed:
            self.failures += 1
        return moved

    def _count_failures(self) -> int:
        return sum(retry.failures for retry in (self._data, *self._files))

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
        self._settled = frozenset()
        self._progress = self._progress.from_start()
        self.progress.save(self.paths.progress)  # before a new run is there, which lacks the files
        self._sink.forget()
        return True

    def _push_data(self) -> bool:
        if not self._reader.may_be_read:
            return False
        self._progress = _trust(self._progress, self._reader)
        if not self._sink.knows(""):
            self._progress = self._progress.from_start()
        items = self._reader.after(self._progress.at, self._batch)
        if not items:
            return self._choose(at_end=True)
        if not self._sink.knows(""):  # announced alone: else what others are would refuse it
            kinds = [type(item.entries[0]) if item.entries else None for item in items]
            items = items[: kinds.index(Start) + 1] if Start in kinds else items
        entries, refused = list(self._choose_entries(items)), 0
        if not entries and not self._sink.knows(""):
            return False  # what would announce the run cannot be read
        try:
            if entries:
                self._sink.push(entries)
        except Unavailable:
            self._batch = max(1, self._batch // 2)  # a slow server gets less at a time
            raise
        except Refused as error:
            if not self._sink.knows(""):
                raise Unavailable(str(error)) from error  # without the run all else is refused
            if len(items) > 1:  # the bad one is found by bisection
                self._batch = max(1, len(items) // 2)
                return True
            refused = self._push_one_by_one(entries)
        else:
            self._batch = min(_MOST, self._batch * 2)
        self._progress = replace(
            self._progress,
            at=items[-1].end,
            check=self._reader.check(items[-1].end),
            pushed=self._progress.pushed + len(entries) - refused,
            dropped=self._progress.dropped + refused + sum(not item.entries for item in items),
        )
        self._choose(at_end=False)
        return True

    def _choose_entries(self, items: Sequence[Item]) -> Iterator[Entry]:
        """The entries of items that are for a run that there is, or shall be. A session's start
        announces the model's run with its tasks; a task that came later is announced before its
        metrics."""
        metrics, begun, announced = self._reader.metrics, self._sink.knows(""), set[str]()
        for entry in (entry for item in items for entry in item.entries):
            if isinstance(entry, Start):
                begun, tasks = True, [key for key in metrics.progress if self._has_run(key)]
                announced.update(tasks)
                yield entry
                yield from map(metrics.announce, tasks)
            elif begun and isinstance(entry, Metrics) and entry.task is not None:
                yield from self._choose_metrics(entry, entry.task, announced)
            elif begun:
                yield entry

    def _choose_metrics(self, entry: Metrics, task: str, announced: set[str]) -> Iterator[Entry]:
        """The metrics of a task, if it has a run, after its announcement where there was none."""
        if not self._has_run(task):
            return
        if task not in announced and not self._sink.knows(task):
            announced.add(task)
            yield self._reader.metrics.announce(task)
        yield entry

    def _has_run(self, task: str) -> bool:
        """Whether a task has a run, or shall have one."""
        few = len(self._reader.metrics.progress) <= MOST_CHILDREN
        return few or task in self._chosen or self._sink.knows(task)

    def _push_one_by_one(self, entries: Sequence[Entry]) -> int:
        """Push entries, but for those that are refused; return the number of these."""
        dropped = 0
        for entry in entries:
            try:
                self._sink.push([entry])
            except Refused as error:
                _log.warning("left out, refused: %s (%s)", error, entry)
                dropped += 1
        return dropped

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
        self._progress = self._progress.from_start(files=False)
        self.progress.save(self.paths.progress)  # before there is a run that lacks what was before
        return True

    def _push_records(self) -> bool:
        """Push the next file of records."""
        if not self._reader.may_be_read:
            return False
        file = self._reader.write_file(self._progress.in_files)
        if file is None:
            return False
        name, last = file
        self._sink.upload(name, self.paths.files / name)
        pushed = self._progress.pushed + 1
        self._progress = replace(self._progress, in_files=last, pushed=pushed)
        return True

    def _push_file(self) -> bool:
        """Push one of the other files that changed."""
        unsent = _find_unsent(self.paths, self._progress)
        if not unsent:
            return False
        name, path, written = min(unsent, key=lambda file: file[0] in self._failed)
        self._failed.add(name)
        self._sink.upload(name, path)
        self._failed.discard(name)
        files, pushed = {**self._progress.files, name: written}, self._progress.pushed + 1
        self._progress = replace(self._progress, files=files, pushed=pushed)
        return True

    def wind_up(self) -> None:
        """Note that the session is over: push all that waits now, and the last records too."""
        self._reader.over = True
        for retry in (self._data, *self._files):
            retry.not_before = 0.0

    def drained(self) -> bool:
        """Whether everything was pushed; False also where that cannot be told."""
        try:
            return not count_pending(self.paths, self._progress)
        except (TunerError, OSError):
            return False

    @property
    def progress(self) -> Progress:
        """The progress so far."""
        errors = [retry.error for retry in (self._data, *self._files) if retry.error]
        return replace(self._progress, error=errors[0] if errors else "")


def count_pending(paths: TrackingPaths, progress: Progress) -> int:
    """The number of records, entries, samples and files still to be pushed; none of a run that
    nobody announced.

    Raises:
        OSError, TunerError: the run cannot be read.
    """
    reader = RunReader(paths)
    progress = _trust(progress, reader)
    left = reader.count_left(progress.at, progress.in_files)
    return left + len(_find_unsent(paths, progress)) if left or progress.at.entry else 0


def _trust(progress: Progress, reader: RunReader) -> Progress:
    """The progress, or the start where the run is not the one that it was made on."""
    return progress if reader.check(progress.at) == progress.check else progress.from_start()


def _find_unsent(paths: TrackingPaths, progress: Progress) -> list[tuple[str, Path, int]]:
    """The files that are not there as they are now, but for those of records; see `artifacts`."""
    return [file for file in artifacts(paths.run_dir) if progress.files.get(file[0]) != file[2]]
