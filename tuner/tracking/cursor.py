"""How far a tracker came, kept where a crash of either side cannot spoil it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path

from tuner.tracking.source import Source
from tuner.tracking.spool import TrackingPaths, read_json, write_json


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far one reader of a source came.

    Attributes:
        offset: where it goes on.
        pushed: entries that the other side took.
        dropped: entries that it refused for good.
        check: what lay before `offset`, see `trusted`.
    """

    offset: int = 0
    pushed: int = 0
    dropped: int = 0
    check: int = 0

    def moved(self, source: Source, offset: int, *, pushed: int = 0, dropped: int = 0) -> Cursor:
        """This cursor after more entries."""
        taken, lost = self.pushed + pushed, self.dropped + dropped
        return Cursor(offset, taken, lost, source.check(offset))

    def trusted(self, source: Source) -> Cursor:
        """This cursor, or the start where the source is not the one it was made on.

        A machine that lost its power may have kept the offset and lost what was before it.
        """
        return self if source.check(self.offset) == self.check else Cursor()


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the tracker came with one server, as `offset.json` keeps it.

    Files have cursors of their own, so that a broken artifact store holds up no metric.

    Attributes:
        target: identity of the server it is about.
        data: in the spool, artifacts left out.
        artifacts: in the spool, nothing but them.
        records: among the store's, as metrics; older versions did not know it.
        files: among the store's, in numbered files; likewise.
        error: why the last push failed; empty when it did not.
    """

    target: str
    data: Cursor = field(default_factory=Cursor)
    artifacts: Cursor = field(default_factory=Cursor)
    records: Cursor = field(default_factory=Cursor)
    files: Cursor = field(default_factory=Cursor)
    error: str = ""

    def save(self, path: Path) -> None:
        """Write it in one step."""
        write_json(path, asdict(self))

    @property
    def cursors(self) -> tuple[Cursor, Cursor, Cursor, Cursor]:
        """All of them, in this order."""
        return self.data, self.artifacts, self.records, self.files

    @property
    def pushed(self) -> int:
        """Entries that the other side took."""
        return sum(cursor.pushed for cursor in self.cursors)

    @property
    def dropped(self) -> int:
        """Entries that it refused for good."""
        return sum(cursor.dropped for cursor in self.cursors)


def load_progress(paths: TrackingPaths, target: str) -> Progress:
    """Progress with this server: from the start where another one, or none, was used before."""
    raw = read_json(paths.offset)
    if raw.get("target") != target:
        return Progress(target)
    try:
        named = {name: Cursor(**raw[name]) for name in ("data", "artifacts")}
        since = {name: Cursor(**raw.get(name, {})) for name in ("records", "files")}
        return Progress(target, **named, **since, error=raw["error"])
    except (KeyError, TypeError):
        return Progress(target)
