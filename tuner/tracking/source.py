"""Where a tracker finds what it pushes: items in a row, each with an offset that never changes."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tuner.tracking.spool import Artifact, End, Entry, read_lines


@dataclass(frozen=True, slots=True)
class Item:
    """What is pushed, or left out, as one.

    Attributes:
        entries: none where there is nothing to push.
        end: the offset behind it.
        broken: how many lines in it cannot be read.
    """

    entries: tuple[Entry, ...]
    end: int
    broken: int = 0


class Source(Protocol):
    """A row of things to push. Methods raise OSError or TunerError where it cannot be read."""

    def check(self, offset: int) -> int:
        """A checksum of what lies right before an offset: 0 at the start, -1 where nothing ends
        there."""

    def after(self, offset: int, most: int) -> Sequence[Item]:
        """What comes next, in order: at most so many that have entries."""

    def left(self, offset: int) -> int:
        """How many there are in all from here on."""


class SpoolLines:
    """The artifacts of a spool, or all its other lines.

    Args:
        holds: whether the end of a session has to wait, and what comes after it.
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
                # An end begins a batch: what it waits for may depend on what was said before it.
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
