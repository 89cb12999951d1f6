"""Every record of a run as a line of JSON."""

from __future__ import annotations

from pathlib import Path

from tuner.files.atomic import name_unwritable, output_file
from tuner.record import record_line
from tuner.storage.base import RecordStore


def export_records(store: RecordStore, file: Path) -> int:
    """Write every record as a line of JSON, in the order they were stored; return their number.

    The file appears whole or not at all. `tuner.record.record_from_json` reads its lines.

    Raises:
        TunerError: the file cannot be written.
    """
    n = 0
    with name_unwritable(file), output_file(file) as lines:
        for record in store.scan():
            lines.write(record_line(record) + "\n")
            n += 1
    return n
