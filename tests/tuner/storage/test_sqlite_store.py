"""What the store on disk does beyond the contract: survive, refuse, stay readable."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from tuner.candidate import Candidate, CandidateKind
from tuner.errors import TunerError
from tuner.record import (
    Measurement,
    Record,
    Status,
    Trial,
)
from tuner.storage.base import begin_session, elapsed_s
from tuner.storage.facts import Defaults, SessionAlive, Tasks, TrackingEntries
from tuner.storage.sqlite_schema import VERSION
from tuner.storage.sqlite_store import SqliteStore
from tuner.task import Task

GOLDEN = Path(__file__).parents[2] / "golden"


def record(n: int, *, payload: str = "", rung: int = 0) -> Record:
    candidate = Candidate(CandidateKind.TRACE, payload or f"[{n}]", "space")
    return Record(Trial("t", candidate, rung=rung), Measurement(Status.OK, (1.0 + n,)))


def test_everything_is_there_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    task = Task("t", "matmul", "{}", "{}", shapes=(((("n", 1),), 0.5), ((("n", 3),), 1.0)))
    with closing(SqliteStore(path)) as store:
        store.put(Tasks([task]), Defaults({"t": "d"}))
        store.append_many([(record(1), np.arange(3, dtype=np.float32))])
        store.put(SessionAlive(begin_session(store, 5.0), 8.0))
    with closing(SqliteStore(path)) as store:
        assert store.tasks() == (task,)
        assert store.get(Defaults).by_task == {"t": "d"}
        assert list(store.scan()) == list(store.scan("t", fastest=1)) == [record(1)]
        assert store.features("t")[record(1).trial.candidate.key].tolist() == [0.0, 1.0, 2.0]
        assert elapsed_s(store.sessions()) == 3.0
        assert store.append_many([(record(1), None)])[0] is False
        assert begin_session(store, 9.0) == 2


def test_records_have_numbers_in_the_order_they_were_appended(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    with closing(SqliteStore(path)) as store:
        assert (store.last(), store.after(0, 9)) == (0, [])
        store.append_many([(record(3), None), (record(1), None), (record(3), None)])
    with closing(SqliteStore(path)) as store, closing(SqliteStore(path, read_only=True)) as reader:
        store.append_many([(record(1), None), (record(2), None)])
        assert reader.last() == 3
        assert reader.after(0, 9) == [(1, record(3)), (2, record(1)), (3, record(2))]
        assert reader.after(1, 1) == [(2, record(1))]


def test_tracking_entries_have_numbers_and_a_place_among_the_records(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    with closing(SqliteStore(path)) as store:
        store.put(TrackingEntries(["before"]))
        store.append_many([(record(1), None), (record(2), None)])
        store.put(TrackingEntries(["after", "then"]))
    with closing(SqliteStore(path, read_only=True)) as reader:
        assert reader.last_entry() == 3
        assert reader.entries_after(0, 9) == [(1, 0, "before"), (2, 2, "after"), (3, 2, "then")]
        assert reader.entries_after(1, 1) == [(2, 2, "after")]


APPEND_FOR_EVER = """
import sys, itertools
from pathlib import Path
from tuner.candidate import Candidate, CandidateKind
from tuner.record import Measurement, Record, Status, Trial
from tuner.storage.sqlite_store import SqliteStore
store = SqliteStore(Path(sys.argv[1]))
for n in itertools.count():
    candidate = Candidate(CandidateKind.TRACE, f"[{n}]" + "x" * 5000, "space")
    measured = Measurement(Status.OK, (1.0,))
    store.append_many([(Record(Trial("t", candidate), measured), None)])
    print(candidate.key, flush=True)
