"""Sources of a tracker's entries: sequences of items, each at an offset that never changes."""

from __future__ import annotations

import stat
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tuner.files.atomic import write_bytes
from tuner.tracking.spool import Artifact, End, Entry, TrackingPaths, read_lines


@dataclass(frozen=True, slots=True)
class Item:
    """Entries that are pushed, or dropped, together.

    Attributes:
        entries: empty where there is nothing to push.
        end: the offset after the item.
        broken: number of lines in it that cannot be read.
    """

    entries: tuple[Entry, ...]
    end: int
    broken: int = 0


class Source(Protocol):
    """A sequence of items to push. Methods raise OSError or TunerError if it cannot be read."""

    def check(self, offset: int) -> int:
        """A checksum of the data right before an offset: 0 at the start, -1 where no item ends
        there."""

    def after(self, offset: int, most: int) -> Sequence[Item]:
        """The items after an offset, in order: at most `most` that have entries."""

    def left(self, offset: int) -> int:
        """The number of items to push after an offset."""


class SpoolLines:
    """The artifacts of a spool, or all its other lines.

    Args:
        holds: whether the end of a session has to wait, together with all after it.
    """

    def __init__(
        self, path: Path, *, artifacts: bool, holds: Callable[[], bool] = lambda: False
    ) -> None:
        self._path = path
        self._artifacts = artifacts
        self._holds = holds

    def check(self, offset: int, window: int = 256) -> int:
        """See `Source.check`."""
        if offset == 0:
            return 0
        try:
            with self._path.open("rb") as file:
                file.seek(max(0, offset - window))
                tail = file.read(min(offset, window))
        except FileNotFoundError:
            return -1
        return zlib.crc32(tail) if len(tail) == min(offset, window) else -1

    def after(self, offset: int, most: int) -> list[Item]:
        """See `Source.after`."""
        items: list[Item] = []
        passed = offset
        for line in read_lines(self._path, offset):
            if self._takes(line.entry):
                # An end begins a batch: the records it waits for may depend on entries before it.
                ends = isinstance(line.entry, End) and (items or self._holds())
                if ends or len(items) == most:
                    break
                entries = () if line.entry is None else (line.entry,)
                items.append(Item(entries, line.end, broken=not entries))
            passed = line.end
        if passed > (items[-1].end if items else offset):
            items.append(Item((), passed))
        return items

    def left(self, offset: int) -> int:
        """See `Source.left`."""
        return sum(self._takes(line.entry) for line in read_lines(self._path, offset))

    def _takes(self, entry: Entry | None) -> bool:
        return isinstance(entry, Artifact) is self._artifacts


class ReportFile:
    """The report on a run as an artifact, with its plots, again whenever somebody wrote it anew.

    An offset is the time, in nanoseconds, at which the report was written that was pushed.
    """

    def __init__(self, paths: TrackingPaths) -> None:
        self._paths = paths

    def check(self, offset: int) -> int:
        """See `Source.check`."""
        return 0  # whatever was pushed: another report has another time

    def after(self, offset: int, most: int) -> list[Item]:
        """See `Source.after`; copies the report to where artifacts are sent from."""
        written = self._written()
        if written in (0, offset):
            return []
        run = self._paths.run_dir
        plots = sorted(file for file in self._paths.plots.glob("*.png") if file.is_file())
        places = [file.relative_to(run) for file in (self._paths.report, *plots)]
        for place in places:
            (self._paths.folder / place).parent.mkdir(exist_ok=True)
            write_bytes(self._paths.folder / place, (run / place).read_bytes())
        return [Item(tuple(Artifact(place.as_posix()) for place in places), written)]

    def left(self, offset: int) -> int:
        """See `Source.left`."""
        return int(self._written() not in (0, offset))

    def _written(self) -> int:
        """When the report was written; 0 where there is none."""
        try:
            told = self._paths.report.stat()
        except FileNotFoundError:
            return 0
        return told.st_mtime_ns if stat.S_ISREG(told.st_mode) else 0
