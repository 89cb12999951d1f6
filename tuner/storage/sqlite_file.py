"""A record store as a file of SQLite: its name, its version, the names of its tasks, and advice
where it cannot be used."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

_WAIT_S = 0.2


def uri_of(path: Path, read_only: bool) -> str:
    """The name by which SQLite opens a store."""
    uri = path.absolute().as_uri()
    if not read_only:
        return f"{uri}?mode=rwc"
    if not os.access(path.parent, os.W_OK) and not journal(path).exists():
        # A reader of a live store maps a file next to it, which it cannot make in a folder that it
        # may not write to; a store that nobody has open needs no such file.
        return f"{uri}?mode=ro&immutable=1"
    return f"{uri}?mode=ro"


def journal(path: Path) -> Path:
    """The write-ahead log of the store at `path`: it exists while the store is being written."""
    return path.with_name(f"{path.name}-wal")


def version_of(db: sqlite3.Connection) -> int:
    """The version of the schema that a file has; 0 where it has none."""
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def has_tables(db: sqlite3.Connection) -> bool:
    """Whether there is anything in a file."""
    return bool(db.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0])


def advice_on(error: str) -> str:
    """Advice for users about an error of SQLite, by the words in it."""
    for words, advice in (
        ("full", "free some space and run the same command again"),
        ("readonly", "make the run folder writable, or use another"),
        ("locked", "another process is writing to it: end that one first"),
        ("unable to open", "see that the folder is there and that you may write to it"),
        ("not a database", "it is no record store: use another run folder"),
        ("malformed", "the file is damaged: use another run folder"),
    ):
        if words in error:
            return advice
    return "check the disk, then run the same command again"


def task_names(records: Path) -> list[str]:
    """The names in a file of records, in its order, each once; none where it is missing or unread.

    Also while a process writes it. Nothing is made or changed.
    """
    if not records.is_file():
        return []
    address = f"{records.absolute().as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(address, uri=True, timeout=_WAIT_S)) as reader:
            rows = reader.execute("SELECT name FROM task ORDER BY place").fetchall()
    except sqlite3.Error:
        return []
    return list(dict.fromkeys(str(name) for (name,) in rows))
