"""Facts of a run as rows of the SQLite record store."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tuner.storage import sqlite_schema as schema
from tuner.storage.facts import (
    Defaults,
    Fact,
    SessionAlive,
    SessionBegun,
    SessionEnded,
    Sizes,
    Tasks,
    TrackingEntries,
)
from tuner.storage.history import History, from_text, join, to_text


def write(fact: Fact, db: sqlite3.Connection) -> None:
    """Write a fact, in a transaction; see `RecordStore.put`."""
    match fact:
        case Tasks(tasks):
            db.executemany(schema.UPSERT_TASK, map(schema.task_row, tasks))
        case Defaults(by_task):
            _write_defaults(by_task, db)
        case Sizes(by_task):
            _write_sizes(by_task, db)
        case History():
            text = to_text(fact).encode()
            key = hashlib.sha256(text).hexdigest()  # a stretch that is there changes nothing
            db.execute(schema.INSERT_HISTORY, (key, zlib.compress(text)))
        case TrackingEntries(texts):
            db.executemany(schema.INSERT_ENTRY, ((text,) for text in texts))
        case SessionBegun(session, now_s):
            db.execute(schema.BEGIN_SESSION, (session, now_s, now_s))
        case SessionAlive(session, now_s, utilisation):
            used = None if utilisation is None else json.dumps(utilisation)
            db.execute(schema.TOUCH_SESSION, (now_s, used, session))
        case SessionEnded(session, now_s, reason):
            db.execute(schema.END_SESSION, (now_s, now_s, reason, session))


def read(kind: type[Fact], query: Callable[[str], Sequence[Any]]) -> Fact:
    """All that was written of a kind of fact.

    Args:
        query: the rows that answer a query.
    """
    if kind is Defaults:
        return Defaults(dict(query(schema.SELECT_DEFAULTS)))
    if kind is Sizes:
        return Sizes({key: json.loads(text) for key, text in query(schema.SELECT_SIZES)})
    if kind is TrackingEntries:
        return TrackingEntries([text for (text,) in query(schema.SELECT_ENTRIES)])
    parts = query(schema.SELECT_HISTORY)
    return join(from_text(zlib.decompress(part).decode()) for (part,) in parts)


def _write_defaults(by_task: Mapping[str, str], db: sqlite3.Connection) -> None:
    for task_key, candidate_key in sorted(by_task.items()):
        if not db.execute(schema.SET_DEFAULT, (candidate_key, task_key)).rowcount:
            raise ValueError(f"default candidate of an unknown task: {task_key}")


def _write_sizes(by_task: Mapping[str, Mapping[str, int]], db: sqlite3.Connection) -> None:
    for task_key, sizes in by_task.items():
        for (known,) in db.execute(schema.SELECT_SIZES_OF, [task_key]).fetchall():
            text = json.dumps({**json.loads(known or "{}"), **sizes})
            db.execute(schema.SET_SIZES, (text, task_key))
