"""The names of a run's tasks, for those who wait for nothing else."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

_WAIT_S = 0.2


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
