"""What the store of segments does beyond the contract: die anywhere, be fenced off, be rebuilt."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tuner.storage.objects.memory_objects import MemoryObjectStore
from tuner.candidate import Candidate, CandidateKind
from tuner.errors import TunerError
from tuner.files.locks import hold_lock
from tuner.record import Measurement, Record, Status, Trial, record_line
from tuner.storage.base import RecordStore, begin_session, elapsed_s
from tuner.storage.facts import Defaults, SessionAlive, SessionEnded, Tasks, TrackingEntries
from tuner.storage.objects.base import ObjectStore
from tuner.storage.objects.url import open_object_store
from tuner.storage.segments.format import Measured, Segment, encode
from tuner.storage.segments.index import catch_up, discard, mark
from tuner.storage.segments.lease import Lease, LeaseLost
from tuner.storage.segments.log import Position, last_number, path_of, read_on
from tuner.storage.segments.store import SegmentStore
from tuner.storage.sqlite_store import SqliteStore
from tuner.storage.tallies import count_by_space, count_by_toolchain, count_statuses
from tuner.task import Task

TASKS = (Task("t", "matmul", "{}", "{}", 2.0, shapes=(((("n", 1),), 0.5),)), Task("u", "u", "", ""))


def record(n: int, task: str = "t") -> Record:
    candidate = Candidate(CandidateKind.TRACE, f"[{n}]", "space")
    return Record(Trial(task, candidate), Measurement(Status.OK, (1.0 + n % 7,)))


def vector(n: int) -> Any:
    return np.array([n, 0.5], np.float32)


class Presumed(Lease):
    """A lease that takes every other holder for dead, and does not look who took it."""

    def __init__(self, objects: ObjectStore) -> None:
        super().__init__(objects, patience_s=0.0)

    @property
    def renew_every_s(self) -> float:
        return 1e6


def opened(objects: ObjectStore, folder: Path, name: str = "index", **options: Any) -> SegmentStore:
    """A store that never waits for a lease, and writes only when it is told to."""
    options = {"lease": Presumed(objects), "oldest_s": 1e6, "patience_s": 0.0} | options
    return SegmentStore(objects, folder / f"{name}.sqlite", **options)


def told(store: RecordStore) -> list[object]:
    """Everything that a store knows, comparable."""
    tasks = [task.key for task in store.tasks()]
    return [
        [record_line(r) for r in store.scan()],
        [[record_line(r) for r in store.scan(key, fastest=5)] for key in tasks],
        count_statuses(store.tallies()),
        count_by_space(store.tallies()),
        [*count_by_toolchain(store.tallies()).items()],
        [{k: v.tolist() for k, v in store.features(key).items()} for key in tasks],
        store.tasks(),
        store.get(Defaults).by_task,
        store.sessions(),
    ]


def from_segments(objects: ObjectStore, folder: Path, name: str = "rebuilt") -> list[object]:
    """What a reader sees who has nothing but the segments, or an index as it was left."""
    index = folder / f"{name}.sqlite"
    catch_up(objects, index)
    with closing(SqliteStore(index, read_only=True)) as store:
        return told(store)


def fill(store: RecordStore, n: int) -> None:
    store.put(Tasks(TASKS), Defaults({"t": record(0).trial.candidate.key}))
    session = begin_session(store, 100.0)
    for i in range(n):
        store.append_many([(record(i), vector(i) if i % 2 else None)])
    store.put(SessionAlive(session, 105.0, {"runner": {"busy": 1.0}}))
    store.put(SessionEnded(session, 110.0, "done"))


class TestRebuilding:
    def test_gives_back_everything_from_the_segments_alone(self, tmp_path: Path) -> None:
        objects = open_object_store((tmp_path / "shared").as_uri())
        with closing(opened(objects, tmp_path)) as store:
            fill(store, 200)
            before = told(store)
        assert from_segments(objects, tmp_path) == before
        with closing(opened(objects, tmp_path, "third")) as store:
            assert told(store) == before
            assert store.append_many([(record(0), None)])[0] is False
            assert begin_session(store, 200.0) == 2

    def test_an_index_that_is_behind_catches_up(self, tmp_path: Path) -> None:
        objects = MemoryObjectStore()
        with closing(opened(objects, tmp_path)) as store:
            fill(store, 10)
        from_segments(objects, tmp_path)
        with closing(opened(objects, tmp_path)) as store:
            store.append_many([(record(50), vector(50))])
            store.append_many([(record(51, "u"), None)])
            begin_session(store, 300.0)
            now = told(store)
        for path in [path_of(n) for n in range(1, 3)]:  # what it has already is not read again
            objects.objects[path] = b""
        assert from_segments(objects, tmp_path) == now

    def test_the_index_of_another_run_is_made_again(self, tmp_path: Path) -> None:
        other, objects = MemoryObjectStore(), MemoryObjectStore()
        for n, where in enumerate((other, objects)):
            with closing(opened(where, tmp_path, f"own{n}")) as store:
                fill(store, 3 + n)
                store.append_many([(record(90 + n), None)])
        from_segments(other, tmp_path)
        fresh = from_segments(objects, tmp_path, "fresh")
        assert from_segments(objects, tmp_path) == fresh

    def test_an_index_that_is_ahead_of_the_segments_is_made_again(self, tmp_path: Path) -> None:
        objects = MemoryObjectStore()
        with closing(opened(objects, tmp_path)) as store:
            fill(store, 3)
        kept, before = dict(objects.objects), from_segments(objects, tmp_path)
        with closing(opened(objects, tmp_path)) as store:
            store.append_many([(record(70), None)])
        assert from_segments(objects, tmp_path) != before
        objects.objects = kept  # the run was set back
        assert from_segments(objects, tmp_path) == before
        with closing(opened(objects, tmp_path)) as store:
            assert told(store) == before

    @pytest.mark.parametrize("content", [b"", b"no database at all " * 100])
    def test_a_damaged_index_is_made_again(self, tmp_path: Path, content: bytes) -> None:
        objects = MemoryObjectStore()
        with closing(opened(objects, tmp_path)) as store:
            fill(store, 3)
        before = from_segments(objects, tmp_path)
        (tmp_path / "rebuilt.sqlite").write_bytes(content)
        assert from_segments(objects, tmp_path) == before

    def test_the_records_of_a_local_run_are_no_index_and_stay(self, tmp_path: Path) -> None:
        with closing(SqliteStore(tmp_path / "index.sqlite")) as store:
            store.append_many([(record(1), None)])
        with pytest.raises(TunerError, match="holds the records of a run on this disk"):
            opened(MemoryObjectStore(), tmp_path)
        with closing(SqliteStore(tmp_path / "index.sqlite")) as store:
            assert list(store.scan()) == [record(1)]

    def test_a_reader_may_share_the_index_of_a_writer(self, tmp_path: Path) -> None:
        objects = MemoryObjectStore()
        with closing(opened(objects, tmp_path)) as store:
            fill(store, 3)
            for n in range(10, 20):
                store.append_many([(record(n), vector(n))])
                store.flush()
                assert from_segments(objects, tmp_path, "index") == told(store)


class Died(BaseException):
    """Killed in the middle."""


class TestDiscarding:
    """An index that is of no use, with a log beside it that SQLite has not taken in yet."""

    @pytest.fixture
    def old(self, tmp_path: Path) -> Path:
        """An index of another run, as a kill leaves it."""
        other, index = MemoryObjectStore(), tmp_path / "index.sqlite"
        (tmp_path / "live").mkdir()
        with closing(opened(other, tmp_path / "live")) as store:
            fill(store, 5)
            for file in (tmp_path / "live").iterdir():
                shutil.copy(file, tmp_path)
        assert index.with_name("index.sqlite-wal").stat().st_size > 0
        return index

    @pytest.mark.parametrize("step", range(9))
    def test_dies_anywhere_and_nothing_of_it_is_ever_read_again(
        self, tmp_path: Path, old: Path, monkeypatch: pytest.MonkeyPatch, step: int
    ) -> None:
        left = step

        def mortal(call: Callable[..., Any]) -> Callable[..., Any]:
            def called(*arguments: Any, **options: Any) -> Any:
                nonlocal left
                if left == 0:
                    raise Died
                left -= 1
                return call(*arguments, **options)

            return called

        with monkeypatch.context() as patch, suppress(Died):
            for name in ("unlink", "replace", "rename", "truncate", "fsync"):
                patch.setattr(os, name, mortal(getattr(os, name)))
            discard(old)
        log = old.with_name("index.sqlite-wal")
        if not old.exists():  # else whatever gets the name next would have it played in
            assert not log.exists()
        objects = MemoryObjectStore()
        with closing(opened(objects, tmp_path, "fresh")) as store:
            store.append_many([(record(30), None)])
            truth = told(store)
        if step and old.exists() and old.stat().st_size == 0:  # what SQLite itself makes of it
            shutil.copytree(tmp_path, tmp_path / "copy", ignore=shutil.ignore_patterns("live"))
            with closing(sqlite3.connect(tmp_path / "copy" / old.name)) as db:
                assert db.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
        assert from_segments(objects, tmp_path, "index")[0] == truth[0]

    def test_of_one_that_another_has_just_begun_does_not_happen(self, tmp_path: Path) -> None:
        """A reader looks at the index of a writer that has not noted yet where it stands."""
        objects = MemoryObjectStore()
        with closing(opened(objects, tmp_path)) as store:
            store.append_many([(record(1), None)])
        begun = SqliteStore(tmp_path / "new.sqlite")
        number = (tmp_path / "new.sqlite").stat().st_ino
        with closing(begun), hold_lock(tmp_path):
            reader = threading.Thread(target=catch_up, args=(objects, tmp_path / "new.sqlite"))
            reader.start()
            mark(begun, Position())
        reader.join(30.0)
        assert (tmp_path / "new.sqlite").stat().st_ino == number
        assert from_segments(objects, tmp_path, "new")[0] == [record_line(record(1))]


class TestSegments:
    def test_hold_at_most_64_records(self, tmp_path: Path) -> None:
        objects = MemoryObjectStore()
        with closing(opened(objects, tmp_path)) as store:
            new = store.append_many([(record(n % 150), None) for n in range(300)])
            assert new == [True] * 150 + [False] * 150
        segments = [segment for _, segment in read_on(objects, Position())]
        sizes = [sum(isinstance(e, Measured) for e in segment.entries) for segment in segments]
        assert [n for n in sizes if n] == [64, 64, 22]

    def test_are_written_by_themselves_when_a_record_is_old(self, tmp_path: Path) -> None:
        written = threading.Event()

        class Watched(MemoryObjectStore):
            def create(self, path: str, data: bytes) -> bool:
                made = super().create(path, data)
                if path == path_of(2):
                    written.set()
                return made

        with closing(opened(Watched(), tmp_path, oldest_s=0.01)) as store:
            store.append_many([(record(1), None)])
            assert written.wait(20.0)

    def test_a_record_is_in_the_index_only_when_it_is_durable(self, tmp_path: Path) -> None:
        """Who tells others of it, such as the tracker, reads it there."""
        objects = MemoryObjectStore()
        with (
            closing(opened(objects, tmp_path)) as store,
            closing(SqliteStore(tmp_path / "index.sqlite", read_only=True)) as index,
        ):
            store.append_many([(record(1), None)])
            assert list(store.scan()) == [record(1)]
            assert not index.has(record(1).trial.key)
            store.flush()
            assert index.has(record(1).trial.key)
            assert not index.has(record(2).trial.key)

    def test_number_the_records_of_an_index_in_their_order_whoever_fills_it(
        self, tmp_path: Path
    ) -> None:
        objects = MemoryObjectStore()
        with closing(opened(objects, tmp_path)) as store:
            for n in range(30):
                store.append_many([(record(n * 7 % 30), None)])
                if n % 4 == 0:
                    store.flush()
                if n % 10 == 0:
                    catch_up(objects, tmp_path / "index.sqlite")
                    catch_up(objects, tmp_path / "new.sqlite")
            store.flush()
        catch_up(objects, tmp_path / "new.sqlite")
        expected = [(n + 1, record(n * 7 % 30)) for n in range(30)]
        for name in ("index", "new"):
            with closing(SqliteStore(tmp_path / f"{name}.sqlite", read_only=True)) as index:
                assert index.after(0, 100) == expected

    def test_tracking_entries_are_on_every_machine(self, tmp_path: Path) -> None:
        objects = MemoryObjectStore()
        with closing(opened(objects, tmp_path)) as store:
            store.append_many([(record(1), None)])
            store.put(TrackingEntries(["said"]))
            store.flush()
        catch_up(objects, tmp_path / "new.sqlite")
        with closing(SqliteStore(tmp_path / "new.sqlite", read_only=True)) as index:
            assert index.entries_after(0, 9) == [(1, 1, "said")]

    def test_heartbeats_go_with_others_and_are_seen_at_once(self, tmp_path: Path) -> None:
        objects = MemoryObjectStore()
        with closing(opened(objects, tmp_path)) as store:
            session = begin_session(store, 1.0)
            before = last_number(objects)
            for n in range(2, 9):
                store.put(
                    SessionAlive(session, float(n), {"runner": {"busy": 1.0}} if n == 3 else None)
                )
            assert elapsed_s(store.sessions()) == 7.0
            assert store.sessions()[0].utilisation == {"runner": {"busy": 1.0}}
            assert last_number(objects) == before
            store.append_many([(record(1), None)])
            store.flush()
            assert last_number(objects) == before + 1
            assert from_segments(objects, tmp_path) == told(store)


class TestWriters:
    def test_a_second_one_is_refused_while_the_first_lives(self, tmp_path: Path) -> None:
        objects = MemoryObjectStore()

        with closing(
            opened(objects, tmp_path, "a", lease=Lease(objects, patience_s=0.03))
        ) as first:
            with pytest.raises(TunerError, match=f"in use by process {os.getpid()}"):
                opened(objects, tmp_path, "b", lease=Lease(objects, patience_s=20.0))
            assert first.append_many([(record(1), None)])
        with closing(opened(objects, tmp_path, "b")) as second:
            assert list(second.scan()) == [record(1)]

    def test_one_that_was_replaced_adds_nothing_and_is_told(self, tmp_path: Path) -> None:
        objects = MemoryObjectStore()
        with closing(opened(objects, tmp_path, "old")) as old:
            old.append_many([(record(1), None)])
            old.flush()
            old.append_many([(record(2), None)])
            with closing(opened(objects, tmp_path, "new")) as new:
                new.append_many([(record(3), None)])
                new.flush()
                with pytest.raises(LeaseLost, match="has taken over this run"):
                    old.flush()
                for call in (
                    old.flush,
                    lambda: old.append_many([(record(4), None)]),
                    lambda: list(old.scan()),
                ):
                    with pytest.raises(LeaseLost):
                        call()
                assert list(new.scan()) == [record(1), record(3)]
        assert from_segments(objects, tmp_path)[0] == [record_line(record(n)) for n in (1, 3)]

    def test_a_late_segment_before_the_seal_counts_for_both(self, tmp_path: Path) -> None:
        """The old writer wakes up between the new one's reading and its seal."""
        both = MemoryObjectStore()
        old = opened(both, tmp_path, "old")
        old.append_many([(record(1), None)])
        late: list[str] = []

        class Late(MemoryObjectStore):
            objects = both.objects

            def __init__(self) -> None:
                self._lock = both._lock

            def create(self, path: str, data: bytes) -> bool:
                if path == path_of(2) and not late:
                    late.append(path)
                    old.flush()
                return super().create(path, data)

        with closing(opened(Late(), tmp_path, "new")) as new:
            assert list(new.scan()) == [record(1)]
            old.append_many([(record(2), None)])
            with pytest.raises(LeaseLost):
                old.close()
        epochs = [segment.epoch for _, segment in read_on(both, Position())]
        assert epochs == [1, 1, 2]

    def test_one_that_is_late_to_seal_is_refused(self, tmp_path: Path) -> None:
        objects = MemoryObjectStore()
        late = Presumed(objects)
        late.acquire()
        late.acquire = lambda: None  # type: ignore[method-assign]
        with closing(opened(objects, tmp_path, "newer")), pytest.raises(LeaseLost):
            opened(objects, tmp_path, "late", lease=late)

    def test_a_torn_last_segment_is_moved_aside_and_its_number_used(self, tmp_path: Path) -> None:
        objects = MemoryObjectStore()
        with closing(opened(objects, tmp_path)) as store:
            store.append_many([(record(1), None)])
            store.flush()
            store.append_many([(record(2), None)])
        torn = path_of(last_number(objects))
        objects.objects[torn] = objects.objects[torn][:-9]
        assert from_segments(objects, tmp_path)[0] == [record_line(record(1))]
        with closing(opened(objects, tmp_path)) as store:
            assert list(store.scan()) == [record(1)]
            assert store.append_many([(record(2), None)])[0]
        assert len(objects.list("damaged/")) == 1
        assert len(from_segments(objects, tmp_path)[0]) == 2  # type: ignore[arg-type]

    def test_what_a_newer_writer_put_in_its_place_stays(self, tmp_path: Path) -> None:
        """One that stalls before it removes a torn segment must not remove a seal."""

        class Overtaken(MemoryObjectStore):
            def create(self, path: str, data: bytes) -> bool:
                if path.startswith("damaged/") and not self.list("damaged/"):
                    MemoryObjectStore.create(self, path, data)
                    with closing(opened(self, tmp_path, "newer")) as newer:
                        newer.append_many([(record(2), None)])
                return super().create(path, data)

        objects = Overtaken()
        objects.objects[path_of(1)] = b"torn"
        with pytest.raises(LeaseLost):
            opened(objects, tmp_path, "late")
        assert from_segments(objects, tmp_path)[0] == [record_line(record(2))]

    def test_what_else_is_there_is_refused(self, tmp_path: Path) -> None:
        objects = MemoryObjectStore()
        objects.objects[path_of(1)] = encode(Segment(1, 5, ""))
        with pytest.raises(LeaseLost):
            opened(objects, tmp_path)


