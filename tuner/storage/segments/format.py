"""The format of a segment: a numbered, immutable, checksummed file with a stretch of a run.

    tuner segment 5 SHA256                           format version; checksum of all that follows
    {"number": 7, "epoch": 2, "previous": SHA256, "entries": 3}
    gzip of one JSON object a line, an entry each:
        {"record": {...}, "features": "..."}         a line of exported records; little-endian
                                                     float32 as base64, where there are any
        {"tasks": [...]}
        {"defaults": {TASK: CANDIDATE}}
        {"sizes": {TASK: {SPACE: POINTS}}}
        {"history": {...}}                           see `tuner.storage.history`
        {"tracking": [...]}                          see `tuner.tracking.entries`
        {"begin": SESSION, "time": S}
        {"alive": SESSION, "time": S, "utilisation": {...}}
        {"end": SESSION, "time": S, "reason": "..."}

Segments are numbered from 1 without gaps. Each names the checksum of the one before it, so that a
segment's checksum stands for everything up to it. An epoch is the number of the lease under which a
segment was written (see `tuner.storage.segments.lease`); it never falls. The state of a run is the
result of replaying its entries in order: of two records of one trial the first counts.

`tail -n +3 FILE | zcat` shows what is inside.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import hashlib
import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tuner.arrays import Features, vector_bytes, vector_of
from tuner.dynamic.shapes import from_plain
from tuner.errors import TunerError
from tuner.record import Record, record_from_plain, strict
from tuner.storage.facts import (
    Defaults,
    Fact,
    SessionAlive,
    SessionBegun,
    SessionEnded,
    Sizes,
    Tasks,
    TrackingEntries,
)
from tuner.storage.history import History, from_text, to_text
from tuner.task import Task
from tuner.utilisation import SlotSeconds

VERSION = 5
MOST_RECORDS = 64
"""The most records in one segment."""

_BROKEN = (ValueError, LookupError, TypeError, AttributeError, EOFError, OSError, zlib.error)
"""The errors of parsing and unpacking for bytes that are whole, but were not written by us."""
_FIRST_LINE = re.compile(rb"tuner segment ([0-9]{1,9}) ([0-9a-f]{64})")


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """A record, and the features of its candidate where they are known."""

    record: Record
    features: Features | None = None


Entry = Measured | Fact


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of a run.

    Attributes:
        number: counts up from 1.
        epoch: number of the lease under which it was written.
        previous: checksum of the segment before it; empty for the first.
    """

    number: int
    epoch: int
    previous: str
    entries: tuple[Entry, ...] = ()


class Torn(ValueError):
    """These bytes are not a whole segment: cut short, or changed since they were written."""


def encode(segment: Segment) -> bytes:
    """The file of a segment; the same segment gives the same bytes."""
    header = {
        "number": segment.number,
        "epoch": segment.epoch,
        "previous": segment.previous,
        "entries": len(segment.entries),
    }
    lines = "".join(f"{_line(_plain(entry))}\n" for entry in segment.entries)
    content = f"{_line(header)}\n".encode() + gzip.compress(lines.encode(), 6, mtime=0)
    checksum = hashlib.sha256(content).hexdigest()
    return f"tuner segment {VERSION} {checksum}\n".encode() + content


def checksum_of(data: bytes) -> str:
    """The checksum in a segment's file, verified.

    Raises:
        Torn: it is not whole.
    """
    return _open(data)[1]


def decode(data: bytes) -> Segment:
    """The segment that `encode` turned into these bytes.

    Raises:
        Torn: it is not whole.
        TunerError: it is whole, but of another format version.
    """
    version, _, content = _open(data)
    if version != VERSION:
        raise TunerError(
            f"segments of format version {version}, this tuner reads version {VERSION}: "
            "use the tuner that wrote them"
        )
    head, _, body = content.partition(b"\n")
    try:
        header = json.loads(head)
        lines = gzip.decompress(body).splitlines()
        entries = tuple(_entry(json.loads(line)) for line in lines)
        if len(entries) != header["entries"]:
            raise ValueError(f"{len(entries)} entries instead of {header['entries']}")
        return Segment(
            int(header["number"]), int(header["epoch"]), str(header["previous"]), entries
        )
    except _BROKEN as error:
        raise Torn(f"{type(error).__name__}: {error}") from error


