"""The timeline of a run as Perfetto reads it, asked questions in SQL."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as perfetto

from tests.tuner.pages.sample_run import fill
from tuner.errors import TunerError
from tuner.report.timeline import export_timeline
from tuner.storage.history import History
from tuner.storage.sqlite_store import MemoryStore

TYPES = perfetto.TrackEvent


def tables(data: bytes) -> sqlite3.Connection:
    """A trace in tables as Perfetto's own processor makes them: `track`, `slice`, `counter`."""
    db = sqlite3.connect(":memory:")
    db.executescript(
        "CREATE TABLE track (id, name, parent_id);"
        "CREATE TABLE slice (track_id, ts, dur, name, category, task);"
        "CREATE TABLE counter (track_id, ts, value);"
    )
    begun: dict[int, list[tuple[object, ...]]] = {}
    packets = perfetto.Trace.FromString(data).packet
    for packet in sorted(packets, key=lambda one: one.timestamp):  # as the processor does
        if packet.HasField("track_descriptor"):
            told = packet.track_descriptor
            row = (told.uuid, told.name, told.parent_uuid)
            db.execute("INSERT INTO track VALUES (?, ?, ?)", row)
            continue
        event, ts = packet.track_event, packet.timestamp
        if event.type == TYPES.TYPE_COUNTER:
            row = (event.track_uuid, ts, event.double_counter_value)
            db.execute("INSERT INTO counter VALUES (?, ?, ?)", row)
        elif event.type == TYPES.TYPE_SLICE_BEGIN:
            task = next((a.string_value for a in event.debug_annotations if a.name == "task"), "")
            begun.setdefault(event.track_uuid, []).append(
                (ts, event.name, ",".join(event.categories), task)
            )
        elif event.type == TYPES.TYPE_SLICE_END:
            start, name, category, task = begun[event.track_uuid].pop()
            row = (event.track_uuid, start, ts - int(str(start)), name, category, task)
            db.execute("INSERT INTO slice VALUES (?, ?, ?, ?, ?, ?)", row)
    assert not any(begun.values()), "every slice that begins ends"
    return db


@pytest.fixture
def trace(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    store = MemoryStore()
    fill(store, ["conv", "dense"], 30)
    count = export_timeline(store, tmp_path / "run.pftrace", "mine")
    assert count == len(store.get(History).spans)
    db = tables((tmp_path / "run.pftrace").read_bytes())
    yield db
    db.close()


def test_each_worker_is_a_track_under_its_kind_under_the_run(trace: sqlite3.Connection) -> None:
    rows = trace.execute(
        "SELECT run.name, kind.name, worker.name FROM track worker"
        " JOIN track kind ON worker.parent_id = kind.id JOIN track run ON kind.parent_id = run.id"
        " ORDER BY 2"
    ).fetchall()
    assert rows == [("mine", "builders", "builder-1"), ("mine", "runners", "runner-1")]


def test_the_time_of_each_task_is_a_question_in_sql(trace: sqlite3.Connection) -> None:
    rows = trace.execute(
        "SELECT task, SUM(dur) / 1e9 FROM slice WHERE category = 'measure' GROUP BY task ORDER BY 1"
    ).fetchall()
    assert [task for task, _ in rows] == ["conv", "dense"]
    assert [seconds for _, seconds in rows] == pytest.approx([12.0, 12.0], abs=0.1)


def test_slices_of_a_worker_do_not_overlap(trace: sqlite3.Connection) -> None:
    (overlaps,) = trace.execute(
        "SELECT COUNT(*) FROM slice a JOIN slice b ON a.track_id = b.track_id"
        " AND a.ts < b.ts AND b.ts < a.ts + a.dur"
    ).fetchone()
    assert overlaps == 0


def test_the_models_latency_falls_while_trials_rise(trace: sqlite3.Connection) -> None:
    for name, falls in (("model latency", True), ("trials", False)):
        values = [
            value
            for (value,) in trace.execute(
                "SELECT value FROM counter JOIN track ON track_id = id WHERE name = ? ORDER BY ts",
                [name],
            )
        ]
        assert len(values) > 5
        assert values == sorted(values, reverse=falls)
    ends = trace.execute("SELECT MAX(ts) FROM counter UNION ALL SELECT MAX(ts + dur) FROM slice")
    counted, worked = (end for (end,) in ends)
    assert counted == pytest.approx(worked, abs=1e9), "the counters go on to the last record"


def test_a_run_without_a_history_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TunerError, match="no history"):
        export_timeline(MemoryStore(), tmp_path / "run.pftrace", "old")