class Killed(Exception):
    """The process is no more."""


class Mortal(MemoryObjectStore):
    """An object store whose user dies at the `left`-th change, before or after it took effect."""

    def __init__(self, left: float, *, after: bool) -> None:
        super().__init__()
        self._left, self._after = left, after

    def _change(self, path: str, change: Callable[[], Any]) -> Any:
        if self._left <= 0:
            raise Killed
        self._left -= 1
        if self._left > 0:
            return change()
        if self._after:
            change()
        raise Killed

    def create(self, path: str, data: bytes) -> bool:
        made: bool = self._change(path, lambda: MemoryObjectStore.create(self, path, data))
        return made

    def replace(self, path: str, data: bytes) -> None:
        self._change(path, lambda: MemoryObjectStore.replace(self, path, data))

    def remove(self, path: str, data: bytes) -> bool:
        removed: bool = self._change(path, lambda: MemoryObjectStore.remove(self, path, data))
        return removed


class TestKills:
    @pytest.mark.parametrize("after", [False, True])
    @pytest.mark.parametrize("left", range(1, 12))
    def test_at_any_change_lose_nothing_that_was_durable(
        self, tmp_path: Path, left: int, after: bool
    ) -> None:
        objects = Mortal(left, after=after)
        durable = set[str]()
        with suppress(TunerError, Killed), closing(opened(objects, tmp_path)) as store:
            store.put(Tasks(TASKS))
            session = begin_session(store, 1.0)
            for n in range(12):
                store.append_many([(record(n), vector(n))])
                if n % 3 == 2:
                    store.flush()
                    durable |= {record_line(r) for r in store.scan()}
            store.put(SessionEnded(session, 2.0, "done"))
        objects._left = float("inf")
        with closing(opened(objects, tmp_path)) as store:
            found = [record_line(r) for r in store.scan()]
            assert durable <= set(found)
            assert found == [record_line(record(n)) for n in range(len(found))]
            # The same run goes on: each trial has its one record in the end.
            store.put(Tasks(TASKS))
            for n in range(12):
                store.append_many([(record(n), vector(n))])
            store.flush()
            before = told(store)
            assert len(list(store.scan())) == 12
        assert from_segments(objects, tmp_path) == before

    @settings(max_examples=40, deadline=None)
    @given(data=st.data())
    def test_again_and_again_leave_one_record_for_each_trial(
        self, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
    ) -> None:
        folder = tmp_path_factory.mktemp("kills")
        objects = Mortal(0, after=False)
        durable: dict[str, None] = {}
        for life in range(data.draw(st.integers(1, 4))):
            objects._left = data.draw(st.integers(1, 9))
            objects._after = data.draw(st.booleans())
            name = data.draw(st.sampled_from(["here", "there"]))
            with suppress(TunerError, Killed), closing(opened(objects, folder, name)) as store:
                begin_session(store, float(life))
                for n in data.draw(st.lists(st.integers(0, 20), max_size=12)):
                    if n == 20:
                        store.flush()
                        durable |= {record_line(r): None for r in store.scan()}
                    else:
                        store.append_many([(record(n), vector(n))])
        objects._left = float("inf")
        with closing(opened(objects, folder, data.draw(st.sampled_from(["here", "new"])))) as store:
            found = [record_line(r) for r in store.scan()]
            assert len(set(found)) == len(found)
            assert set(durable) <= set(found)
            assert from_segments(objects, folder) == told(store)


