"""A sink that fails as it is told, and a run that is pushed to it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from tuner.storage.base import begin_session
from tuner.storage.facts import Tasks, TrackingEntries
from tuner.storage.sqlite_store import SqliteStore
from tuner.task import Task
from tuner.tracking.drain import RunDrain
from tuner.tracking.entries import (
    Entry,
    Kept,
    Metrics,
    Start,
    TaskEntry,
    TrackingPaths,
    decode,
    encode,
)
from tuner.tracking.progress import load_progress
from tuner.tracking.sink import Gone, Refused, Unavailable

TASKS = (
    Task("aa", "conv", "{}", "llvm", weight=3, flops=2e6),
    Task("bb", "dense", "{}", "llvm"),
)


class FakeSink:
    """Takes entries; fails as it is told, one word for each call."""

    def __init__(self, moods: Sequence[str] = ()) -> None:
        self.moods = list(moods)
        self.taken: list[Entry] = []
        self.files: list[str] = []
        self.bad: Entry | None = None
        self.known: set[str] = set()
        self.forgotten = 0

    def push(self, said: Sequence[Entry]) -> None:
        mood = self.moods.pop(0) if self.moods else "good"
        if mood == "down":
            raise Unavailable("down")
        if mood == "gone":
            raise Gone("gone")
        if self.bad in said:
            raise Refused("bad")
        for entry in said:
            self._take(entry)
        if mood == "silent":  # took it, but the answer got lost
            raise Unavailable("no answer")

    def _take(self, entry: Entry) -> None:
        """As MLflow: what is of no known run is refused."""
        if isinstance(entry, Start):
            self.known.add("")
        if "" not in self.known:
            raise Refused("no run was announced")
        if isinstance(entry, TaskEntry):
            self.known.add(entry.task)
        if isinstance(entry, Metrics) and (entry.task or "") not in self.known:
            raise Refused(f"task {entry.task} was never announced")
        self.taken.append(entry)

    def upload(self, name: str, path: Path) -> None:
        assert path.is_file()
        self.files.append(name)

    def knows(self, task: str) -> bool:
        return task in self.known

    def set_timeout(self, timeout_s: int) -> None:
        assert 0 < timeout_s <= 60

    def forget(self) -> None:
        self.forgotten += 1
        self.taken.clear()
        self.files.clear()
        self.known.clear()

    def abandon(self, time_s: float) -> None:
        pass


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def open_store(run_dir: Path, tasks: Sequence[Task] = TASKS) -> SqliteStore:
    """The store of a session that is at work on a run."""
    run_dir.mkdir(exist_ok=True)
    store = SqliteStore(TrackingPaths(run_dir).store)
    store.put(Tasks(tasks))
    if not store.sessions():
        begin_session(store, 1000.0)
    return store


def say(run_dir: Path, entries: Sequence[Kept], tasks: Sequence[Task] = TASKS) -> None:
    """Put entries into the store of a run."""
    with closing(open_store(run_dir, tasks)) as store:
        store.put(TrackingEntries(list(map(encode, entries))))


def entries_of(run_dir: Path) -> list[Kept]:
    """The entries that are in the store of a run."""
    with closing(SqliteStore(TrackingPaths(run_dir).store)) as store:
        entries = map(decode, store.get(TrackingEntries).texts)
        return [entry for entry in entries if entry is not None]


def start_drain(run_dir: Path, sink: FakeSink, clock: Clock, *, over: bool = False) -> RunDrain:
    """A tracker that begins, of a session that is over or not."""
    paths = TrackingPaths(run_dir)
    drain = RunDrain(paths, sink, load_progress(paths, "here"), clock=clock)
    if over:
        drain.wind_up()
    return drain


def push_all(run_dir: Path, sink: FakeSink) -> RunDrain:
    clock = Clock()
    drain = start_drain(run_dir, sink, clock, over=True)
    for _ in range(1000):
        if not drain.step():
            if drain.drained():
                return drain
            clock.now += 60.0
    raise AssertionError("not drained")
