"""Recorded spaces: features and times of many candidates of a task, in one file.

A recording serves two purposes: search policies are compared on it without a device
(`tuner.replay.replay`, `benchmarks/replay`), and cost models are judged by it. It keeps each
candidate's key, space, features, estimate, status, times and parent. Feature columns that never
change are kept once, the others as codes of one byte: exact where a column has at most
256 values, else the nearest of 256.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from tuner.arrays import Features, Floats32
from tuner.candidate import Candidate, CandidateKind
from tuner.cost_models.dataset import Examples
from tuner.errors import TunerError
from tuner.record import Measurement, Status
from tuner.replay.recorded import Recorded
from tuner.task import Task

_LEVELS = 256
_STATUSES = tuple(Status)


@dataclass(frozen=True, slots=True)
class Row:
    """One candidate of a recording.

    Attributes:
        key: the candidate's key.
        code_hash: hash of its program; no two rows share one.
        parent: key of the candidate it is a mutation of, of this task or another; empty for a
            fresh sample.
        seconds: its latency in each round of timing, infinite where it was not timed. The first is
            a lower bound for a censored candidate.
        estimate_s: its template's analytic estimate; infinite where there is none.
    """

    key: str
    space: str
    code_hash: str
    parent: str
    status: Status
    seconds: tuple[float, ...]
    build_s: float
    run_s: float
    estimate_s: float = math.inf

    @property
    def latency_s(self) -> float:
        """Median of the later rounds if any, else the first round; infinite without a time."""
        timed = [s for s in self.seconds[1:] if np.isfinite(s)] or [self.seconds[0]]
        return float(np.median(timed)) if self.status is Status.OK else float(self.seconds[0])


@dataclass(frozen=True, slots=True)
class Recording:
    """A recorded space of one task.

    Attributes:
        task: the task; its name is the recording's.
        device: fingerprint of the device that measured.
        features: version of the feature vectors.
        rows: distinct candidates, in the order in which they were measured.
        vectors: feature vectors, one for each row.
        default: the task's default schedule, measured like the candidates.
        refused: numbers of fresh samples and of mutations that gave no candidate.
        payloads: payloads of candidates by key: at least of the best, as seeds for other tasks.
        exact: exact vectors of a few of these.
    """

    task: Task
    device: str
    features: str
    rows: tuple[Row, ...]
    vectors: Floats32
    default: Measurement | None = None
    refused: tuple[int, int] = (0, 0)
    payloads: Mapping[str, str] = field(default_factory=dict)
    exact: Mapping[str, Floats32] = field(default_factory=dict)

    @property
    def best_s(self) -> float:
        """The best latency of all rows; infinite where none ran."""
        return min((r.latency_s for r in self.rows if r.status is Status.OK), default=float("inf"))

    def examples(self) -> Examples:
        """The rows as training data of a cost model, in one group."""
        return Examples(
            self.vectors,
            np.array([r.latency_s for r in self.rows], dtype=np.float32),
            np.zeros(len(self.rows), dtype=np.int32),
            np.array([r.status is Status.CENSORED for r in self.rows], dtype=np.bool_),
        )

    def recorded(self) -> list[Recorded]:
        """The space for a replay: the rows, and the drafts that gave no candidate."""
        found = [
            self._read(row, vector) for row, vector in zip(self.rows, self.vectors, strict=True)
        ]
        space = self.rows[0].space if self.rows else ""
        nothing = np.zeros(self.vectors.shape[1], dtype=np.float32)
        refused = Measurement(Status.INVALID, error="refused when it was recorded")
        for parent, count in zip((None, "another"), self.refused, strict=True):
            for number in range(count):
                candidate = stand_in(f"refused {parent} {number}", space)
                found.append(Recorded(candidate, nothing, refused, parent=parent))
        return found

    def _read(self, row: Row, vector: Features) -> Recorded:
        parent: str | None = row.parent or None
        # A trace's payload may have become another since; settings are what they were.
        candidate = Candidate(CandidateKind.KNOBS, self.payloads.get(row.key, ""), row.space)
        if candidate.key != row.key:
            candidate = stand_in(row.key, row.space)
            parent = stand_in(parent, row.space).key if parent else None
        return Recorded(
            candidate,
            vector,
            _measurement(row),
            row.code_hash,
            parent,
            row.estimate_s,
            tuple(s for s in row.seconds[1:] if np.isfinite(s)),
        )

    def best_keys(self, most: int) -> list[str]:
        """Keys of the fastest candidates, fastest first."""
        good = [(r.latency_s, r.key) for r in self.rows if r.status is Status.OK]
        return [key for _, key in sorted(good)[:most]]


def stand_in(key: str, space: str) -> Candidate:
    """A candidate that stands for a recorded one in a replay: its payload is the key."""
    return Candidate(CandidateKind.TRACE, key, space)


def _measurement(row: Row) -> Measurement:
    samples = (row.latency_s,) if row.status in (Status.OK, Status.CENSORED) else ()
    error = "" if samples else f"recorded as {row.status}"
    return Measurement(row.status, samples, error, row.build_s, row.run_s)


def fingerprint(path: Path) -> str:
    """Fingerprint of a recording's file: results of different recordings are not compared."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def save(recording: Recording, path: Path) -> None:
    """Write a recording, whole or not at all."""
    rows = recording.rows
    constant, columns, codes, counts, levels = _encode(recording.vectors)
    about = {
        "task": _plain_task(recording.task),
        "device": recording.device,
        "features": recording.features,
        "refused": list(recording.refused),
        "default": _plain_measurement(recording.default),
        "spaces": sorted({r.space for r in rows}),
    }
    spaces = {name: n for n, name in enumerate(about["spaces"])}
    partial = path.with_name(f".{path.name}.part.npz")
    np.savez_compressed(
        partial,
        allow_pickle=False,
        about=json.dumps(about),
        keys=_bytes_of([r.key for r in rows]),
        parents=_bytes_of([r.parent for r in rows]),
        code_hashes=_bytes_of([r.code_hash for r in rows]),
        space=np.array([spaces[r.space] for r in rows], dtype=np.uint8),
        status=np.array([_STATUSES.index(r.status) for r in rows], dtype=np.uint8),
        seconds=np.array([r.seconds for r in rows], dtype=np.float32).T,
        costs_s=np.array([(r.build_s, r.run_s) for r in rows], dtype=np.float16),
        estimates_s=np.array([r.estimate_s for r in rows], dtype=np.float32),
        constant=constant,
        columns=columns,
        codes=codes,
        counts=counts,
        levels=levels,
        payload_keys=_bytes_of(list(recording.payloads)),
        payloads=list(recording.payloads.values()),
        exact_keys=_bytes_of(list(recording.exact)),
        exact=np.array(list(recording.exact.values()), dtype=np.float32),
    )
    partial.replace(path)


