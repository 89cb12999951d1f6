"""How far the reader of a spool came, kept where a crash of either side cannot spoil it."""

from __future__ import annotations

import zlib
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from tuner.tracking.spool import TrackingPaths, is_artifact, read_json, write_json


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far one reader came.

    Attributes:
        offset: where its next line begins.
        pushed: entries that the other side took.
        dropped: entries that it refused for good.
        check: checksum of the bytes before `offset`, see `trusted`.
    """

    offset: int = 0
    pushed: int = 0
    dropped: int = 0
    check: int = 0

    def moved(self, path: Path, offset: int, *, pushed: int = 0, dropped: int = 0) -> Cursor:
        """This cursor after more entries."""
        taken, lost = self.pushed + pushed, self.dropped + dropped
        return Cursor(offset, taken, lost, _checksum(path, offset))

    def trusted(self, path: Path) -> Cursor:
        """This cursor, or the start where the spool is not the one it was made on.

        A machine that lost its power may have kept the offset and lost the lines before it.
        """
        return self if _checksum(path, self.offset) == self.check else Cursor()


def _checksum(path: Path, offset: int, window: int = 256) -> int:
    """Of the last bytes before `offset`; -1 where there are not as many, 0 at the start."""
    if offset == 0:
        return 0
    try:
        with path.open("rb") as file:
            file.seek(max(0, offset - window))
            tail = file.read(min(offset, window))
    except OSError:
        return -1
    return zlib.crc32(tail) if len(tail) == min(offset, window) else -1


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the tracker came with one server, as `offset.json` keeps it.

    Artifacts have a cursor of their own, so that a broken artifact store holds up no metric.

    Attributes:
        target: identity of the server it is about.
        error: why the last push failed; empty when it did not.
    """

    target: str
    data: Cursor = field(default_factory=Cursor)
    artifacts: Cursor = field(default_factory=Cursor)
    error: str = ""

    def save(self, path: Path) -> None:
        """Write it in one step."""
        write_json(path, asdict(self))


def load_progress(paths: TrackingPaths, target: str) -> Progress:
    """Progress with this server: from the start where another one, or none, was used before."""
    raw = read_json(paths.offset)
    try:
        if raw.get("target") != target:
            return Progress(target)
        kept = Progress(target, Cursor(**raw["data"]), Cursor(**raw["artifacts"]), raw["error"])
    except (KeyError, TypeError):
        return Progress(target)
    return replace(
        kept, data=kept.data.trusted(paths.spool), artifacts=kept.artifacts.trusted(paths.spool)
    )


def count_pending(paths: TrackingPaths, progress: Progress) -> int:
    """Whole lines of the spool that the tracker has yet to push (or to skip, where broken)."""
    data, artifacts = progress.data.offset, progress.artifacts.offset
    offset = min(data, artifacts)
    pending = 0
    try:
        file = paths.spool.open("rb")
    except FileNotFoundError:
        return 0
    with file:
        file.seek(offset)
        for line in file:
            if line.endswith(b"\n"):
                pending += offset >= (artifacts if is_artifact(line) else data)
            offset += len(line)
    return pending
