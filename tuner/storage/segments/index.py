"""A local SQLite file as the index of segments: made from them, and kept up with them.

The index notes the last segment that it covers, with that segment's checksum, which stands for all
segments before it. So a look at that one segment tells whether the index belongs to this run; if
not (another run, a run that was set back, a damaged file), it is thrown away and made again.
Replaying entries twice changes nothing: after a kill some entries are replayed once more, and
readers may bring an index up to date while a writer fills it.
"""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import asdict
from itertools import islice
from pathlib import Path

from tuner.arrays import Features
from tuner.errors import TunerError
from tuner.files.atomic import sync_folder, write_bytes
from tuner.files.locks import hold_lock
from tuner.record import Record
from tuner.storage.base import RecordStore
from tuner.storage.facts import Fact
from tuner.storage.objects.base import ObjectStore
from tuner.storage.segments.format import Entry, Measured, Segment
from tuner.storage.segments.log import Position, holds, read_on
from tuner.storage.sqlite_store import SqliteStore

_log = logging.getLogger(__name__)

_POSITION = "segments"
_AT_ONCE = 64
"""Segments that one transaction adds to the index."""


def replay(entries: Iterable[Entry], store: RecordStore) -> None:
    """Apply entries to a store. Entries that it knows already change nothing."""
    measured: list[tuple[Record, Features | None]] = []
    facts: list[Fact] = []
    for entry in entries:
        if isinstance(entry, Measured):
            measured.append((entry.record, entry.features))
        else:
            facts.append(entry)
    store.append_many(measured)
    store.put(*facts)


def open_index(objects: ObjectStore, path: Path) -> tuple[SqliteStore, Position]:
    """The index of a run's segments and its position; an empty index if there is none of this run.

    Raises:
        TunerError: trouble with the object store or the local disk, or `path` holds the records of
            a run that has no segments.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TunerError(f"cannot make {path.parent}: {error.strerror}") from error
    with hold_lock(path.parent):  # so that nobody discards an index that another has just begun
        at = _usable(objects, path)
        if at is None:
            discard(path)
        store = SqliteStore(path)
        if at is None:
            at = Position()
            mark(store, at)
        return store, at


def catch_up(objects: ObjectStore, path: Path) -> None:
    """Bring the index of a run's segments up to their end; make it where there is none.

    Raises:
        TunerError: as `open_index`, or the segments are damaged.
    """
    store, at = open_index(objects, path)
    with closing(store):
        advance(objects, store, at)


def advance(objects: ObjectStore, store: SqliteStore, at: Position) -> Position:
    """Replay into an index the segments after `at`; return its new position.

    Raises:
        TunerError: trouble with the object store, its segments or the local disk.
    """
    # Many segments at once, since each transaction is synced to the disk.
    for group in _groups(read_on(objects, at)):
        at = group[-1][0]
        replay((entry for _, segment in group for entry in segment.entries), store)
        mark(store, at)
    return at


def mark(store: SqliteStore, at: Position) -> None:
    """Note that everything up to `at` was replayed."""
    store.note(_POSITION, json.dumps(asdict(at)))


def discard(index: Path) -> None:
    """Remove an index, and the files that SQLite keeps beside it.

    A log that is left behind would be replayed into the next database of that name; a database
    without its log may hold half a transaction. So the database is first replaced with an empty
    file, for which SQLite replays no log; then the log is removed, and the file last. Wherever a
    kill or a power cut comes in between, nothing of the old index is ever read again.

    Raises:
        TunerError: a file cannot be removed.
    """
    try:
        if not any(file.exists() for file in _files(index)):
            return
        write_bytes(index, b"")
        sync_folder(index.parent)
        for file in reversed(_files(index)):
            with suppress(FileNotFoundError):
                file.unlink()
            sync_folder(index.parent)
    except OSError as error:
        raise TunerError(f"cannot remove {index}: {error.strerror}") from error


def _files(index: Path) -> list[Path]:
    return [index.with_name(f"{index.name}{suffix}") for suffix in ("", "-shm", "-wal")]


def _usable(objects: ObjectStore, path: Path) -> Position | None:
    """The position of an index; None where it is not an index of this run."""
    if not path.exists():
        return None
    try:
        with closing(SqliteStore(path, read_only=True)) as store:
            noted = store.noted(_POSITION)
            if not noted and next(store.scan(), None) is not None:
                raise _NoIndex(f"{path} holds the records of a run on this disk: use another path")
            at = Position(**json.loads(noted))
    except (TunerError, ValueError, TypeError) as error:
        if isinstance(error, _NoIndex) or isinstance(error.__cause__, sqlite3.OperationalError):
            raise  # nothing is wrong with the file: it must not be lost
        _log.warning("%s is made again from the segments: %s", path, error)
        return None
    if holds(objects, at):
        return at
    _log.warning("%s is made again: its segments are not those of %s", path, objects.name)
    return None


class _NoIndex(TunerError):
    """The path of the index holds another run's own store of records."""


def _groups(
    segments: Iterator[tuple[Position, Segment]],
) -> Iterator[list[tuple[Position, Segment]]]:
    while group := list(islice(segments, _AT_ONCE)):
        yield group