"""


def test_a_kill_loses_nothing_that_append_returned_from(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    told: list[str] = []
    for victims in (1, 2):
        # The second goes on where the first was killed; what it stores twice counts once.
        with subprocess.Popen(
            [sys.executable, "-c", APPEND_FOR_EVER, str(path)], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            told += [process.stdout.readline().strip() for _ in range(150 * victims)]
            process.send_signal(signal.SIGKILL)
            told += process.stdout.read().split()
        with closing(SqliteStore(path, read_only=True)) as store:
            stored = [r.trial.candidate.key for r in store.scan()]
        assert set(told) <= set(stored)
        assert len(stored) == len(set(stored))


def test_a_reader_follows_a_writer(tmp_path: Path) -> None:
    path = tmp_path / "a folder?#%" / "records.sqlite"
    path.parent.mkdir()
    with (
        closing(SqliteStore(path)) as writer,
        closing(SqliteStore(path, read_only=True)) as reader,
    ):
        scan = writer.scan()
        for n in range(3):
            writer.append_many([(record(n), None)])
            assert len(list(reader.scan())) == n + 1
        assert list(scan) == []
        with pytest.raises(TunerError, match="readonly"):
            reader.append_many([(record(9), None)])


def test_a_closed_store_in_anothers_folder_is_read_without_a_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "records.sqlite"
    with closing(SqliteStore(path)) as store:
        store.append_many([(record(0), None)])
    monkeypatch.setattr(os, "access", lambda *_: False)
    with closing(SqliteStore(path, read_only=True)) as store:
        assert list(store.scan()) == [record(0)]
        assert list(tmp_path.iterdir()) == [path]


def test_a_payload_is_stored_once(tmp_path: Path) -> None:
    payload = "".join(f"instruction {n}; " for n in range(20_000))
    with closing(SqliteStore(tmp_path / "records.sqlite")) as store:
        store.append_many([(record(0, payload=payload, rung=rung), None) for rung in range(50)])
        assert {r.trial.candidate.payload for r in store.scan()} == {payload}
    assert (tmp_path / "records.sqlite").stat().st_size < len(payload)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT seq FROM record WHERE task_key = 't' AND rung = 0 AND status = 'ok'"
        " AND latency_s IS NOT NULL ORDER BY latency_s, seq LIMIT 1",
        "SELECT 1 FROM record WHERE (task_key, candidate_key, instance, rung) = ('t', 'c', '', 0)",
        "SELECT seq FROM record WHERE rung >= 0 AND task_key = 't' AND candidate_key = 'c'",
        "SELECT seq FROM record WHERE rung >= 1 AND task_key = 't'",
    ],
)
def test_frequent_questions_are_answered_from_an_index(tmp_path: Path, query: str) -> None:
    with closing(SqliteStore(tmp_path / "records.sqlite")):
        pass
    with closing(sqlite3.connect(tmp_path / "records.sqlite")) as db:
        plan = " ".join(row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {query}"))
    assert "SEARCH record USING" in plan
    assert "SCAN" not in plan
    assert "TEMP B-TREE" not in plan


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("UPDATE record SET status = 'dreamt'", "trials that ended as dreamt"),
        ("UPDATE candidate SET kind = 'dream'", "candidates of the kind dream"),
    ],
)
def test_what_only_a_newer_tuner_can_have_written_is_refused_in_one_line(
    tmp_path: Path, change: str, says: str
) -> None:
    with closing(SqliteStore(tmp_path / "records.sqlite")) as store:
        store.append_many([(record(0), None)])
        store._db.execute(change)
        readings: list[Callable[[], object]] = [lambda: list(store.scan())]
        of_all = [store.tallies]
        readings += of_all if "status" in change else [lambda: list(store.scan("t", fastest=1))]
        for reading in readings:
            with pytest.raises(TunerError, match=f"{says}, which this tuner does not know: use"):
                reading()


@pytest.mark.parametrize(
    "change",
    [
        "PRAGMA user_version=1",
        f"PRAGMA user_version={VERSION + 1}",
        "ALTER TABLE record DROP COLUMN conditions",
        "DROP TABLE history",
    ],
)
def test_another_schema_version_is_refused_by_name(tmp_path: Path, change: str) -> None:
    path = tmp_path / "records.sqlite"
    with closing(SqliteStore(path)) as store:
        store._db.execute(change)
    before = path.read_bytes()
    for read_only in (True, False):
        with pytest.raises(TunerError, match="of another tuner, this one reads version") as caught:
            SqliteStore(path, read_only=read_only)
        assert "\n" not in str(caught.value)
    assert path.read_bytes() == before


def test_what_is_no_store_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE other (x)")
    with pytest.raises(TunerError, match="version 0"):
        SqliteStore(path)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT name FROM sqlite_master").fetchall() == [("other",)]
    text = tmp_path / "text.sqlite"
    text.write_text("no database at all " * 100)
    with pytest.raises(TunerError, match="no record store"):
        SqliteStore(text)


def test_a_missing_store_is_not_made_by_reading(tmp_path: Path) -> None:
    with pytest.raises(TunerError, match="unable to open"):
        SqliteStore(tmp_path / "records.sqlite", read_only=True)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "empty.sqlite").touch()
    with pytest.raises(TunerError, match="no records yet"):
        SqliteStore(tmp_path / "empty.sqlite", read_only=True)


def test_a_folder_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(TunerError, match="see that the folder is there") as caught:
        SqliteStore(tmp_path / "no" / "records.sqlite")
    assert "\n" not in str(caught.value)


def test_a_full_disk_is_one_line_and_loses_nothing(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path / "records.sqlite")) as store:
        store.append_many([(record(0), None)])
        pages = store._db.execute("PRAGMA page_count").fetchone()[0]
        store._db.execute(f"PRAGMA max_page_count={pages}")
        big = np.random.default_rng(0).random(50_000).astype(np.float32)
        with pytest.raises(TunerError, match="free some space") as caught:
            store.append_many([(record(1), None), (record(2), big)])
        assert "\n" not in str(caught.value)
        assert list(store.scan()) == [record(0)]
        store._db.execute("PRAGMA max_page_count=1000000")
        assert store.append_many([(record(2), big)])[0]
        assert list(store.scan()) == [record(0), record(2)]


def test_a_commit_is_synced_to_the_disk(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path / "records.sqlite")) as store:
        assert store._db.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
        assert store._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
