"""A SQLite database as a file: how it is opened, what lies beside it, what its errors mean."""

from __future__ import annotations

import os
from pathlib import Path


def uri(path: Path, read_only: bool) -> str:
    """The URI that SQLite opens the file by."""
    named = path.absolute().as_uri()
    if not read_only:
        return f"{named}?mode=rwc"
    if not os.access(path.parent, os.W_OK) and not journal(path).exists():
        # A reader of a live store maps a file next to it, which it cannot make in a folder that it
        # may not write to; a store that nobody has open needs no such file.
        return f"{named}?mode=ro&immutable=1"
    return f"{named}?mode=ro"


def journal(path: Path) -> Path:
    """The write-ahead log of the store at `path`: it exists while the store is being written."""
    return path.with_name(f"{path.name}-wal")


def advice(error: str) -> str:
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
