"""The progress of a tracker, kept so that a crash of either side cannot spoil it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path

from tuner.tracking.source import Source
from tuner.tracking.spool import TrackingPaths, read_json, write_json


@dataclass(frozen=True, slots=True)
class Cursor:
    """The position of one reader of a source.

    Attributes:
        offset: offset to go on from.
        pushed: number of entries that the server took.
        dropped: number of entries that it refused for good.
        check: checksum of what lay before `offset`, see `trusted`.
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
        """This cursor, or the start where the source is not the one that the cursor was made on.

        After a power cut a machine may have kept the offset and lost what was before it.
        """
        return self if source.check(self.offset) == self.check else Cursor()


@dataclass(frozen=True, slots=True)
class Progress:
    """The tracker's progress with one server, as `offset.json` keeps it.

    Files have cursors of their own, so that a broken artifact store does not hold up metrics.

    Attributes:
        target: identity of the server.
        data: cursor in the spool, for all entries but artifacts.
        artifacts: cursor in the spool, for artifacts alone.
        records: cursor in the store, for records as metrics; files of older versions lack it.
        files: cursor in the store, for records in numbered files; files of older versions lack it.
        system: cursor in the tracker's own spool; files of older versions lack it.
        report: cursor of the report; files of older versions lack it.
        error: why the last push failed; empty if it did not.
    """

    target: str
    data: Cursor = field(default_factory=Cursor)
    artifacts: Cursor = field(default_factory=Cursor)
    records: Cursor = field(default_factory=Cursor)
    files: Cursor = field(default_factory=Cursor)
    system: Cursor = field(default_factory=Cursor)
    report: Cursor = field(default_factory=Cursor)
    error: str = ""

    def save(self, path: Path) -> None:
        """Write the progress in one step."""
        write_json(path, asdict(self))

    @property
    def cursors(self) -> tuple[Cursor, ...]:
        """All cursors, in the order of the fields."""
        return self.data, self.artifacts, self.records, self.files, self.system, self.report

    @property
    def pushed(self) -> int:
        """Number of entries that the server took."""
        return sum(cursor.pushed for cursor in self.cursors)

    @property
    def dropped(self) -> int:
        """Number of entries that the server refused for good."""
        return sum(cursor.dropped for cursor in self.cursors)


def load_progress(paths: TrackingPaths, target: str) -> Progress:
    """The progress with this server: at the start where none, or another one, was used before."""
    raw = read_json(paths.offset)
    if raw.get("target") != target:
        return Progress(target)
    try:
        named = {name: Cursor(**raw[name]) for name in ("data", "artifacts")}
        later = ("records", "files", "system", "report")
        since = {name: Cursor(**raw.get(name, {})) for name in later}
        return Progress(target, **named, **since, error=raw["error"])
    except (KeyError, TypeError):
        return Progress(target)
