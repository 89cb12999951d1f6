"""A sink that fails as it is told, and a run that is pushed to it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tuner.tracking.cursor import load_progress
from tuner.tracking.drain import RunDrain
from tuner.tracking.sink import Gone, Refused, Unavailable
from tuner.tracking.spool import Entry, Start, TaskEntry, TrackingPaths


class FakeSink:
    """Takes entries; fails as it is told, one word for each call."""

    def __init__(self, moods: Sequence[str] = ()) -> None:
        self.moods = list(moods)
        self.taken: list[Entry] = []
        self.files: list[Entry] = []
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
        self.taken.extend(said)
        self.known |= {e.task for e in said if isinstance(e, TaskEntry)}
        self.known |= {"" for e in said if isinstance(e, Start)}
        if mood == "silent":  # took it, but the answer got lost
            raise Unavailable("no answer")

    def upload(self, said: Sequence[Entry]) -> None:
        self.files.extend(said)

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


def start_drain(run_dir: Path, sink: FakeSink, clock: Clock) -> RunDrain:
    paths = TrackingPaths(run_dir)
    return RunDrain(paths, sink, load_progress(paths, "here"), clock=clock)


def push_all(run_dir: Path, sink: FakeSink) -> RunDrain:
    clock = Clock()
    drain = start_drain(run_dir, sink, clock)
    drain.wind_up()
    for _ in range(1000):
        if not drain.step():
            if drain.drained():
                return drain
            clock.now += 60.0
    raise AssertionError("not drained")
