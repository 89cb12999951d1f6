"""Records on their way from the store to MLflow."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tuner.tracking.fake_sink import Clock, FakeSink, push_all, start_drain
from tuner.candidate import Candidate, CandidateKind
from tuner.record import Measurement, Record, Status, Trial
from tuner.storage.base import begin_session
from tuner.storage.facts import Tasks
from tuner.storage.memory import MemoryStore
from tuner.storage.restore import restore
from tuner.storage.sqlite_store import SqliteStore
from tuner.task import Task
from tuner.tracking.cursor import load_progress
from tuner.tracking.drain import count_pending
from tuner.tracking.spool import (
    Artifact,
    End,
    Entry,
    LineFile,
    Metrics,
    Start,
    TaskEntry,
    TrackingPaths,
    encode,
    read_json,
    write_json,
)

TASKS = [Task("aa", "conv", "{}", "llvm", weight=3, flops=2e6), Task("bb", "dense", "{}", "llvm")]
START: list[Entry] = [
    Start("u1", "demo", {}, {}, 1000.0),
    *(TaskEntry(task.key, task.name, {}) for task in TASKS),
]
END = End("FINISHED", 9000.0)
GOLDEN = Path(__file__).parents[2] / "golden" / "tracked-in-spool"


def record(number: int, *, task: str = "aa") -> Record:
    candidate = Candidate(CandidateKind.TRACE, f"[{number}]", "space")
    measured = Measurement(Status.OK, (1e-3 + 1.0 / (number + 1),))
    return Record(Trial(task, candidate), measured, time_s=1000.0 + number)


def open_store(run_dir: Path) -> SqliteStore:
    run_dir.mkdir(exist_ok=True)
    store = SqliteStore(TrackingPaths(run_dir).store)
    store.put(Tasks(TASKS))
    if not store.sessions():
        begin_session(store, 1000.0)
    return store


def keep(run_dir: Path, records: Sequence[Record]) -> None:
    with closing(open_store(run_dir)) as store:
        store.append_many([(r, None) for r in records])


def say(run_dir: Path, entries: Sequence[Entry]) -> None:
    file = LineFile(TrackingPaths(run_dir).spool)
    assert file.append(b"".join(encode(e) for e in entries))
    file.close()


def steps(entries: Sequence[Entry], task: str = "aa", name: str = "task/latency_us") -> list[int]:
    """In the order in which they came first."""
    points = (e for e in entries if isinstance(e, Metrics) and e.task == task and name in e.values)
    return list(dict.fromkeys(e.step for e in points))


def files_of(run_dir: Path) -> dict[str, int]:
    """How many records each numbered file holds."""
    folder = TrackingPaths(run_dir).folder / "records"
    return {p.name: len(p.read_text().splitlines()) for p in sorted(folder.glob("*.jsonl"))}


def restored(run_dir: Path) -> list[str]:
    """Payloads that come back from a run's files."""
    store = MemoryStore()
    store.put(Tasks(TASKS))
    if files_of(run_dir):
        restore([TrackingPaths(run_dir).folder / "records"], store)
    return [r.trial.candidate.payload for r in store.scan()]


