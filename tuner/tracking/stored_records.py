"""The records of a run as sources of its tracker, read from the store, where they are durable.

An offset is a record's number in the store. Records are pushed as metrics, and as numbered files
of equal length, so that a file's number tells which records it holds.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import takewhile
from pathlib import Path

from tuner.files.atomic import write_bytes
from tuner.record import Record, record_line
from tuner.storage.base import SessionSpan
from tuner.storage.facts import Defaults
from tuner.storage.sqlite_file import journal
from tuner.storage.sqlite_store import SqliteStore
from tuner.tracking.record_metrics import RecordMetrics, said_steps
from tuner.tracking.source import Item
from tuner.tracking.spool import Artifact, Metrics, read_lines

PER_FILE = 200
_PAGE = 500


class StoredRecords:
    """A run's store, read while its session writes it.

    It is opened anew for each short look: this process may be stopped at any time, and another file
    may replace the store. Methods raise TunerError.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.over = False
        """Whether the session has ended, so that nobody writes any more."""

    @property
    def may_be_read(self) -> bool:
        """Whether reading is allowed: not while the store is written without a write-ahead log,
        since the writer would wait for us."""
        return self.over or journal(self._path).exists()

    @contextmanager
    def _opened(self) -> Iterator[SqliteStore | None]:
        """The store; None where there is none."""
        if not self._path.exists():
            yield None
            return
        with closing(SqliteStore(self._path, read_only=True)) as store:
            yield store

    def check(self, offset: int) -> int:
        """See `Source.check`."""
        if offset == 0:
            return 0
        with self._opened() as store:
            found = store.after(offset - 1, 1) if store else []
        return _checksum(found[0][1]) if found and found[0][0] == offset else -1

    def left(self, offset: int) -> int:
        """See `Source.left`."""
        with self._opened() as store:
            return max(0, store.last() - offset) if store else 0


def _checksum(record: Record) -> int:
    key = record.trial.key
    told = (key.task_key, key.candidate_key, key.instance, key.rung, record.time_s)
    return zlib.crc32(json.dumps(told).encode())


class RecordCurves(StoredRecords):
    """The metrics of the records, a `Source`.

    Args:
        spool: the run's spool, which may have metrics of records from an older version.
        knows: whether a task was announced to the sink; records of other tasks wait.
        left_out: whether a task has no run of its own; its records only say of the model.
    """

    def __init__(
        self,
        path: Path,
        spool: Path,
        knows: Callable[[str], bool],
        left_out: Callable[[str], bool] = lambda task: False,
    ) -> None:
        super().__init__(path)
        self._spool = spool
        self._knows = knows
        self._left_out = left_out
        self._metrics: RecordMetrics | None = None
        self._at = 0
        """The offset up to which `_metrics` has taken records."""

    def after(self, offset: int, most: int) -> list[Item]:
        """See `Source.after`. Quick where it goes on from the last call; else it reads all records
        before the offset again."""
        with self._opened() as store:
            if store is None:
                return []
            sessions = store.sessions()
            metrics = self._come_to(offset, store, sessions)
            found = takewhile(self._announced, store.after(offset, most))
            items = [Item(self._shown(metrics, record, sessions), n) for n, record in found]
        self._metrics, self._at = metrics, items[-1].end if items else offset
        return items

    def ready(self, offset: int) -> bool:
        """Whether the next record can be pushed."""
        with self._opened() as store:
            return any(map(self._announced, store.after(offset, 1) if store else ()))

    def _come_to(
        self, offset: int, store: SqliteStore, sessions: Sequence[SessionSpan]
    ) -> RecordMetrics:
        """The fold over all records up to an offset, to take the next ones with."""
        metrics, self._metrics = self._metrics, None  # so that it is made again after an error
        if metrics is None or self._at != offset:
            said = said_steps(line.entry for line in read_lines(self._spool))
            metrics, at = RecordMetrics(store.tasks(), store.get(Defaults).by_task, said), 0
            while at < offset and (page := store.after(at, min(_PAGE, offset - at))):
                at = page[-1][0]
                for _, record in page:
                    metrics.take(record, sessions)
        return metrics

    def _announced(self, numbered: tuple[int, Record]) -> bool:
        task = numbered[1].trial.task_key
        return self._knows(task) or self._left_out(task)

    def _shown(
        self, metrics: RecordMetrics, record: Record, sessions: Sequence[SessionSpan]
    ) -> tuple[Metrics, ...]:
        """The metrics of a record, without those of a task that has no run."""
        said = metrics.take(record, sessions)
        return said if self._knows(record.trial.task_key) else tuple(m for m in said if not m.task)


class RecordFiles(StoredRecords):
    """The records in numbered files, a `Source`. The last one is pushed after the session's end.

    Args:
        folder: the run's folder for tracking; the files are made in `records/`.
    """

    def __init__(self, path: Path, folder: Path) -> None:
        super().__init__(path)
        self._folder = folder

    def after(self, offset: int, most: int) -> list[Item]:
        """See `Source.after`; makes the next file. Each number begins at a fixed record, so that a
        longer file replaces a shorter one. Raises OSError too."""
        before = offset // PER_FILE
        whole = (before + 1) * PER_FILE
        with self._opened() as store:
            last = store.last() if store else 0
            if store is None or last <= offset or (last < whole and not self.over):
                return []
            found = store.after(before * PER_FILE, PER_FILE)
        name = f"records/records-{before + 1:06d}.jsonl"
        lines = "".join(f"{record_line(record)}\n" for _, record in found)
        write_bytes(self._folder / name, lines.encode())
        return [Item((Artifact(name),), found[-1][0])]

    def left(self, offset: int) -> int:
        """See `Source.left`; the number of files."""
        last = offset + super().left(offset)
        return -(-last // PER_FILE) - offset // PER_FILE if last > offset else 0
