"""Records on their way to an experiment's artifacts: numbered files of JSON lines."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

from tuner.record import Record
from tuner.tracking.spool import LineFile


class RecordChunks:
    """Records as numbered JSONL files that never change once they have their number.

    Args:
        folder: which is there.
        per_file: records after which a file is full; its owner rolls it then.
    """

    def __init__(self, folder: Path, per_file: int) -> None:
        self._folder = folder
        self._open_path = folder / "open.jsonl"
        self._per_file = per_file
        self._file: LineFile | None = LineFile(self._open_path)
        # What the open file holds already: `catch_up` may bring the last of them once more.
        self._kept = set(self._open_path.read_bytes().splitlines())
        self._count = len(self._kept)

    def append(self, record: Record) -> bool:
        """Add a record to the open file, if it does not hold it; whether that went well."""
        line = json.dumps(record.to_json(), separators=(",", ":")).encode()
        if line in self._kept:
            return True
        try:
            self._file = self._file or LineFile(self._open_path)
        except OSError:
            return False
        done = self._file.append(line + b"\n")
        self._count += done
        return done

    def full(self) -> bool:
        """Whether the open file should get its number."""
        return self._count >= self._per_file

    def roll(self) -> str:
        """Give the open file its number; its path for the spool, empty where it is empty."""
        if not self._count:
            return ""
        self.close()
        last = max((int(p.stem.rpartition("-")[2]) for p in self._numbered()), default=0)
        path = self._folder / f"records-{last + 1:06d}.jsonl"
        try:
            os.replace(self._open_path, path)
        except OSError:
            return ""
        self._kept, self._count = set(), 0
        return f"records/{path.name}"

    def closed(self) -> list[str]:
        """Paths of all numbered files, as the spool has them."""
        return [f"records/{path.name}" for path in sorted(self._numbered())]

    def close(self) -> None:
        """Let go of the open file; the next record opens it again."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _numbered(self) -> Iterable[Path]:
        return self._folder.glob("records-*.jsonl")