class TestOrder:
    def test_records_come_after_their_task_and_before_the_end(self, tmp_path: Path) -> None:
        keep(tmp_path, [record(n) for n in range(700)])
        say(tmp_path, [*START, Metrics(None, 700, {"model/gain": 2.0}, 2000.0), END])
        sink = FakeSink()
        push_all(tmp_path, sink)
        assert sink.taken[:4] == [*START, Metrics(None, 700, {"model/gain": 2.0}, 2000.0)]
        assert steps(sink.taken) == list(range(1, 701))
        assert sink.taken[-1] == END

    def test_they_wait_for_a_run_and_a_task_that_nobody_announced_yet(self, tmp_path: Path) -> None:
        keep(tmp_path, [record(1), record(2, task="bb"), record(3)])
        sink, clock = FakeSink(), Clock()
        drain = start_drain(tmp_path, sink, clock)
        drain.wind_up()
        assert not drain.step()
        say(tmp_path, START[:2])
        while drain.step():
            pass
        assert (steps(sink.taken), steps(sink.taken, "bb")) == ([1], [])
        assert not drain.drained()
        say(tmp_path, START[2:])
        while drain.step():
            pass
        assert (steps(sink.taken), steps(sink.taken, "bb")) == ([1, 2], [1])
        assert drain.drained()

    def test_another_machine_says_the_same_of_all_of_them(self, tmp_path: Path) -> None:
        """It has the records of a run with a URL, and nothing that was tracked elsewhere."""
        here, there = FakeSink(), FakeSink()
        for n in range(3):
            keep(tmp_path / "here", [record(n)])
            say(tmp_path / "here", START)
            push_all(tmp_path / "here", here)
        keep(tmp_path / "there", [record(n) for n in range(3)])
        say(tmp_path / "there", START)
        push_all(tmp_path / "there", there)
        points = [[e for e in sink.taken if isinstance(e, Metrics)] for sink in (here, there)]
        assert steps(there.taken) == [1, 2, 3]
        assert points[0] == points[1]
        assert files_of(tmp_path / "here") == files_of(tmp_path / "there")

    def test_those_of_a_later_session_do_not_hold_up_the_end_before_it(
        self, tmp_path: Path
    ) -> None:
        late = Task("dd", "late", "{}", "llvm")
        keep(tmp_path, [record(1), record(2, task="dd"), record(3)])
        with closing(open_store(tmp_path)) as store:
            store.put(Tasks([late]))
        say(tmp_path, [*START, END, *START, TaskEntry(late.key, late.name, {}), END])
        sink = FakeSink()
        push_all(tmp_path, sink)
        assert (steps(sink.taken), steps(sink.taken, "dd")) == ([1, 2], [1])
        assert sink.taken[-1] == END

    def test_a_task_that_was_added_since_is_found(self, tmp_path: Path) -> None:
        """By the tracker of a killed session, while the next one has begun."""
        late = Task("dd", "late", "{}", "llvm")
        say(tmp_path, [*START, TaskEntry(late.key, late.name, {})])
        sink, clock = FakeSink(), Clock()
        drain = start_drain(tmp_path, sink, clock)
        with closing(open_store(tmp_path)) as store:
            store.append_many([(record(1), None)])
            while drain.step():
                pass
            store.put(Tasks([late]))
            store.append_many([(record(2, task="dd"), None)])
            for _ in range(5):
                drain.step()
                clock.now += 60.0
        assert (steps(sink.taken), steps(sink.taken, "dd")) == ([1], [1])

    def test_while_a_session_lives_they_go_as_they_come(self, tmp_path: Path) -> None:
        say(tmp_path, START)
        sink = FakeSink()
        drain = start_drain(tmp_path, sink, Clock())
        with closing(open_store(tmp_path)) as store:
            for n in range(3):
                store.append_many([(record(n), None)])
                while drain.step():
                    pass
                assert steps(sink.taken) == list(range(1, n + 2))
        assert sink.files == []  # the first file has a place for more


