"""A record store in memory."""

from __future__ import annotations

from tuner.storage.sqlite_store import SqliteStore


class MemoryStore(SqliteStore):
    """A `RecordStore` that forgets everything with its process."""

    def __init__(self) -> None:
        super().__init__(None)
