"""The progress of a tracker, kept so that a crash of either side cannot spoil it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from tuner.tracking.entries import TrackingPaths, read_json, write_json
from tuner.tracking.reader import Position


@dataclass(frozen=True, slots=True)
class Progress:
    """The tracker's progress with one server.

    Attributes:
        target: identity of the server.
        at: place in the run up to which all was pushed.
        check: checksum of what lies before it, see `RunReader.check`.
        in_files: number of records that are in files which were sent.
        files: when each other file that was sent was written, in nanoseconds, by name.
        pushed: number of entries and files that the server took.
        dropped: number of entries that it refused for good.
        error: why the last push failed; empty if it did not.
    """

    target: str
    at: Position = field(default_factory=Position)
    check: int = 0
    in_files: int = 0
    files: Mapping[str, int] = field(default_factory=dict)
    pushed: int = 0
    dropped: int = 0
    error: str = ""

    def from_start(self, *, files: bool = True) -> Progress:
        """The same server, and all to be pushed again; `files` says whether files are, too."""
        fresh = replace(self, at=Position(), check=0)
        return replace(fresh, in_files=0, files={}) if files else fresh

    def save(self, path: Path) -> None:
        """Write the progress in one step."""
        write_json(path, asdict(self))


def load_progress(paths: TrackingPaths, target: str) -> Progress:
    """The progress with this server: at the start where none, or another one, was used before."""
    raw = read_json(paths.progress)
    if raw.get("target") != target:
        return Progress(target)
    try:
        return Progress(**{**raw, "at": Position(**raw["at"])})
    except (KeyError, TypeError):
        return Progress(target)
