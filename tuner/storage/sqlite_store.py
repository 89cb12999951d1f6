"""A record store in one SQLite file: one writer, many readers, survives a kill at any moment.

The journal is a write-ahead log, so readers in other processes never wait for the writer. Each
transaction is synced before its method returns (`synchronous=FULL`), so that even a power cut
loses nothing that was told to anyone. SQLite cannot hold every value of a record as it is;
`tuner.storage.sqlite_schema` lists those that are encoded.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tuner.arrays import Features
from tuner.errors import TunerError
from tuner.record import Record, Status, TrialKey
from tuner.storage import sqlite_schema as schema
from tuner.storage.base import Kept, SessionSpan, Tally, as_vector
from tuner.storage.facts import Fact
from tuner.storage.sqlite_facts import read, write
from tuner.storage.sqlite_file import advice_on, has_tables, uri_of, version_of
from tuner.task import Instance, Task

_IN_MEMORY = ":memory:"
_PAGE = 256
"""Records that a scan holds in memory at once."""


class SqliteStore:
    """A `RecordStore` in the file `path`, made if it is not there.

    Methods may be called from any thread; each is one transaction.

    Args:
        path: the database; two more files stand next to it while it is open. None: in memory.
        read_only: open for reading only, possible also while another process writes.
        busy_timeout_s: time to wait for another process's transaction.

    Raises:
        TunerError: the file cannot be opened, is not a record store, or has another schema version.
    """

    def __init__(
        self, path: Path | None, *, read_only: bool = False, busy_timeout_s: float = 10.0
    ) -> None:
        self._path = path or Path(_IN_MEMORY)
        self._lock = threading.RLock()
        with self._as_tuner_error():
            self._db = sqlite3.connect(
                _IN_MEMORY if path is None else uri_of(path, read_only),
                uri=True,
                timeout=busy_timeout_s,
                isolation_level=None,
                check_same_thread=False,
            )
            try:
                self._open(read_only)
            except BaseException:
                self._db.close()
                raise

    def _open(self, read_only: bool) -> None:
        if not read_only:
            self._create()
        found = version_of(self._db)
        if found == 0 and not has_tables(self._db):
            raise TunerError(f"{self._path} holds no records yet: the run has not begun")
        if found != schema.VERSION or not self._is_whole():
            raise TunerError(
                f"{self._path} has schema version {found} of another tuner, this one reads version "
                f"{schema.VERSION}: use the tuner that wrote it, or a new run folder"
            )

    def _create(self) -> None:
        """Make the tables in a new file."""
        # A file system that cannot share memory keeps its rollback journal: as durable, but readers
        # then wait for the writer.
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        with self._transaction() as db:
            if version_of(db) == 0 and not has_tables(db):
                for statement in schema.CREATE:
                    db.execute(statement)
                db.execute(f"PRAGMA user_version={schema.VERSION}")
            if version_of(db) == schema.VERSION:
                db.execute(schema.INDEX_TALLIES)
                db.execute(schema.CREATE_ENTRIES)

    def _is_whole(self) -> bool:
        """Whether the file has all tables and columns."""
        try:
            for query in schema.PROBES:
                self._db.execute(f"{query} LIMIT 0")
        except sqlite3.OperationalError as error:
            if "no such" in str(error):
                return False
            raise
        return True

    @contextmanager
    def _as_tuner_error(self) -> Iterator[None]:
        """Turn SQLite's errors about a user's disk or file into one line; let our own bugs pass."""
        try:
            yield
        except sqlite3.ProgrammingError:
            raise
        except sqlite3.DatabaseError as error:
            raise TunerError(f"{self._path}: {error}; {advice_on(str(error))}") from error

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._as_tuner_error():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:  # a full disk may have rolled it back already
                    self._db.execute("ROLLBACK")
                raise

    def _rows(self, query: str, values: Sequence[object] = ()) -> list[Any]:
        with self._lock, self._as_tuner_error():
            return self._db.execute(query, values).fetchall()

    def append_many(self, items: Sequence[tuple[Record, Features | None]]) -> list[bool]:
        """See `RecordStore.append_many`."""
        # Everything is encoded first, to hold the write lock only for the writing.
        rows = [
            (
                schema.record_row(record),
                schema.candidate_row(record.trial.candidate),
                schema.trace_row(record.trial),
                None if features is None else schema.pack_vector(as_vector(features)),
            )
            for record, features in items
        ]
        with self._transaction() as db:
            return [_insert(db, *row) for row in rows]

    def scan(
        self,
        task_key: str | None = None,
        *,
        candidate_key: str | None = None,
        min_rung: int = 0,
        fastest: int | None = None,
    ) -> Iterator[Record]:
        """See `RecordStore.scan`."""
        # A plus keeps SQLite from the index by rungs: a candidate has few records, a task many.
        rung = "rung" if candidate_key is None else "+rung"
        conditions: dict[str, object] = {f"{rung} >= ?": min_rung}
        if task_key is not None:
            conditions["task_key = ?"] = task_key
        if candidate_key is not None:
            conditions["candidate_key = ?"] = candidate_key
        if fastest is not None:
            conditions |= {"rung = ?": 0, "status = ?": Status.OK.value}
            rows = self._rows(
                f"{schema.SELECT_RECORD} WHERE {' AND '.join(conditions)}"
                " AND latency_s IS NOT NULL ORDER BY latency_s, seq LIMIT ?",
                [*conditions.values(), max(0, fastest)],
            )
            return map(schema.record_of, rows)
        query = f"SELECT seq FROM record WHERE {' AND '.join(conditions)} ORDER BY seq"
        # The numbers take a few bytes each; their records are read page by page.
        numbers = [n for (n,) in self._rows(query, list(conditions.values()))]
        return self._pages(numbers)

    def _pages(self, numbers: list[int]) -> Iterator[Record]:
        for start in range(0, len(numbers), _PAGE):
            page = numbers[start : start + _PAGE]
            marks = ",".join("?" * len(page))
            query = f"{schema.SELECT_RECORD} WHERE seq IN ({marks}) ORDER BY seq"
            yield from map(schema.record_of, self._rows(query, page))

    def after(self, number: int, most: int) -> list[tuple[int, Record]]:
        """The first `most` records with a number above `number`, each with its number.

        Numbers rise from 1 in the order in which records were appended, and never change.
        """
        query = "SELECT seq FROM record WHERE seq > ? ORDER BY seq LIMIT ?"
        numbers = [n for (n,) in self._rows(query, (number, most))]
        return list(zip(numbers, self._pages(numbers), strict=True))

    def last(self) -> int:
        """The number of the last record; 0 where there is none."""
        return self._last_of("record")

    def entries_after(self, number: int, most: int) -> list[tuple[int, int, str]]:
        """The first `most` tracking entries with a number above `number`: each with its number,
        that of the last record before it, and its text. Not part of `RecordStore`."""
        query = "SELECT seq, place, text FROM tracking_entry WHERE seq > ? ORDER BY seq LIMIT ?"
        return self._rows(query, (number, most)) if self._has("tracking_entry") else []

    def last_entry(self) -> int:
        """The number of the last tracking entry; 0 where there is none."""
        return self._last_of("tracking_entry") if self._has("tracking_entry") else 0

    def _last_of(self, table: str) -> int:
        return int(self._rows(f"SELECT coalesce(max(seq), 0) FROM {table}")[0][0])

    def _has(self, table: str) -> bool:
        return bool(self._rows("SELECT 1 FROM sqlite_master WHERE name = ?", [table]))

    def fastest(self, task_key: str) -> dict[Instance, tuple[float, float]]:
        """The lowest latency of a task on each shape, and when it was measured, in seconds since
        the epoch; re-timings count. Not part of `RecordStore`."""
        rows = self._rows(
            "SELECT instance, MIN(latency_s), time_s FROM record WHERE task_key = ? AND status = ?"
            " AND latency_s IS NOT NULL GROUP BY instance",
            (task_key, Status.OK.value),
        )
        return {schema.instance_of(text): (s, time_s or 0.0) for text, s, time_s in rows}

    def has(self, key: TrialKey) -> bool:
        """Whether the trial of this key has its record. Not part of `RecordStore`."""
        query = (
            "SELECT 1 FROM record WHERE (task_key, candidate_key, instance, rung) = (?, ?, ?, ?)"
        )
        return bool(self._rows(query, schema.key_row(key)))

    def tallies(self) -> list[Tally]:
        """See `RecordStore.tallies`."""
        return [
            Tally(task_key, space, toolchain, schema.status_of(status), *numbers)
            for task_key, space, toolchain, status, *numbers in self._rows(schema.SELECT_TALLIES)
        ]

    def features(self, task_key: str) -> dict[str, Features]:
        """See `RecordStore.features`."""
        rows = self._rows(
            "SELECT candidate_key, vector FROM feature WHERE task_key = ?", [task_key]
        )
        return {key: schema.unpack_vector(data) for key, data in rows}

    def put(self, *facts: Fact) -> None:
        """See `RecordStore.put`."""
        with self._transaction() as db:
            for fact in facts:
                write(fact, db)

    def get(self, kind: type[Kept]) -> Kept:
        """See `RecordStore.get`."""
        found = read(kind, self._rows)
        assert isinstance(found, kind)
        return found

    def tasks(self) -> tuple[Task, ...]:
        """See `RecordStore.tasks`."""
        return tuple(map(schema.task_of, self._rows(schema.SELECT_TASK)))

    def task_keys(self) -> set[str]:
        """The keys of all tasks, whose programs are not read. Not part of `RecordStore`."""
        return {key for (key,) in self._rows("SELECT key FROM task")}

    def sessions(self) -> tuple[SessionSpan, ...]:
        """See `RecordStore.sessions`."""
        return tuple(
            SessionSpan(number, started_s, heartbeat_s, ended_s, reason, json.loads(used or "{}"))
            for number, started_s, heartbeat_s, ended_s, reason, used in self._rows(
                schema.SELECT_SESSION
            )
        )

    def flush(self) -> None:
        """See `RecordStore.flush`; there is nothing to wait for."""

    def close(self) -> None:
        """See `RecordStore.close`."""
        with self._lock, self._as_tuner_error():
            self._db.close()

    def note(self, key: str, value: str) -> None:
        """Keep a text beside the records, in place of an older one. Not part of `RecordStore`:
        `tuner.storage.segments.index` notes its position with it."""
        with self._transaction() as db:
            db.execute(schema.CREATE_NOTE)
            db.execute("INSERT OR REPLACE INTO note (key, value) VALUES (?, ?)", (key, value))

    def noted(self, key: str) -> str:
        """The last text noted under a key; empty where there is none."""
        if not self._has("note"):
            return ""
        rows = self._rows("SELECT value FROM note WHERE key = ?", [key])
        return str(rows[0][0]) if rows else ""


class MemoryStore(SqliteStore):
    """A `RecordStore` that forgets everything with its process."""

    def __init__(self) -> None:
        super().__init__(None)


def _insert(
    db: sqlite3.Connection,
    record: Sequence[object],
    candidate: Sequence[object],
    written: Sequence[object] | None,
    vector: bytes | None,
) -> bool:
    """Insert an encoded record, its candidate and features, unless its trial has a record."""
    if not db.execute(schema.INSERT_RECORD, record).rowcount:
        return False
    db.execute(schema.INSERT_CANDIDATE, candidate)
    if written is not None:
        db.execute(schema.INSERT_WRITTEN, written)
    if vector is not None:
        task_key, candidate_key = record[0], record[1]
        db.execute(schema.INSERT_FEATURE, (task_key, candidate_key, vector))
    return True