def load(path: Path) -> Recording:
    """Read a recording, also of the older format, which had only random candidates that ran.

    Raises:
        TunerError: the file is missing or damaged.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            data = dict(file)
        return _parse(data) if "about" in data else _older(data, path.stem)
    except (OSError, BadZipFile, ValueError, KeyError, IndexError, TypeError) as error:
        raise TunerError(f"cannot read the recording {path}: {error}") from error


def _parse(data: Mapping[str, Any]) -> Recording:
    about = json.loads(str(data["about"]))
    vectors = _decode(data)
    rows = tuple(
        Row(
            key=_text(key),
            space=about["spaces"][space],
            code_hash=_text(code),
            parent=_text(parent),
            status=_STATUSES[status],
            seconds=tuple(float(s) for s in seconds),
            build_s=float(costs[0]),
            run_s=float(costs[1]),
            estimate_s=float(estimate_s),
        )
        for key, space, code, parent, status, seconds, costs, estimate_s in zip(
            data["keys"],
            data["space"],
            data["code_hashes"],
            data["parents"],
            data["status"],
            data["seconds"].T,
            data["costs_s"],
            data.get("estimates_s", np.full(len(vectors), np.inf)),
            strict=True,
        )
    )
    payload_keys = [_text(k) for k in data["payload_keys"]]
    exact_keys = map(_text, data.get("exact_keys", data["payload_keys"]))
    return Recording(
        task=Task(**about["task"]),
        device=about["device"],
        features=about["features"],
        rows=rows,
        vectors=vectors,
        default=_default(about["default"]),
        refused=(about["refused"][0], about["refused"][1]),
        payloads=dict(zip(payload_keys, map(str, data["payloads"]), strict=True)),
        exact=dict(zip(exact_keys, data["exact"], strict=True)),
    )


def _older(data: Mapping[str, Any], stem: str) -> Recording:
    name = stem.removeprefix("cost-model-")
    target, module, space = (str(data[k]) for k in ("target", "module", "space"))
    keys = [f"{name}-{n}" for n in range(len(data["features"]))]
    rows = tuple(
        Row(key, space, key, "", Status.OK, (float(least),), 0.1, 0.1)
        for key, least in zip(keys, data["seconds"].min(axis=0), strict=True)
    )
    kept = len(data["payloads"])
    return Recording(
        task=Task(name, name, module, target),
        device="",
        features="",
        rows=rows,
        vectors=np.asarray(data["features"], dtype=np.float32),
        payloads=dict(zip(keys, map(str, data["payloads"]), strict=False)),
        exact=dict(zip(keys[:kept], data["features"], strict=False)),
    )


def _encode(vectors: Floats32) -> tuple[Floats32, Any, Any, Any, Any]:
    """A matrix as its first row, the columns that change, and their codes and levels."""
    constant = vectors[0] if len(vectors) else np.zeros(vectors.shape[1], dtype=np.float32)
    columns = np.flatnonzero((vectors != constant).any(axis=0)) if len(vectors) else np.zeros(0)
    codes, levels = [], []
    for column in columns.astype(int):
        values = np.unique(vectors[:, column])
        if len(values) > _LEVELS:
            middles = (np.arange(_LEVELS) + 0.5) / _LEVELS * len(values)
            values = values[middles.astype(int)]
        nearest = np.abs(vectors[:, column, None] - values[None, :]).argmin(axis=1)
        codes.append(nearest.astype(np.uint8))
        levels.append(values)
    return (
        constant,
        columns.astype(np.uint16),
        np.array(codes, dtype=np.uint8).reshape(len(columns), len(vectors)),
        np.array([len(v) for v in levels], dtype=np.uint16),
        np.concatenate(levels).astype(np.float32) if levels else np.zeros(0, dtype=np.float32),
    )


def _decode(data: Mapping[str, Any]) -> Floats32:
    vectors: Floats32 = np.tile(data["constant"], (len(data["keys"]), 1))
    ends = np.cumsum(data["counts"].astype(int))
    for column, codes, end, count in zip(
        data["columns"], data["codes"], ends, data["counts"], strict=True
    ):
        vectors[:, int(column)] = data["levels"][end - int(count) : end][codes]
    return vectors


def _plain_task(task: Task) -> dict[str, Any]:
    return {
        "key": task.key,
        "name": task.name,
        "module": task.module,
        "target": task.target,
        "flops": task.flops,
    }


def _plain_measurement(measurement: Measurement | None) -> Any:
    if measurement is None:
        return None
    return [str(measurement.status), list(measurement.samples_s), measurement.build_s]


def _default(raw: Any) -> Measurement | None:
    return None if raw is None else Measurement(Status(raw[0]), tuple(raw[1]), build_s=raw[2])


def _bytes_of(texts: Sequence[str]) -> npt.NDArray[np.bytes_]:
    return np.array([t.encode("ascii") for t in texts], dtype=np.bytes_)


def _text(value: Any) -> str:
    return bytes(value).decode("ascii")