class Full(MemoryObjectStore):
    """There is space for the seal, and for nothing after it."""

    def create(self, path: str, data: bytes) -> bool:
        if path == path_of(2):
            raise TunerError("no space left")
        return super().create(path, data)


APPEND_FOR_EVER = """
import itertools, sys
from pathlib import Path
from tuner.candidate import Candidate, CandidateKind
from tuner.storage.objects.url import open_object_store
from tuner.record import Measurement, Record, Status, Trial
from tuner.storage.segments.store import SegmentStore
from tuner.storage.sqlite_store import SqliteStore
store = SegmentStore(open_object_store(sys.argv[1]), Path(sys.argv[2]), oldest_s=0.01)
index = SqliteStore(Path(sys.argv[2]), read_only=True)
waiting = []
for n in itertools.count():
    candidate = Candidate(CandidateKind.TRACE, f"[{n}]" + "x" * 5000, "space")
    record = Record(Trial("t", candidate), Measurement(Status.OK, (1.0,)))
    store.append_many([(record, None)])
    waiting.append(record.trial.key)
    while waiting and index.has(waiting[0]):
        print(waiting.pop(0).candidate_key, flush=True)
"""


def test_real_kills_lose_nothing_that_was_durable(tmp_path: Path) -> None:
    url = (tmp_path / "shared").as_uri()
    told: list[str] = []
    for cache in ("here", "here", "there"):
        index = tmp_path / f"{cache}.sqlite"
        with subprocess.Popen(
            [sys.executable, "-c", APPEND_FOR_EVER, url, str(index)],
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            told += [process.stdout.readline().strip() for _ in range(100)]
            process.send_signal(signal.SIGKILL)
            told += process.stdout.read().split()
    catch_up(open_object_store(url), tmp_path / "new.sqlite")
    with closing(SqliteStore(tmp_path / "new.sqlite", read_only=True)) as store:
        stored = [r.trial.candidate.key for r in store.scan()]
    assert set(told) <= set(stored)
    assert len(stored) == len(set(stored))


class Stalling(MemoryObjectStore):
    """An object store that does not answer one kind of request until it is told to go on."""

    def __init__(self, request: str) -> None:
        super().__init__()
        self._request = request
        self.armed, self.reached, self.goes_on = (threading.Event() for _ in range(3))

    def _stall(self, request: str) -> None:
        if self.armed.is_set() and request == self._request and not self.reached.is_set():
            self.reached.set()
            assert self.goes_on.wait(30.0)

    def read(self, paths: Sequence[str]) -> dict[str, bytes]:
        self._stall("look for a newer lease" if paths[0].startswith("lease/") else "")
        return super().read(paths)

    def replace(self, path: str, data: bytes) -> None:
        self._stall("renew the lease")
        super().replace(path, data)

    def create(self, path: str, data: bytes) -> bool:
        self._stall("add a segment")
        return super().create(path, data)


@pytest.mark.parametrize("request_", ["look for a newer lease", "renew the lease", "add a segment"])
class TestStalls:
    """A store that stalls in the middle of something, and the end of the store meanwhile."""

    def stalled(self, request: str, folder: Path) -> tuple[Stalling, SegmentStore]:
        """A store whose thread hangs in a request, with a record that is not durable."""
        objects = Stalling(request)
        renewing = Lease(objects, patience_s=0.03)
        store = opened(objects, folder, lease=renewing, answer_s=0.05)
        store.append_many([(record(1), None)])
        store.flush()
        objects.armed.set()
        if request == "add a segment":
            store.append_many([(record(2), None)])
            threading.Thread(target=suppressed(store.flush), daemon=True).start()
        assert objects.reached.wait(30.0)
        if request != "add a segment":
            store.append_many([(record(2), None)])
        return objects, store

    def holder(self, objects: Stalling) -> dict[str, Any]:
        raw: dict[str, Any] = json.loads(objects.objects["lease/00000001.json"])
        return raw

    def check(self, objects: Stalling, folder: Path) -> None:
        """Everybody can read the run, and the next writer goes on with it."""
        epochs = {segment.epoch for _, segment in read_on(objects, Position())}
        assert epochs == {1}
        assert objects.list("lease/") == ["lease/00000001.json"]
        assert self.holder(objects)["released"]
        with closing(opened(objects, folder, "next")) as store:
            store.append_many([(record(2), None)])
            store.flush()
            assert list(store.scan()) == [record(1), record(2)]
        assert len(from_segments(objects, folder)[0]) == 2  # type: ignore[arg-type]

    def test_that_outlast_it_leave_the_run_readable(self, tmp_path: Path, request_: str) -> None:
        objects, store = self.stalled(request_, tmp_path)
        with pytest.raises(TunerError, match="does not answer"):
            store.close()
        assert not self.holder(objects)["released"]  # its writer lives
        objects.goes_on.set()
        store._writer._thread.join(30.0)
        self.check(objects, tmp_path)

    def test_that_end_in_time_lose_nothing(self, tmp_path: Path, request_: str) -> None:
        objects, store = self.stalled(request_, tmp_path)
        store._writer._wait_s = 30.0
        closed = threading.Thread(target=store.close)
        closed.start()
        objects.goes_on.set()
        closed.join(30.0)
        assert len(from_segments(objects, tmp_path, "reader")[0]) == 2  # type: ignore[arg-type]
        self.check(objects, tmp_path)


def suppressed(call: Callable[[], object]) -> Callable[[], None]:
    def quietly() -> None:
        with suppress(TunerError):
            call()

    return quietly


class TestTrouble:
    def test_that_passes_is_not_noticed(self, tmp_path: Path) -> None:
        class Shaky(MemoryObjectStore):
            failures = 2

            def create(self, path: str, data: bytes) -> bool:
                if path == path_of(3) and self.failures:
                    self.failures -= 1
                    raise TunerError("no answer")
                return super().create(path, data)

        objects = Shaky()
        with closing(opened(objects, tmp_path, patience_s=20.0)) as store:
            fill(store, 3)
            assert objects.failures == 0
            assert from_segments(objects, tmp_path) == told(store)

    def test_that_stays_is_raised_by_whatever_comes_next(self, tmp_path: Path) -> None:
        store = opened(Full(), tmp_path)
        store.append_many([(record(1), None)])
        for call in (
            store.flush,
            lambda: store.append_many([(record(2), None)]),
            lambda: store.put(SessionAlive(1, 1.0)),
        ):
            with pytest.raises(TunerError, match="no space left"):
                call()
        store.close()  # it was told

    def test_that_nobody_was_told_of_is_raised_in_the_end(self, tmp_path: Path) -> None:
        store = opened(Full(), tmp_path)
        store.append_many([(record(1), None)])
        with pytest.raises(TunerError, match="no space left"):
            store.close()
        store.close()

    def test_a_bug_in_the_thread_reaches_who_waits_for_it(self, tmp_path: Path) -> None:
        objects = Mortal(float("inf"), after=False)
        store = opened(objects, tmp_path)
        store.append_many([(record(1), None)])
        objects._left = 0
        with pytest.raises(TunerError, match="memory: Killed"):
            store.flush()
        objects._left = float("inf")
        store.close()

    def test_features_that_are_no_vector_change_nothing(self, tmp_path: Path) -> None:
        with closing(opened(MemoryObjectStore(), tmp_path)) as store:
            items = [(record(1), None), (record(2), np.zeros((2, 2), np.float32))]
            with pytest.raises(ValueError, match="2-dimensional"):
                store.append_many(items)
            assert list(store.scan()) == []