def _open(data: bytes) -> tuple[int, str, bytes]:
    """Version, checksum and content of a whole file."""
    first, newline, content = data.partition(b"\n")
    match = _FIRST_LINE.fullmatch(first)
    if not match or not newline:
        raise Torn("it does not begin like a segment")
    checksum = match[2].decode()
    if hashlib.sha256(content).hexdigest() != checksum:
        raise Torn("its checksum is wrong")
    return int(match[1]), checksum, content


def _line(plain: Any) -> str:
    return json.dumps(strict(plain), separators=(",", ":"), allow_nan=False)


def _plain(entry: Entry) -> dict[str, Any]:
    match entry:
        case Measured(record, features):
            plain: dict[str, Any] = {"record": record.to_json()}
            if features is not None:
                plain["features"] = base64.b64encode(vector_bytes(features)).decode()
            return plain
        case Tasks(tasks):
            return {"tasks": list(map(_plain_task, tasks))}
        case Defaults(by_task):
            return {"defaults": dict(by_task)}
        case Sizes(by_task):
            return {"sizes": {key: dict(mine) for key, mine in by_task.items()}}
        case History():
            return {"history": to_text(entry)}
        case TrackingEntries(texts):
            return {"tracking": list(texts)}
        case SessionBegun(session, now_s):
            return {"begin": session, "time": now_s}
        case SessionAlive(session, now_s, utilisation):
            said = None if utilisation is None else {k: dict(v) for k, v in utilisation.items()}
            return {"alive": session, "time": now_s, "utilisation": said}
        case SessionEnded(session, now_s, reason):
            return {"end": session, "time": now_s, "reason": reason}


def _entry(raw: Mapping[str, Any]) -> Entry:
    if "record" in raw:
        return Measured(record_from_plain(raw["record"]), _vector(raw.get("features")))
    if "tasks" in raw:
        return Tasks(tuple(map(_task, raw["tasks"])))
    if "defaults" in raw:
        return Defaults({key: str(candidate) for key, candidate in raw["defaults"].items()})
    if "sizes" in raw:
        return Sizes({key: _points(mine) for key, mine in raw["sizes"].items()})
    if "history" in raw:
        return from_text(raw["history"])
    if "tracking" in raw:
        return TrackingEntries([str(text) for text in raw["tracking"]])
    now_s = float(raw["time"])
    if "begin" in raw:
        return SessionBegun(int(raw["begin"]), now_s)
    if "alive" in raw:
        return SessionAlive(int(raw["alive"]), now_s, _seconds(raw["utilisation"]))
    return SessionEnded(int(raw["end"]), now_s, str(raw["reason"]))


def _points(raw: Mapping[str, Any]) -> dict[str, int]:
    return {space: int(points) for space, points in raw.items()}


def _vector(text: str | None) -> Features | None:
    if text is None:
        return None
    try:
        data = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"features are no base64: {error}") from error
    return vector_of(data)


def _seconds(raw: Mapping[str, Any] | None) -> SlotSeconds | None:
    if raw is None:
        return None
    return {kind: {k: float(s) for k, s in spent.items()} for kind, spent in raw.items()}


def _plain_task(task: Task) -> dict[str, Any]:
    return {
        "key": task.key,
        "name": task.name,
        "module": task.module,
        "target": task.target,
        "weight": task.weight,
        "flops": task.flops,
        "shapes": [[list(map(list, instance)), weight] for instance, weight in task.shapes],
    }


def _task(raw: Mapping[str, Any]) -> Task:
    return Task(
        key=str(raw["key"]),
        name=str(raw["name"]),
        module=str(raw["module"]),
        target=str(raw["target"]),
        weight=float(raw["weight"]),
        flops=float(raw["flops"]),
        shapes=from_plain(raw["shapes"]),
    )
