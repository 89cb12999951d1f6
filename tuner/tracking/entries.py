"""What MLflow is told of a run, entry by entry, and the paths of tracking's files.

A session puts its entries into the store, beside its records; the tracker's process reads both and
pushes them (for records see `tuner.tracking.record_metrics`). Each text is one JSON object with a
`kind`; `task` is a task's key, or null for the run as a whole:

    start     uuid, name, params, tags, time_s    a session begins, or goes on after a restart
    metrics   task, step, values, time_s          values at one step; may be empty
    end       status, time_s                      the session is over

Steps of the run are numbers of trials or records; a task's step 0 holds its values at the end.
Steps of `task/loss_by_kernels` are numbers of kernels; steps of `task/shape_us` and
`task/shape_best_us` are sizes of the task's only dimension, or numbers of shapes if it has several.

After a crash the last entries may be pushed twice, with the same steps and timestamps, which the
tracking store keeps once.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tuner.files.atomic import write_bytes
from tuner.runs.folder import RunFolder


@dataclass(frozen=True, slots=True)
class Start:
    """A session begins or goes on. `uuid` is the run's, the same in all its sessions."""

    uuid: str
    name: str
    params: Mapping[str, str]
    tags: Mapping[str, str]
    time_s: float


@dataclass(frozen=True, slots=True)
class TaskEntry:
    """A task of the run and its fixed parameters. Made from the store, never kept there."""

    task: str
    name: str
    params: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Metrics:
    """Values of one task, or of the run where `task` is None, at one step."""

    task: str | None
    step: int
    values: Mapping[str, float]
    time_s: float


@dataclass(frozen=True, slots=True)
class Tags:
    """Facts about the run that came to light with a record. Never kept in the store."""

    tags: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class End:
    """The session is over; `status` is FINISHED, KILLED or FAILED."""

    status: str
    time_s: float


RECORDS = "records"
"""The folder of the files of records, see `tuner.tracking.reader`."""
TABLES = ("tasks.json", "spaces.json")
"""The artifacts that are tables, as MLflow keeps them, so that its pages show them as such."""

Kept = Start | Metrics | End
"""The entries that a store keeps."""

Entry = Kept | TaskEntry | Tags

_KINDS: dict[str, type[Kept]] = {"start": Start, "metrics": Metrics, "end": End}
_NAMES = {kind: name for name, kind in _KINDS.items()}


def encode(entry: Kept) -> str:
    """An entry as one line of text. Values that are not finite are left out: a plot cannot show
    them."""
    raw: dict[str, Any] = {"kind": _NAMES[type(entry)], **asdict(entry)}
    if isinstance(entry, Metrics):
        raw["values"] = {k: v for k, v in entry.values.items() if math.isfinite(v)}
    return json.dumps(raw, allow_nan=False, separators=(",", ":"))


def decode(text: str) -> Kept | None:
    """The entry that `encode` turned into this text; None where it is damaged, or another
    tuner's."""
    try:
        raw = json.loads(text)
        return _KINDS[raw.pop("kind")](**raw)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


@dataclass(frozen=True, slots=True)
class TrackingPaths:
    """The paths of tracking's files in a run folder."""

    run_dir: Path

    @property
    def folder(self) -> Path:
        """The folder of all files but MLflow's own database and artifacts."""
        return RunFolder(self.run_dir).tracking_dir

    @property
    def store(self) -> Path:
        """The records and entries; only the session writes there."""
        return RunFolder(self.run_dir).store

    @property
    def files(self) -> Path:
        """The folder of files that go with the run, each under the name that it has in MLflow."""
        return self.folder / "files"

    @property
    def system(self) -> Path:
        """What the tracker measured of its machine, an entry a line; only the tracker writes
        here."""
        return self.folder / "system.jsonl"

    @property
    def target(self) -> Path:
        """The server and experiment; see `tuner.tracking.mlflow_sink`."""
        return self.folder / "target.json"

    @property
    def progress(self) -> Path:
        """The tracker's progress; only the tracker writes here."""
        return self.folder / "progress.json"

    @property
    def ids(self) -> Path:
        """MLflow's ids of the run and its tasks; only the tracker writes here."""
        return self.folder / "ids.json"

    @property
    def lock(self) -> Path:
        """The lock of the one tracker that may be at work."""
        return self.folder / "tracker.lock"

    @property
    def log(self) -> Path:
        """The output of the tracker and MLflow."""
        return self.folder / "tracker.log"


def artifacts(run_dir: Path) -> Iterator[tuple[str, Path, int]]:
    """The files that go with a run, but for those of its records: the name of each, its path, and
    the time, in nanoseconds, at which it was written. Each is whole, whenever it is read. Raises
    OSError."""
    files, run = TrackingPaths(run_dir).files, RunFolder(run_dir)
    kept = [(path.relative_to(files), path) for path in files.rglob("[!.]*")]
    kept = [(name, path) for name, path in kept if name.parts[0] != RECORDS]
    shown = [(path.relative_to(run_dir), path) for path in (run.report, *run.plots.glob("*.png"))]
    for name, path in sorted([*kept, *shown]):
        if path.is_file():
            yield name.as_posix(), path, path.stat().st_mtime_ns


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file; an empty one where none can be read."""
    try:
        raw = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return raw if isinstance(raw, dict) else {}


def write_json(path: Path, value: Mapping[str, Any], *, mode: int = 0o644) -> None:
    """Replace a file in one step: a reader sees the old or the new one, whole."""
    write_bytes(path, json.dumps(value).encode(), mode=mode)
