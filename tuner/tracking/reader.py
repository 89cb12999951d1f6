"""Reads what is to be pushed of a run: the records and entries of its store in the order in which
they came, then what was sampled of the machine; and writes the records as files.

Records are pushed as metrics, and as numbered files of equal length, so that a file's number tells
which records it holds.
"""

from __future__ import annotations

import heapq
import json
import os
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from itertools import islice

from tuner.files.atomic import write_bytes
from tuner.record import Record, record_line
from tuner.storage.base import SessionSpan
from tuner.storage.facts import Defaults
from tuner.storage.sqlite_file import journal
from tuner.storage.sqlite_store import SqliteStore
from tuner.tracking.entries import RECORDS, Entry, TrackingPaths, decode
from tuner.tracking.record_metrics import RecordMetrics

PER_FILE = 200
_PAGE = 500


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a run: the numbers of the last record and the last entry before it, and the bytes
    of samples."""

    record: int = 0
    entry: int = 0
    sample: int = 0


@dataclass(frozen=True, slots=True)
class Item:
    """Entries that are pushed, or dropped, together; none stand for one that cannot be read.

    Attributes:
        end: the place after them.
    """

    entries: Sequence[Entry]
    end: Position


class RunReader:
    """A run as its tracker reads it, while its session writes it.

    The store is opened anew for each short look: this process may be stopped at any time, and
    another file may replace the store. Methods raise OSError and TunerError.
    """

    def __init__(self, paths: TrackingPaths) -> None:
        self._paths = paths
        self.over = False
        """Whether the session has ended, so that nobody writes any more."""
        self.metrics = RecordMetrics((), {})
        """The fold over the records that were read."""
        self._folded = 0
        """The number of the last record in the fold; -1 where that is not known."""
        self._ahead: list[Item] = []
        """What was read after `_start`, and may still have to be pushed."""
        self._start = Position()

    @property
    def may_be_read(self) -> bool:
        """Whether reading is allowed: not while the store is written without a write-ahead log,
        since the writer would wait for us."""
        return self.over or journal(self._paths.store).exists()

    @contextmanager
    def _open(self) -> Iterator[SqliteStore | None]:
        """The store; None where there is none."""
        if not self._paths.store.exists():
            yield None
            return
        with closing(SqliteStore(self._paths.store, read_only=True)) as store:
            yield store

    def check(self, at: Position) -> int:
        """A checksum of what lies right before a place: 0 at the start, -1 where there is no such
        place, as where a machine kept its progress and lost, in a power cut, what was before it."""
        if at.record == at.entry == 0:
            return 0
        with self._open() as store:
            if store is None:
                return -1
            records = [r for n, r in store.after(at.record - 1, 1) if n == at.record]
            entries = [text for n, _, text in store.entries_after(at.entry - 1, 1) if n == at.entry]
        if (len(records), len(entries)) != (at.record > 0, at.entry > 0):
            return -1
        return zlib.crc32(json.dumps([*map(_identify, records), *entries]).encode())

    def after(self, at: Position, most: int) -> list[Item]:
        """At most `most` items after a place, in order; none before the run was announced.

        Quick where it is called for the place of the last call, or for the end of an item that was
        given since; else it reads all records before the place again.
        """
        while self._ahead and self._start != at:
            self._start = self._ahead.pop(0).end
        if not self._ahead:
            self._start, self._ahead = at, self._read(at, most)
        return self._ahead[:most]

    def _read(self, at: Position, most: int) -> list[Item]:
        with self._open() as store:
            if store is None:
                return []
            # The entries first, so that none comes before the records that it follows.
            entries = store.entries_after(at.entry, most)
            if not entries and at.entry == 0:
                return []
            self._fold_to(at.record, store)
            sessions, items = store.sessions(), list[Item]()
            for number, what in islice(_merge(store.after(at.record, most), entries), most):
                if isinstance(what, Record):
                    at, said = replace(at, record=number), self._fold(number, what, sessions)
                else:
                    at, said = replace(at, entry=number), _read_entry(what)
                items.append(Item(said, at))
        return items + self._samples(at, most - len(items))

    def _fold(
        self, number: int, record: Record, sessions: Sequence[SessionSpan]
    ) -> tuple[Entry, ...]:
        self._folded = -1  # until it is taken: an alarm may go off at any moment
        said = self.metrics.take(record, sessions)
        self._folded = number
        return said

    def _fold_to(self, number: int, store: SqliteStore) -> None:
        """Have the fold be that of all records up to a number, of all tasks that there are now."""
        known = self.metrics.progress.keys() == store.task_keys()
        if not known or not 0 <= self._folded <= number:
            defaults = store.get(Defaults).by_task
            self.metrics, self._folded = RecordMetrics(store.tasks(), defaults), 0
        sessions = store.sessions()
        while self._folded < number:
            page = store.after(self._folded, min(_PAGE, number - self._folded))
            if not page:
                break
            for n, record in page:
                self._fold(n, record, sessions)

    def _samples(self, at: Position, most: int) -> list[Item]:
        """What was sampled of the machine after a place."""
        items: list[Item] = []
        if not self._paths.system.exists():
            return items
        with self._paths.system.open("rb") as file:
            if at.sample > file.seek(0, os.SEEK_END):  # a power cut took the end
                at = replace(at, sample=0)
            file.seek(at.sample)
            for line in file:
                if len(items) == most or not line.endswith(b"\n"):
                    break
                at = replace(at, sample=at.sample + len(line))
                items.append(Item(_read_entry(line.decode(errors="replace")), at))
        return items

    def count_left(self, at: Position, in_files: int) -> int:
        """The number of records, entries and samples after a place, and of files of records that
        are still to be written. None while no entry has announced the run.

        Args:
            in_files: number of records in files that were sent.
        """
        with self._open() as store:
            entries = store.last_entry() if store else 0
            if store is None or not entries:
                return 0
            last = store.last()
        files = -(-last // PER_FILE) - in_files // PER_FILE if last > in_files else 0
        samples = len(self._samples(at, sys.maxsize))
        return last - at.record + entries - at.entry + samples + files

    def write_file(self, done: int) -> tuple[str, int] | None:
        """Write the next file of records, if `done` of them are in files that were sent and there
        are enough for one more; the last one is written when the session is over. Return its name
        and the number of the last record in it; else None.

        Each number begins at a fixed record, so that a longer file replaces a shorter one.
        """
        before = done // PER_FILE
        whole = (before + 1) * PER_FILE
        with self._open() as store:
            last = store.last() if store else 0
            if store is None or last <= done or (last < whole and not self.over):
                return None
            found = store.after(before * PER_FILE, PER_FILE)
        name = f"{RECORDS}/records-{before + 1:06d}.jsonl"
        lines = "".join(f"{record_line(record)}\n" for _, record in found)
        write_bytes(self._paths.files / name, lines.encode())
        return name, found[-1][0]


def _merge(
    records: Sequence[tuple[int, Record]], entries: Sequence[tuple[int, int, str]]
) -> Iterator[tuple[int, Record | str]]:
    """Both in the order in which they were stored, each with its number among those of its kind;
    the run's announcement, its first entry, comes before everything."""
    places: dict[int, int] = {n: 0 if n == 1 else place for n, place, _ in entries}
    return heapq.merge(
        records,
        ((n, text) for n, _, text in entries),
        key=lambda one: (one[0], 0) if isinstance(one[1], Record) else (places[one[0]], 1),
    )


def _read_entry(text: str) -> tuple[Entry, ...]:
    """The entry that a text stands for; none where it cannot be read, as one that a crash cut
    off."""
    entry = decode(text)
    return () if entry is None else (entry,)


def _identify(record: Record) -> list[object]:
    key = record.trial.key
    return [key.task_key, key.candidate_key, key.instance, key.rung, record.time_s]
