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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tuner.arrays import Features
from tuner.errors import TunerError
from tuner.record import Record, Status, TrialKey
from tuner.storage import sqlite_schema as schema
from tuner.storage.base import (
    SessionSpan,
    SpaceSizes,
    Tally,
    as_vector,
)
from tuner.storage.history import History, joined
from tuner.storage.sqlite_file import advice_on, has_tables, uri_of, version_of
from tuner.task import Instance, Task
from tuner.utilisation import SlotSeconds

_PAGE = 256
"""Records that a scan holds in memory at once."""


class SqliteStore:
    """A `RecordStore` in the file `path`, made if it is not there.

    Methods may be called from any thread; each is one transaction.

    Args:
        path: the database; two more files stand next to it while it is open.
        read_only: open for reading only, possible also while another process writes.
        busy_timeout_s: time to wait for another process's transaction.

    Raises:
        TunerError: the file cannot be opened, is not a record store, or has another schema version.
    """

    def __init__(
        self, path: Path, *, read_only: bool = False, busy_timeout_s: float = 10.0
    ) -> None:
        self._path = path
        self._lock = threading.RLock()
        with self._as_tuner_error():
            self._db = sqlite3.connect(
                uri_of(path, read_only),
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

    def append(self, record: Record, features: Features | None = None) -> bool:
        """See `RecordStore.append`."""
        return self.append_many([(record, features)])[0]

    def append_many(self, items: Sequence[tuple[Record, Features | None]]) -> list[bool]:
        """See `RecordStore.append_many`."""
        # Everything is encoded first, to hold the write lock only for the writing.
        rows = [
            (
                schema.record_row(record),
                schema.candidate_row(record.trial.candidate),
                schema.written_row(record.trial),
                None if features is None else schema.pack_vector(as_vector(features)),
            )
            for record, features in items
        ]
        with self._transaction() as db:
            return [_insert(db, *row) for row in rows]

    def scan(
        self, task_key: str | None = None, *, candidate_key: str | None = None, min_rung: int = 0
    ) -> Iterator[Record]:
        """See `RecordStore.scan`."""
        # A plus keeps SQLite from the index by rungs: a candidate has few records, a task many.
        rung = "rung" if candidate_key is None else "+rung"
        conditions: dict[str, object] = {f"{rung} >= ?": min_rung}
        if task_key is not None:
            conditions["task_key = ?"] = task_key
        if candidate_key is not None:
            conditions["candidate_key = ?"] = candidate_key
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
        return int(self._rows("SELECT coalesce(max(seq), 0) FROM record")[0][0])

    def best(self, task_key: str, k: int) -> list[Record]:
        """See `RecordStore.best`."""
        rows = self._rows(
            f"{schema.SELECT_RECORD} WHERE task_key = ? AND rung = 0 AND status = ?"
            " AND latency_s IS NOT NULL ORDER BY latency_s, seq LIMIT ?",
            (task_key, Status.OK.value, max(0, k)),
        )
        return [schema.record_of(row) for row in rows]

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
        """See `RecordStore.has`."""
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

    def put_sizes(self, sizes: SpaceSizes) -> None:
        """See `RecordStore.put_sizes`."""
        with self._transaction() as db:
            for task_key, mine in sizes.items():
                rows = db.execute("SELECT sizes FROM task WHERE key = ?", [task_key]).fetchall()
                for (known,) in rows:
                    text = json.dumps({**json.loads(known or "{}"), **mine})
                    db.execute("UPDATE task SET sizes = ? WHERE key = ?", (text, task_key))

    def sizes(self) -> dict[str, dict[str, int]]:
        """See `RecordStore.sizes`."""
        return {task_key: json.loads(text) for task_key, text in self._rows(schema.SELECT_SIZES)}

    def put_history(self, *stretches: History) -> None:
        """See `RecordStore.put_history`. A stretch that is there already changes nothing."""
        with self._transaction() as db:
            db.executemany(schema.INSERT_HISTORY, map(schema.history_row, stretches))

    def history(self) -> History:
        """See `RecordStore.history`."""
        return joined(schema.history_of(part) for (part,) in self._rows(schema.SELECT_HISTORY))

    def features(self, task_key: str) -> dict[str, Features]:
        """See `RecordStore.features`."""
        rows = self._rows(
            "SELECT candidate_key, vector FROM feature WHERE task_key = ?", [task_key]
        )
        return {key: schema.unpack_vector(data) for key, data in rows}

    def put_tasks(self, tasks: Sequence[Task], defaults: Mapping[str, str]) -> None:
        """See `RecordStore.put_tasks`."""
        with self._transaction() as db:
            db.executemany(schema.UPSERT_TASK, map(schema.task_row, tasks))
            for task_key, candidate_key in sorted(defaults.items()):
                changed = db.execute(
                    "UPDATE task SET default_key = ? WHERE key = ?", (candidate_key, task_key)
                )
                if not changed.rowcount:
                    raise ValueError(f"default candidate of an unknown task: {task_key}")

    def tasks(self) -> tuple[Task, ...]:
        """See `RecordStore.tasks`."""
        return tuple(map(schema.task_of, self._rows(schema.SELECT_TASK)))

    def defaults(self) -> dict[str, str]:
        """See `RecordStore.defaults`."""
        query = "SELECT key, default_key FROM task WHERE default_key IS NOT NULL ORDER BY place"
        return dict(self._rows(query))

    def begin_session(self, now_s: float) -> int:
        """See `RecordStore.begin_session`."""
        with self._transaction() as db:
            cursor = db.execute(
                "INSERT INTO session (started_s, heartbeat_s) VALUES (?, ?)", (now_s, now_s)
            )
            return int(cursor.lastrowid or 0)

    def heartbeat(self, session: int, now_s: float, utilisation: SlotSeconds | None = None) -> None:
        """See `RecordStore.heartbeat`."""
        said = None if utilisation is None else json.dumps(utilisation)
        with self._transaction() as db:
            db.execute(
                "UPDATE session SET heartbeat_s = ?, utilisation = coalesce(?, utilisation)"
                " WHERE number = ? AND ended_s IS NULL",
                (now_s, said, session),
            )

    def end_session(self, session: int, now_s: float, reason: str) -> None:
        """See `RecordStore.end_session`."""
        with self._transaction() as db:
            db.execute(
                "UPDATE session SET heartbeat_s = ?, ended_s = ?, reason = ?"
                " WHERE number = ? AND ended_s IS NULL",
                (now_s, now_s, reason, session),
            )

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
        if not self._rows("SELECT 1 FROM sqlite_master WHERE name = 'note'"):
            return ""
        rows = self._rows("SELECT value FROM note WHERE key = ?", [key])
        return str(rows[0][0]) if rows else ""


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
