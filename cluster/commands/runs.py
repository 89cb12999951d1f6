"""Opening the store of a run that is there, to look only."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tuner.sqlite_store import SqliteStore


@contextlib.contextmanager
def opened_store(run: Path) -> Iterator[SqliteStore]:
    """The records of a run, also while another process works on it.

    Raises:
        TunerError: the run is missing, damaged, of another schema version or without records.
    """
    from tuner.errors import TunerError
    from tuner.run_folder import read_run
    from tuner.sqlite_store import SqliteStore

    folder, _ = read_run(run)
    if not folder.store.exists():
        raise TunerError(f"{run} holds no records yet: the run has not begun")
    with contextlib.closing(SqliteStore(folder.store, read_only=True)) as store:
        yield store