class TestWhateverHappens:
    @settings(max_examples=15, deadline=None)
    @given(
        sizes=st.lists(st.integers(0, 450), min_size=1, max_size=4),
        moods=st.lists(st.sampled_from(["good", "down", "silent", "gone"]), max_size=12),
        life=st.integers(1, 6),
    )
    def test_each_record_arrives_whatever_fails_and_whoever_dies(
        self,
        tmp_path_factory: pytest.TempPathFactory,
        sizes: list[int],
        moods: list[str],
        life: int,
    ) -> None:
        run_dir = tmp_path_factory.mktemp("run")
        gone = moods.count("gone")
        sink, clock = FakeSink(moods), Clock()
        records: list[Record] = []
        for size in sizes:
            say(run_dir, START)
            more = [record(len(records) + n) for n in range(size)]
            keep(run_dir, more)
            records += more
            drain = start_drain(run_dir, sink, clock)  # the one before was killed
            drain.wind_up()
            for _ in range(life):
                drain.step()
                clock.now += 60.0
        say(run_dir, [END])
        for _ in range(gone + 1):  # one is forgiven in each life
            clock.now += 60.0
            drain = start_drain(run_dir, sink, clock)
            drain.wind_up()
            for _ in range(100):
                if not drain.step() and drain.drained():
                    break
                clock.now += 60.0
        assert drain.drained()
        assert steps(sink.taken) == list(range(1, len(records) + 1))
        assert sink.taken[-1] == END
        assert restored(run_dir) == [r.trial.candidate.payload for r in records]

    def test_a_run_that_was_deleted_over_there_gets_all_its_records_again(
        self, tmp_path: Path
    ) -> None:
        keep(tmp_path, [record(n) for n in range(600)])
        say(tmp_path, START)
        sink = FakeSink()
        push_all(tmp_path, sink)
        say(tmp_path, [END])
        sink.moods = ["gone"]
        push_all(tmp_path, sink)
        assert sink.forgotten == 1
        assert sink.taken[:3] == START
        assert steps(sink.taken) == list(range(1, 601))
        assert len(sink.files) == 3

    def test_records_that_were_lost_with_the_power_do_not_hide_others(self, tmp_path: Path) -> None:
        keep(tmp_path, [record(n) for n in range(10)])
        say(tmp_path, START)
        push_all(tmp_path, FakeSink())
        paths = TrackingPaths(tmp_path)
        paths.store.unlink()
        keep(tmp_path, [record(n) for n in range(100, 115)])
        assert count_pending(paths, load_progress(paths, "here")) == 15 + 1
        sink = FakeSink()
        sink.known = {"", "aa", "bb"}
        push_all(tmp_path, sink)
        assert steps(sink.taken) == list(range(1, 16))
        assert len(restored(tmp_path)) == 15

    def test_a_trial_that_was_lost_and_measured_again_is_another_record(
        self, tmp_path: Path
    ) -> None:
        keep(tmp_path, [record(1)])
        say(tmp_path, START)
        push_all(tmp_path, FakeSink())
        paths = TrackingPaths(tmp_path)
        paths.store.unlink()
        again = Record(record(1).trial, record(1).measurement, time_s=5000.0)
        keep(tmp_path, [again])
        assert count_pending(paths, load_progress(paths, "here")) == 1 + 1

    def test_a_store_that_cannot_be_read_is_a_line_and_another_try(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        keep(tmp_path, [record(n) for n in range(5)])
        say(tmp_path, [*START, END])
        store = TrackingPaths(tmp_path).store
        whole = store.read_bytes()
        store.write_bytes(b"no database" * 500)
        sink, clock = FakeSink(), Clock()
        drain = start_drain(tmp_path, sink, clock)
        drain.wind_up()
        for _ in range(10):
            drain.step()
            clock.now += 60.0
        assert sink.taken == [*START, END]  # nobody can say for how long it should wait
        assert not drain.drained()
        assert "file is not a database" in drain.progress.error
        assert [r.getMessage().count("\n") for r in caplog.records] == [0, 0]  # records and files
        store.write_bytes(whole)
        for _ in range(10):
            drain.step()
            clock.now += 60.0
        assert steps(sink.taken) == [1, 2, 3, 4, 5]
        assert drain.drained()
        assert drain.progress.error == ""

    def test_a_refused_record_is_left_out_and_counted(self, tmp_path: Path) -> None:
        keep(tmp_path, [record(n) for n in range(300)])
        say(tmp_path, START)
        sink = FakeSink()
        push_all(tmp_path, sink)
        bad = next(e for e in sink.taken if isinstance(e, Metrics) and e.step == 137)
        TrackingPaths(tmp_path).offset.unlink()
        sink = FakeSink()
        sink.bad = bad
        progress = push_all(tmp_path, sink).progress
        assert steps(sink.taken) == [n for n in range(1, 301) if n != 137]
        assert progress.dropped == 2  # with its point of the best by time


class TestFiles:
    def test_a_file_holds_as_many_as_any_and_the_last_one_grows(self, tmp_path: Path) -> None:
        keep(tmp_path, [record(n) for n in range(450)])
        say(tmp_path, START)
        sink = FakeSink()
        push_all(tmp_path, sink)
        names = [f"records/records-{n:06d}.jsonl" for n in (1, 2, 3)]
        assert sink.files == [Artifact(name) for name in names]
        assert list(files_of(tmp_path).values()) == [200, 200, 50]
        keep(tmp_path, [record(n) for n in range(450, 620)])
        push_all(tmp_path, sink)
        assert sink.files[3:] == [Artifact(names[2]), Artifact("records/records-000004.jsonl")]
        assert list(files_of(tmp_path).values()) == [200, 200, 200, 20]
        assert restored(tmp_path) == [f"[{n}]" for n in range(620)]

    def test_while_a_session_lives_only_full_ones_go(self, tmp_path: Path) -> None:
        say(tmp_path, START)
        sink = FakeSink()
        drain = start_drain(tmp_path, sink, Clock())
        with closing(open_store(tmp_path)) as store:
            store.append_many([(record(n), None) for n in range(399)])
            while drain.step():
                pass
            assert sink.files == [Artifact("records/records-000001.jsonl")]
            store.append_many([(record(399), None)])
            while drain.step():
                pass
            assert sink.files[1:] == [Artifact("records/records-000002.jsonl")]

    def test_a_full_disk_is_tried_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        keep(tmp_path, [record(1)])
        say(tmp_path, START)
        sink, clock = FakeSink(), Clock()
        drain = start_drain(tmp_path, sink, clock)
        drain.wind_up()
        with monkeypatch.context() as patch:
            patch.setattr("tuner.tracking.stored_records.write_bytes", full)
            while drain.step():
                pass
        assert steps(sink.taken) == [1]
        assert "No space" in drain.progress.error
        clock.now += 60.0
        while drain.step():
            pass
        assert drain.drained()


class TestTheWriter:
    def test_is_not_kept_waiting_by_a_reader(self, tmp_path: Path) -> None:
        """Wherever a tracker is stopped: while a kernel is timed it may be for long."""
        keep(tmp_path, [record(1)])
        path = TrackingPaths(tmp_path).store
        with (
            closing(open_store(tmp_path)) as first,
            closing(SqliteStore(path, read_only=True)) as reading,
        ):
            reading._db.execute("BEGIN")
            assert reading.last() == 1
            with closing(SqliteStore(path, busy_timeout_s=0.0)) as store:
                assert store.append_many([(record(2), None)])[0]
            assert first.append_many([(record(3), None)])

    def test_is_left_alone_where_it_has_no_write_ahead_log(self, tmp_path: Path) -> None:
        keep(tmp_path, [record(1)])
        say(tmp_path, START)
        path = TrackingPaths(tmp_path).store
        with closing(sqlite3.connect(path)) as plain:
            plain.execute("PRAGMA journal_mode=DELETE")
        sink = FakeSink()
        drain = start_drain(tmp_path, sink, Clock())
        while drain.step():
            pass
        assert sink.taken == START
        drain.wind_up()
        while drain.step():
            pass
        assert steps(sink.taken) == [1]


@pytest.fixture
def old_run(tmp_path: Path) -> Path:
    """A run of a version whose sessions put all that records say into the spool, killed when it had
    stored two records more."""
    paths = TrackingPaths(tmp_path)
    shutil.copytree(GOLDEN, paths.folder)
    with closing(open_store(tmp_path)) as store:
        records = paths.folder / "records"
        restore([*sorted(records.glob("records-*")), records / "open.jsonl"], store)
        store.append_many([(record(n), None) for n in (12, 13)])
    return tmp_path


class TestOldRuns:
    def test_what_the_spool_says_is_not_said_again_and_the_rest_is(self, old_run: Path) -> None:
        say(old_run, START)
        keep(old_run, [record(14)])
        sink = FakeSink()
        push_all(old_run, sink)
        for task, said, stored in (("aa", 5, 3), ("bb", 6, 0)):
            assert sorted(steps(sink.taken, task, "best_us")) == list(range(1, said + 1))
            new = list(range(said + 1, said + stored + 1))
            assert steps(sink.taken, task, "task/best_us") == new
        by_record = [
            (e.task, e.step)
            for e in sink.taken
            if isinstance(e, Metrics) and e.task
            if not {"best_us_by_time", "task/best_us_by_time"} & e.values.keys()
        ]
        assert len(by_record) == len(set(by_record)) == 14

    def test_one_that_was_pushed_already_only_gets_what_is_new(self, old_run: Path) -> None:
        paths = TrackingPaths(old_run)
        push_all(old_run, sink := FakeSink())
        then = read_json(paths.offset)  # as that version wrote it
        write_json(paths.offset, {k: v for k, v in then.items() if k not in ("records", "files")})
        known, sink = sink.known, FakeSink()
        sink.known = known
        push_all(old_run, sink)
        assert steps(sink.taken, "aa", "task/best_us") == [6, 7]
        assert steps(sink.taken, "bb", "task/best_us") == []

    def test_all_records_come_back_from_its_files(self, old_run: Path) -> None:
        sink = FakeSink()
        push_all(old_run, sink)
        assert files_of(old_run)["records-000001.jsonl"] == 13
        uploaded = list(dict.fromkeys(e.path for e in sink.files if isinstance(e, Artifact)))
        assert uploaded == [f"records/records-{n:06d}.jsonl" for n in (1, 2, 3)]
        assert sorted(restored(old_run)) == sorted(f"[{n}]" for n in range(1, 14))
