"""Records on their way from the store to MLflow."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tuner.tracking.fake_sink import (
    TASKS,
    Clock,
    FakeSink,
    open_store,
    push_all,
    say,
    start_drain,
)
from tuner.candidate import Candidate, CandidateKind
from tuner.record import Measurement, Provenance, Record, Status, Trial
from tuner.storage.base import SessionSpan
from tuner.storage.facts import Tasks, TrackingEntries
from tuner.storage.restore import restore
from tuner.storage.sqlite_store import MemoryStore, SqliteStore
from tuner.task import Task
from tuner.tracking.drain import count_pending
from tuner.tracking.entries import (
    End,
    Entry,
    Metrics,
    Start,
    Tags,
    TaskEntry,
    TrackingPaths,
    encode,
)
from tuner.tracking.progress import load_progress
from tuner.tracking.record_metrics import RecordMetrics

START = Start("u1", "demo", {}, {}, 1000.0)
END = End("FINISHED", 9000.0)


def record(number: int, *, task: str = "aa") -> Record:
    candidate = Candidate(CandidateKind.TRACE, f"[{number}]", "space")
    measured = Measurement(Status.OK, (1e-3 + 1.0 / (number + 1),))
    return Record(Trial(task, candidate), measured, time_s=1000.0 + number)


def keep(run_dir: Path, records: Sequence[Record]) -> None:
    with closing(open_store(run_dir)) as store:
        store.append_many([(r, None) for r in records])


def steps(entries: Sequence[Entry], task: str = "aa", name: str = "task/latency_us") -> list[int]:
    """In the order in which they came first."""
    points = (e for e in entries if isinstance(e, Metrics) and e.task == task and name in e.values)
    return list(dict.fromkeys(e.step for e in points))


def files_of(run_dir: Path) -> dict[str, int]:
    """How many records each numbered file holds."""
    folder = TrackingPaths(run_dir).files / "records"
    return {p.name: len(p.read_text().splitlines()) for p in sorted(folder.glob("*.jsonl"))}


def restored(run_dir: Path) -> list[str]:
    """Payloads that come back from a run's files."""
    store = MemoryStore()
    store.put(Tasks(TASKS))
    if files_of(run_dir):
        restore([TrackingPaths(run_dir).files / "records"], store)
    return [r.trial.candidate.payload for r in store.scan()]


def list_announced(sink: FakeSink) -> list[str]:
    return [entry.task for entry in sink.taken if isinstance(entry, TaskEntry)]


def push_what_can_be(run_dir: Path, sink: FakeSink) -> None:
    """Push while the run's session lives."""
    drain = start_drain(run_dir, sink, Clock())
    while drain.step():
        pass


