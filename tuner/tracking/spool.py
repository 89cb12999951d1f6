"""The spool: a session's entries for its tracker, beside its records, one JSON object a line.

The session only appends to `<run>/tracking/spool.jsonl`; the tracker's process reads it and the
record store, and pushes the entries of both (for records see `tuner.tracking.record_metrics`). Each
line has a `kind`; `task` is a task's key, or null for the run as a whole:

    start     uuid, name, params, tags, time_s    a session begins, or goes on after a restart
    task      task, name, params                  a task of the run
    metrics   task, step, values, time_s          values at one step; may be empty
    tags      tags                                facts about the run that came to light
    artifact  path                                a finished file, relative to `<run>/tracking`
    end       status, time_s                      the session is over

Steps of the run are numbers of trials or records; a task's step 0 holds its values at the end.
Steps of `task/loss_by_kernels` are numbers of kernels; steps of `task/shape_us` and
`task/shape_best_us` are sizes of the task's only dimension, or numbers of shapes if it has several.
Older versions put the metrics of records here too. `system.jsonl` beside it is a spool of the
tracker's own.

The reader's progress is in `offset.json`, see `tuner.tracking.cursor`. After a crash the last
entries may be pushed twice, with the same steps and timestamps, which the tracking store keeps
once. A torn last line waits for its end; a broken line is skipped.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
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
    """A task of the run and its fixed parameters."""

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
    """Facts about the run that its session learned after the start."""

    tags: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Artifact:
    """A file that will not change any more, by its path relative to `<run>/tracking`."""

    path: str


@dataclass(frozen=True, slots=True)
class End:
    """The session is over; `status` is FINISHED, KILLED or FAILED."""

    status: str
    time_s: float


TABLES = ("tasks.json", "spaces.json")
"""The artifacts that are tables, as MLflow keeps them, so that its pages show them as such."""

Entry = Start | TaskEntry | Metrics | Tags | Artifact | End

_KINDS: dict[type, str] = {
    Start: "start",
    TaskEntry: "task",
    Metrics: "metrics",
    Tags: "tags",
    Artifact: "artifact",
    End: "end",
}


def encode(entry: Entry) -> bytes:
    """An entry as one line, with its line end. Values that are not finite are left out: a plot
    cannot show them."""
    raw: dict[str, Any] = {"kind": _KINDS[type(entry)], **asdict(entry)}
    if isinstance(entry, Metrics):
        raw["values"] = {k: v for k, v in entry.values.items() if math.isfinite(v)}
    return json.dumps(raw, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> Entry:
    """Parse one line.

    Raises:
        ValueError: it is not a line of a spool.
    """
    try:
        raw = json.loads(line)
        match raw["kind"]:
            case "start":
                params, tags = _strings(raw["params"]), _strings(raw["tags"])
                return Start(str(raw["uuid"]), str(raw["name"]), params, tags, _time(raw))
            case "task":
                return TaskEntry(str(raw["task"]), str(raw["name"]), _strings(raw["params"]))
            case "metrics":
                task = None if raw["task"] is None else str(raw["task"])
                values = {str(k): float(v) for k, v in raw["values"].items()}
                return Metrics(task, int(raw["step"]), values, _time(raw))
            case "tags":
                return Tags(_strings(raw["tags"]))
            case "artifact":
                return Artifact(str(raw["path"]))
            case "end":
                return End(str(raw["status"]), _time(raw))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a spool line: {error!r}") from error
    raise ValueError(f"not a spool line: unknown kind {raw['kind']!r}")


def _strings(raw: Any) -> dict[str, str]:
    return {str(k): str(v) for k, v in raw.items()}


def _time(raw: Any) -> float:
    return float(raw["time_s"])


@dataclass(frozen=True, slots=True)
class TrackingPaths:
    """The paths of tracking's files in a run folder."""

    run_dir: Path

    @property
    def folder(self) -> Path:
        """The folder of all files but MLflow's own database and artifacts."""
        return self.run_dir / "tracking"

    @property
    def spool(self) -> Path:
        """The session's entries; only the session writes here."""
        return self.folder / "spool.jsonl"

    @property
    def store(self) -> Path:
        """The records; only the session writes there."""
        return RunFolder(self.run_dir).store

    @property
    def system(self) -> Path:
        """What the tracker measured of its machine; only the tracker writes here."""
        return self.folder / "system.jsonl"

    @property
    def report(self) -> Path:
        """The report on the run, where somebody wrote one."""
        return RunFolder(self.run_dir).report

    @property
    def plots(self) -> Path:
        """The charts of that report as images."""
        return RunFolder(self.run_dir).plots

    @property
    def target(self) -> Path:
        """The server and experiment; see `tuner.tracking.mlflow_sink`."""
        return self.folder / "target.json"

    @property
    def offset(self) -> Path:
        """The tracker's progress; only the tracker writes here."""
        return self.folder / "offset.json"

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


class LineFile:
    """A file that only grows, line by line; each append is handed to the system at once.

    A tail without an end, left by a crash, is cut off when the file is opened. An append that
    fails leaves the file as it was. For one thread.
    """

    def __init__(self, path: Path) -> None:
        """Open or create `path`. Raises OSError if that fails."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._size = _whole_lines(path)
        os.ftruncate(self._fd, self._size)

    def append(self, lines: bytes) -> bool:
        """Add whole lines, all or none; return False where the system refused (a full disk)."""
        try:
            if os.write(self._fd, lines) == len(lines):
                self._size += len(lines)
                return True
        except OSError:
            pass
        with contextlib.suppress(OSError):  # the reader skips a broken line
            os.ftruncate(self._fd, self._size)
        return False

    def close(self) -> None:
        """Close the file. May be called twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _whole_lines(path: Path) -> int:
    """Bytes up to the end of the last whole line."""
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        while end > 0:
            start = max(0, end - 65536)
            file.seek(start)
            newline = file.read(end - start).rfind(b"\n")
            if newline >= 0:
                return start + newline + 1
            end = start
    return 0


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a spool: its entry (None where broken) and the offset of its end."""

    entry: Entry | None
    end: int


def read_lines(path: Path, offset: int = 0) -> Iterator[Line]:
    """Yield the whole lines from `offset` on; none where there is no file."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        file.seek(offset)
        for line in file:
            if not line.endswith(b"\n"):
                return
            offset += len(line)
            try:
                yield Line(decode(line), offset)
            except ValueError:
                yield Line(None, offset)


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
