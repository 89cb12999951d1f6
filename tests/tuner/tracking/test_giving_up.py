"""When a tracker leaves the rest at its session's end: a server that is gone is not waited for."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from tests.tuner.tracking.fake_sink import Clock, FakeSink, say, start_drain
from tuner.tracking.entries import End, Start, TrackingPaths
from tuner.tracking.sink import Unavailable
from tuner.tracking.system_metrics import SystemSamples
from tuner.tracking.tracker_process import ParentWatch, follow


class Over:
    """A parent whose session is over; waiting for it moves the clock."""

    winding_up, orphan = True, False

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def wait(self, timeout_s: float) -> None:
        self._clock.now += timeout_s


class NoSamples:
    def tick(self, *, last: bool = False) -> None:
        pass


class NoFiles(FakeSink):
    """A server without its store of files."""

    def upload(self, name: str, path: Path) -> None:
        raise Unavailable("no credentials")


def gave_up(run_dir: Path, sink: FakeSink, *, patient: bool) -> bool:
    """Whether the tracker of a run that ended with a file gave up."""
    paths, clock = TrackingPaths(run_dir), Clock()
    paths.files.mkdir(parents=True)
    (paths.files / "file").write_text("kept")
    say(run_dir, [Start("u1", "demo", {}, {}, 0.0), End("FINISHED", 1.0)])
    run = start_drain(run_dir, sink, clock)
    watch, samples = cast("ParentWatch", Over(clock)), cast("SystemSamples", NoSamples())
    return follow(run, sink, watch, samples, patient=patient)


def ended(sink: FakeSink) -> bool:
    return any(isinstance(entry, End) for entry in sink.taken)


def test_a_server_that_fails_three_times_in_a_row_is_left(tmp_path: Path) -> None:
    sink = FakeSink(["down"] * 99)
    assert gave_up(tmp_path, sink, patient=False)
    assert len(sink.moods) > 90


def test_a_database_of_this_machine_is_waited_for(tmp_path: Path) -> None:
    sink = FakeSink(["down"] * 9)
    assert not gave_up(tmp_path, sink, patient=True)
    assert ended(sink)


@pytest.mark.parametrize("hiccups", [1, 2])
def test_a_hiccup_is_no_end(tmp_path: Path, hiccups: int) -> None:
    sink = FakeSink(["down"] * hiccups)
    assert not gave_up(tmp_path, sink, patient=False)
    assert ended(sink)


def test_one_that_takes_no_files_gets_all_else_a_hiccup_or_not(tmp_path: Path) -> None:
    sink = NoFiles(["down"])
    assert gave_up(tmp_path, sink, patient=False)
    assert ended(sink)