class TestOrder:
    def test_records_come_after_their_task_and_before_the_end(self, tmp_path: Path) -> None:
        say(tmp_path, [START])
        keep(tmp_path, [record(n) for n in range(700)])
        say(tmp_path, [Metrics(None, 700, {"trials/total": 700.0}, 2000.0), END])
        sink = FakeSink()
        push_all(tmp_path, sink)
        assert sink.taken[0] == START
        assert list_announced(sink) == ["aa", "bb"]
        assert steps(sink.taken) == list(range(1, 701))
        assert sink.taken[-2:] == [Metrics(None, 700, {"trials/total": 700.0}, 2000.0), END]

    def test_a_run_is_announced_before_all_that_it_had(self, tmp_path: Path) -> None:
        """As one that was restored from files."""
        keep(tmp_path, [record(1), record(2, task="bb"), record(3)])
        sink = FakeSink()
        drain = start_drain(tmp_path, sink, Clock(), over=True)
        assert not drain.step()
        assert sink.taken == []
        say(tmp_path, [START])
        push_all(tmp_path, sink)
        assert (sink.taken[0], list_announced(sink)) == (START, ["aa", "bb"])
        assert (steps(sink.taken), steps(sink.taken, "bb")) == ([1, 2], [1])

    def test_another_machine_says_the_same_of_all_of_them(self, tmp_path: Path) -> None:
        """It has the records of a run with a URL, and nothing that was tracked elsewhere."""
        here, there = FakeSink(), FakeSink()
        say(tmp_path / "here", [START])
        for n in range(3):
            keep(tmp_path / "here", [record(n)])
            push_all(tmp_path / "here", here)
        keep(tmp_path / "there", [record(n) for n in range(3)])
        say(tmp_path / "there", [START])
        push_all(tmp_path / "there", there)
        points = [[e for e in sink.taken if isinstance(e, Metrics)] for sink in (here, there)]
        assert steps(there.taken) == [1, 2, 3]
        assert points[0] == points[1]
        assert files_of(tmp_path / "here") == files_of(tmp_path / "there")

    def test_those_of_a_later_session_come_after_the_end_before_it(self, tmp_path: Path) -> None:
        late = Task("dd", "late", "{}", "llvm")
        say(tmp_path, [START])
        keep(tmp_path, [record(1)])
        say(tmp_path, [END])
        with closing(open_store(tmp_path)) as store:
            store.put(Tasks([late]))
        again, over = Start("u1", "demo", {}, {}, 9100.0), End("FINISHED", 9900.0)
        say(tmp_path, [again])
        keep(tmp_path, [record(2, task="dd"), record(3)])
        say(tmp_path, [over])
        sink = FakeSink()
        push_all(tmp_path, sink)
        assert (steps(sink.taken), steps(sink.taken, "dd")) == ([1, 2], [1])
        places = [sink.taken.index(entry) for entry in (START, END, again, over)]
        assert places == sorted(places)
        assert places[-1] == len(sink.taken) - 1
        assert isinstance(sink.taken[places[1] - 1], Metrics)

    def test_a_task_that_was_added_since_is_found(self, tmp_path: Path) -> None:
        """By the tracker of a killed session, while the next one has begun."""
        late = Task("dd", "late", "{}", "llvm")
        say(tmp_path, [START])
        sink, clock = FakeSink(), Clock()
        drain = start_drain(tmp_path, sink, clock)
        with closing(open_store(tmp_path)) as store:
            store.append_many([(record(1), None)])
            while drain.step():
                pass
            store.put(Tasks([late]), TrackingEntries([encode(Start("u1", "demo", {}, {}, 2e3))]))
            store.append_many([(record(2, task="dd"), None)])
            for _ in range(5):
                drain.step()
                clock.now += 60.0
        assert (steps(sink.taken), steps(sink.taken, "dd")) == ([1], [1])
        assert list_announced(sink)[-1] == "dd"

    def test_a_task_is_announced_before_its_records_wherever_these_stand(
        self, tmp_path: Path
    ) -> None:
        """In the index of segments they may stand before the session that added their task."""
        late = Task("dd", "late", "{}", "llvm")
        say(tmp_path, [START])
        push_all(tmp_path, sink := FakeSink())
        with closing(open_store(tmp_path)) as store:
            store.put(Tasks([late]))
        keep(tmp_path, [record(n, task="dd") for n in range(300)])
        say(tmp_path, [Start("u1", "demo", {}, {}, 2e3)])
        progress = push_all(tmp_path, sink).progress
        assert steps(sink.taken, "dd") == list(range(1, 301))
        assert progress.dropped == 0

    def test_a_server_that_is_down_has_no_record_taken_in_twice(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        taken: list[float] = []
        take = RecordMetrics.take

        def count(metrics: RecordMetrics, one: Record, sessions: Sequence[SessionSpan]) -> object:
            taken.append(one.time_s)
            return take(metrics, one, sessions)

        monkeypatch.setattr(RecordMetrics, "take", count)
        say(tmp_path, [START])
        keep(tmp_path, [record(n) for n in range(300)])
        sink = FakeSink(["good", *["down"] * 9])
        push_all(tmp_path, sink)
        assert steps(sink.taken) == list(range(1, 301))
        assert len(taken) == len(set(taken)) == 300

    def test_while_a_session_lives_they_go_as_they_come(self, tmp_path: Path) -> None:
        sink = FakeSink()
        with closing(open_store(tmp_path)) as store:
            store.put(TrackingEntries([encode(START)]))
            for n in range(3):
                store.append_many([(record(n), None)])
                push_what_can_be(tmp_path, sink)
                assert steps(sink.taken) == list(range(1, n + 2))
        assert sink.files == []  # the first file has a place for more

    def test_the_device_and_the_toolchain_are_told_where_they_are_new(self, tmp_path: Path) -> None:
        say(tmp_path, [START])
        places = (("cpu 1", "tvm 1"), ("cpu 1", "tvm 1"), ("another", "tvm 1"))
        for n, (device, toolchain) in enumerate(places):
            where = Provenance(device=device, toolchain=toolchain)
            one = record(n)
            keep(tmp_path, [Record(one.trial, one.measurement, where, time_s=one.time_s)])
        sink = FakeSink()
        push_all(tmp_path, sink)
        assert [e.tags for e in sink.taken if isinstance(e, Tags)] == [
            {"device": "cpu 1", "toolchain": "tvm 1"},
            {"device": "another, cpu 1"},
        ]


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
            say(run_dir, [Start("u1", "demo", {}, {}, 1000.0 + len(records))])
            more = [record(len(records) + n) for n in range(size)]
            keep(run_dir, more)
            records += more
            drain = start_drain(run_dir, sink, clock, over=True)  # the one before was killed
            for _ in range(life):
                drain.step()
                clock.now += 60.0
        say(run_dir, [END])
        for _ in range(gone + 1):  # one is forgiven in each life
            clock.now += 60.0
            drain = start_drain(run_dir, sink, clock, over=True)
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
        say(tmp_path, [START])
        keep(tmp_path, [record(n) for n in range(600)])
        sink = FakeSink()
        push_all(tmp_path, sink)
        say(tmp_path, [END])
        sink.moods = ["gone"]
        push_all(tmp_path, sink)
        assert sink.forgotten == 1
        assert sink.taken[0] == START
        assert steps(sink.taken) == list(range(1, 601))
        assert len(sink.files) == 3

    def test_records_that_were_lost_with_the_power_do_not_hide_others(self, tmp_path: Path) -> None:
        say(tmp_path, [START])
        keep(tmp_path, [record(n) for n in range(10)])
        push_all(tmp_path, FakeSink())
        paths = TrackingPaths(tmp_path)
        paths.store.unlink()
        say(tmp_path, [START])
        keep(tmp_path, [record(n) for n in range(100, 115)])
        assert count_pending(paths, load_progress(paths, "here")) == 1 + 15 + 1
        sink = FakeSink()
        sink.known = {"", "aa", "bb"}
        push_all(tmp_path, sink)
        assert steps(sink.taken) == list(range(1, 16))
        assert len(restored(tmp_path)) == 15

    def test_a_trial_that_was_lost_and_measured_again_is_another_record(
        self, tmp_path: Path
    ) -> None:
        say(tmp_path, [START])
        keep(tmp_path, [record(1)])
        push_all(tmp_path, FakeSink())
        paths = TrackingPaths(tmp_path)
        paths.store.unlink()
        again = Record(record(1).trial, record(1).measurement, time_s=5000.0)
        say(tmp_path, [START])
        keep(tmp_path, [again])
        assert count_pending(paths, load_progress(paths, "here")) == 1 + 1 + 1

    def test_a_store_that_cannot_be_read_is_a_line_and_another_try(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        say(tmp_path, [START])
        keep(tmp_path, [record(n) for n in range(5)])
        say(tmp_path, [END])
        store = TrackingPaths(tmp_path).store
        whole = store.read_bytes()
        store.write_bytes(b"no database" * 500)
        sink, clock = FakeSink(), Clock()
        drain = start_drain(tmp_path, sink, clock, over=True)
        for _ in range(10):
            drain.step()
            clock.now += 60.0
        assert sink.taken == []
        assert not drain.drained()
        assert "file is not a database" in drain.progress.error
        assert [r.getMessage().count("\n") for r in caplog.records] == [0]
        store.write_bytes(whole)
        for _ in range(10):
            drain.step()
            clock.now += 60.0
        assert steps(sink.taken) == [1, 2, 3, 4, 5]
        assert drain.drained()
        assert drain.progress.error == ""

    def test_a_refused_record_is_left_out_and_counted(self, tmp_path: Path) -> None:
        say(tmp_path, [START])
        keep(tmp_path, [record(n) for n in range(300)])
        sink = FakeSink()
        push_all(tmp_path, sink)
        bad = next(e for e in sink.taken if isinstance(e, Metrics) and e.step == 137)
        TrackingPaths(tmp_path).progress.unlink()
        sink = FakeSink()
        sink.bad = bad
        progress = push_all(tmp_path, sink).progress
        assert steps(sink.taken) == [n for n in range(1, 301) if n != 137]
        assert progress.dropped == 1


class TestFiles:
    def test_a_file_holds_as_many_as_any_and_the_last_one_grows(self, tmp_path: Path) -> None:
        say(tmp_path, [START])
        keep(tmp_path, [record(n) for n in range(450)])
        sink = FakeSink()
        push_all(tmp_path, sink)
        names = [f"records/records-{n:06d}.jsonl" for n in (1, 2, 3)]
        assert sink.files == names
        assert list(files_of(tmp_path).values()) == [200, 200, 50]
        keep(tmp_path, [record(n) for n in range(450, 620)])
        push_all(tmp_path, sink)
        assert sorted(sink.files[3:]) == [names[2], "records/records-000004.jsonl"]
        assert list(files_of(tmp_path).values()) == [200, 200, 200, 20]
        assert restored(tmp_path) == [f"[{n}]" for n in range(620)]

    def test_while_a_session_lives_only_full_ones_go(self, tmp_path: Path) -> None:
        say(tmp_path, [START])
        sink = FakeSink()
        with closing(open_store(tmp_path)) as store:
            store.append_many([(record(n), None) for n in range(399)])
            push_what_can_be(tmp_path, sink)
            assert sink.files == ["records/records-000001.jsonl"]
            store.append_many([(record(399), None)])
            push_what_can_be(tmp_path, sink)
            assert sink.files[1:] == ["records/records-000002.jsonl"]

    def test_a_full_disk_is_tried_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        say(tmp_path, [START])
        keep(tmp_path, [record(1)])
        sink, clock = FakeSink(), Clock()
        drain = start_drain(tmp_path, sink, clock, over=True)
        with monkeypatch.context() as patch:
            patch.setattr("tuner.tracking.reader.write_bytes", full)
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
        say(tmp_path, [START])
        keep(tmp_path, [record(1)])
        path = TrackingPaths(tmp_path).store
        with closing(sqlite3.connect(path)) as plain:
            plain.execute("PRAGMA journal_mode=DELETE")
        sink = FakeSink()
        drain = start_drain(tmp_path, sink, Clock())
        while drain.step():
            pass
        assert sink.taken == []
        drain.wind_up()
        while drain.step():
            pass
        assert steps(sink.taken) == [1]
