"""The tables of the SQLite record store, and the encoding of tasks and records as rows.

Values that SQLite would not return as they were are encoded:
    samples      little-endian doubles, so that every bit of them returns, NaN included
    other times  REAL, where SQLite turns NaN into NULL; NULL is read as NaN
    error        a JSON string, since a compiler's output may not be valid Unicode
    payloads     zlib, once for each candidate, however many trials it had
    features     zlib over little-endian float32
`latency_s` repeats the median of the samples for the index, and is NULL where there is no valid
time. Any change of the tables needs a new VERSION; a file of another one is refused.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from dataclasses import asdict
from typing import Any

from tuner.arrays import Features, vector_bytes, vector_of
from tuner.candidate import Candidate, CandidateKind
from tuner.dynamic.shapes import from_plain
from tuner.errors import TunerError
from tuner.record import (
    Conditions,
    Measurement,
    Predicted,
    Provenance,
    Record,
    Status,
    Trial,
    TrialKey,
)
from tuner.task import Instance, Task

VERSION = 2

CREATE = (
    """CREATE TABLE written (
        task_key TEXT NOT NULL, candidate_key TEXT NOT NULL, trace BLOB NOT NULL,
        PRIMARY KEY (task_key, candidate_key))""",
    """CREATE TABLE task (
        place INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, name TEXT NOT NULL,
        module BLOB NOT NULL, target TEXT NOT NULL, weight REAL NOT NULL, flops REAL NOT NULL,
        domain TEXT NOT NULL, default_key TEXT, sizes TEXT NOT NULL DEFAULT '')""",
    "CREATE INDEX task_by_target ON task (target)",
    """CREATE TABLE candidate (
        key TEXT PRIMARY KEY, kind TEXT NOT NULL, payload BLOB NOT NULL)""",
    """CREATE TABLE record (
        seq INTEGER PRIMARY KEY, task_key TEXT NOT NULL, candidate_key TEXT NOT NULL,
        instance TEXT NOT NULL, rung INTEGER NOT NULL, space TEXT NOT NULL, status TEXT NOT NULL,
        latency_s REAL, samples_s BLOB NOT NULL, error TEXT NOT NULL, build_s REAL, run_s REAL,
        worker TEXT NOT NULL, device TEXT NOT NULL, toolchain TEXT NOT NULL,
        attempt INTEGER NOT NULL, time_s REAL, code_hash TEXT NOT NULL DEFAULT '',
        predicted TEXT NOT NULL DEFAULT '', conditions TEXT NOT NULL DEFAULT '',
        UNIQUE (task_key, candidate_key, instance, rung))""",
    "CREATE INDEX record_ranking ON record (task_key, rung, status, latency_s)",
    """CREATE TABLE feature (
        task_key TEXT NOT NULL, candidate_key TEXT NOT NULL, vector BLOB NOT NULL,
        PRIMARY KEY (task_key, candidate_key))""",
    """CREATE TABLE session (
        number INTEGER PRIMARY KEY, started_s REAL NOT NULL, heartbeat_s REAL NOT NULL,
        ended_s REAL, reason TEXT NOT NULL DEFAULT '', utilisation TEXT NOT NULL DEFAULT '')""",
    """CREATE TABLE history (
        seq INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, part BLOB NOT NULL)""",
)
INDEX_TALLIES = """CREATE INDEX IF NOT EXISTS record_tallies
    ON record (rung, task_key, space, toolchain, status, latency_s)"""
"""The index that tallies are read from, without a look at the records."""
CREATE_ENTRIES = """CREATE TABLE IF NOT EXISTS tracking_entry (
    seq INTEGER PRIMARY KEY, place INTEGER NOT NULL, text TEXT NOT NULL UNIQUE)"""
"""The table of tracking entries, each with the number of the last record before it."""
SET_DEFAULT = "UPDATE task SET default_key = ? WHERE key = ?"
SET_SIZES = "UPDATE task SET sizes = ? WHERE key = ?"
BEGIN_SESSION = (
    "INSERT INTO session (number, started_s, heartbeat_s) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
)
TOUCH_SESSION = """UPDATE session SET heartbeat_s = ?, utilisation = coalesce(?, utilisation)
    WHERE number = ? AND ended_s IS NULL"""
END_SESSION = """UPDATE session SET heartbeat_s = ?, ended_s = ?, reason = ?
    WHERE number = ? AND ended_s IS NULL"""
INSERT_HISTORY = "INSERT INTO history (key, part) VALUES (?, ?) ON CONFLICT DO NOTHING"
INSERT_ENTRY = """INSERT INTO tracking_entry (place, text)
    SELECT coalesce(max(seq), 0), ? FROM record WHERE true ON CONFLICT DO NOTHING"""
CREATE_NOTE = "CREATE TABLE IF NOT EXISTS note (key TEXT PRIMARY KEY, value TEXT NOT NULL)"
"""Creates the table of notes, which only an index has: see `tuner.storage.segments.index`."""
INSERT_RECORD = f"""INSERT INTO record (task_key, candidate_key, instance, rung, space, status,
    latency_s, samples_s, error, build_s, run_s, worker, device, toolchain, attempt, time_s,
    code_hash, predicted, conditions) VALUES ({",".join("?" * 19)}) ON CONFLICT DO NOTHING"""
INSERT_CANDIDATE = (
    "INSERT INTO candidate (key, kind, payload) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
)
INSERT_WRITTEN = (
    "INSERT INTO written (task_key, candidate_key, trace) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
)
INSERT_FEATURE = (
    "INSERT INTO feature (task_key, candidate_key, vector) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
)
UPSERT_TASK = """INSERT INTO task (key, name, module, target, weight, flops, domain)
    VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (key) DO UPDATE SET name = excluded.name,
    module = excluded.module, target = excluded.target, weight = excluded.weight,
    flops = excluded.flops, domain = excluded.domain"""
SELECT_RECORD = """SELECT task_key, kind, payload, space, instance, rung, status, samples_s, error,
    build_s, run_s, worker, device, toolchain, attempt, time_s, code_hash,
    (SELECT trace FROM written WHERE written.task_key = record.task_key
        AND written.candidate_key = record.candidate_key),
    predicted, conditions
    FROM record JOIN candidate ON candidate.key = candidate_key"""
SELECT_TASK = "SELECT key, name, module, target, weight, flops, domain FROM task ORDER BY place"
SELECT_SESSION = """SELECT number, started_s, heartbeat_s, ended_s, reason, utilisation
    FROM session ORDER BY number"""
SELECT_TALLIES = """SELECT task_key, space, toolchain, status, COUNT(*), COUNT(latency_s),
    MIN(latency_s), coalesce(MAX(CASE WHEN latency_s IS NOT NULL THEN seq END), 0)
    FROM record WHERE rung = 0 GROUP BY task_key, space, toolchain, status"""
SELECT_DEFAULTS = "SELECT key, default_key FROM task WHERE default_key IS NOT NULL ORDER BY place"
SELECT_SIZES_OF = "SELECT sizes FROM task WHERE key = ?"
SELECT_SIZES = "SELECT key, sizes FROM task WHERE sizes <> '' ORDER BY place"
SELECT_ENTRIES = "SELECT text FROM tracking_entry ORDER BY seq"
SELECT_HISTORY = "SELECT part FROM history ORDER BY seq"
PROBES = (SELECT_RECORD, SELECT_TASK, SELECT_SESSION, SELECT_SIZES, SELECT_HISTORY)
"""Queries that a file of this version answers: the first ones lacked some columns."""


def key_row(key: TrialKey) -> tuple[object, ...]:
    """The four values that make a trial unique."""
    return key.task_key, key.candidate_key, json.dumps(key.instance), key.rung


def record_row(record: Record) -> tuple[object, ...]:
    """Values for `INSERT_RECORD`."""
    measurement, provenance = record.measurement, record.provenance
    samples = measurement.samples_s
    return (
        *key_row(record.trial.key),
        record.trial.candidate.space,
        measurement.status.value,
        record.latency_s,
        struct.pack(f"<{len(samples)}d", *samples),
        json.dumps(measurement.error),
        measurement.build_s,
        measurement.run_s,
        provenance.worker,
        provenance.device,
        provenance.toolchain,
        record.attempt,
        record.time_s,
        record.code_hash,
        "" if record.predicted is None else json.dumps(asdict(record.predicted)),
        json.dumps(conditions) if (conditions := measurement.conditions.to_json()) else "",
    )


def candidate_row(candidate: Candidate) -> tuple[object, ...]:
    """Values for `INSERT_CANDIDATE`."""
    return candidate.key, candidate.kind.value, zlib.compress(candidate.payload.encode())


def trace_row(trial: Trial) -> tuple[object, ...] | None:
    """Values for `INSERT_WRITTEN`; None where nothing was written."""
    candidate = trial.candidate
    if not candidate.trace:
        return None
    return trial.task_key, candidate.key, zlib.compress(candidate.trace.encode())


def status_of(text: str) -> Status:
    """The status of a name.

    Raises:
        TunerError: a newer tuner has it.
    """
    try:
        return Status(text)
    except ValueError as error:
        raise unknown("trials that ended as", text) from error


def kind_of(text: str) -> CandidateKind:
    """The kind of candidate of a name.

    Raises:
        TunerError: a newer tuner has it.
    """
    try:
        return CandidateKind(text)
    except ValueError as error:
        raise unknown("candidates of the kind", text) from error


def unknown(what: str, name: str) -> TunerError:
    """Something that only a newer tuner can have written."""
    return TunerError(
        f"the run has {what} {name}, which this tuner does not know: use the one that wrote it, "
        "or a new run folder"
    )


def record_of(row: tuple[Any, ...]) -> Record:
    """The record that a row of `select_record` stands for."""
    task_key, kind, payload, space, instance, rung, status, samples, error = row[:9]
    build_s, run_s, worker, device, toolchain, attempt, time_s, code_hash, trace = row[9:18]
    return Record(
        trial=Trial(
            task_key=task_key,
            candidate=Candidate(
                kind_of(kind),
                zlib.decompress(payload).decode(),
                space,
                zlib.decompress(trace).decode() if trace else "",
            ),
            instance=instance_of(instance),
            rung=rung,
        ),
        measurement=Measurement(
            status=status_of(status),
            samples_s=struct.unpack(f"<{len(samples) // 8}d", samples),
            error=json.loads(error),
            build_s=_real(build_s),
            run_s=_real(run_s),
            conditions=Conditions.from_json(json.loads(row[19] or "{}")),
        ),
        provenance=Provenance(worker, device, toolchain),
        attempt=attempt,
        time_s=_real(time_s),
        code_hash=code_hash,
        predicted=Predicted(**json.loads(row[18])) if row[18] else None,
    )


def instance_of(text: str) -> Instance:
    """The instance that `key_row` wrote."""
    return tuple((name, value) for name, value in json.loads(text))


def task_row(task: Task) -> tuple[object, ...]:
    """Values for `UPSERT_TASK`."""
    module = zlib.compress(task.module.encode())
    shapes = json.dumps({"shapes": task.shapes} if task.shapes else [])
    return task.key, task.name, module, task.target, task.weight, task.flops, shapes


def task_of(row: tuple[Any, ...]) -> Task:
    """The task that a row of `SELECT_TASK` stands for."""
    key, name, module, target, weight, flops, shapes = row
    return Task(
        key=key,
        name=name,
        module=zlib.decompress(module).decode(),
        target=target,
        weight=weight,
        flops=flops,
        shapes=from_plain(stored["shapes"]) if (stored := json.loads(shapes)) else (),
    )


def pack_vector(vector: Features) -> bytes:
    """A feature vector as compressed bytes."""
    return zlib.compress(vector_bytes(vector), 1)


def unpack_vector(data: bytes) -> Features:
    """The vector that `pack_vector` packed."""
    return vector_of(zlib.decompress(data))


def _real(value: float | None) -> float:
    return math.nan if value is None else float(value)
