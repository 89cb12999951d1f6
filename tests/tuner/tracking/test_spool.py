from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tuner.tracking.fake_sink import Clock, FakeSink, push_all, start_drain
from tuner.tracking.cursor import Progress, load_progress
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
    decode,
    encode,
    read_lines,
)

names = st.text(max_size=8)
floats = st.floats(allow_nan=False, allow_infinity=False)
entries = st.one_of(
    st.builds(Start, names, names, st.dictionaries(names, names), st.just({}), floats),
    st.builds(TaskEntry, names, names, st.dictionaries(names, names)),
    st.builds(
        Metrics, st.none() | names, st.integers(0, 10**9), st.dictionaries(names, floats), floats
    ),
    st.builds(Artifact, names),
    st.builds(End, st.sampled_from(["FINISHED", "KILLED", "FAILED"]), floats),
)


def point(step: int, **values: float) -> Metrics:
    return Metrics("t", step, values or {"x": float(step)}, 1000.0 + step)


def write(path: Path, said: Sequence[Entry]) -> None:
    file = LineFile(path)
    assert file.append(b"".join(encode(e) for e in said))
    file.close()


class TestLines:
    @given(entries)
    def test_what_was_said_is_what_is_read(self, entry: Entry) -> None:
        line = encode(entry)
        assert line.count(b"\n") == 1
        assert decode(line) == entry

    def test_values_that_are_not_finite_are_left_out(self) -> None:
        line = encode(point(1, a=float("inf"), b=float("nan"), c=2.0))
        assert decode(line) == point(1, c=2.0)

    @pytest.mark.parametrize("line", [b"{", b"[]", b"3", b'{"kind":"x"}', b'{"kind":"metrics"}'])
    def test_other_lines_are_refused(self, line: bytes) -> None:
        with pytest.raises(ValueError, match=r".+"):
            decode(line)


class TestFile:
    def test_a_torn_last_line_waits_for_its_end(self, tmp_path: Path) -> None:
        path = tmp_path / "spool.jsonl"
        path.write_bytes(encode(point(1)) + encode(point(2))[:-5])
        assert [line.entry for line in read_lines(path)] == [point(1)]

    def test_a_torn_last_line_is_cut_off_when_writing_goes_on(self, tmp_path: Path) -> None:
        path = tmp_path / "spool.jsonl"
        path.write_bytes(encode(point(1)) + encode(point(2))[:-5])
        write(path, [point(3)])
        assert [line.entry for line in read_lines(path)] == [point(1), point(3)]

    def test_a_long_torn_line_is_cut_off_whole(self, tmp_path: Path) -> None:
        path = tmp_path / "spool.jsonl"
        path.write_bytes(encode(point(1)) + b"x" * 200_000)
        write(path, [point(2)])
        assert [line.entry for line in read_lines(path)] == [point(1), point(2)]

    def test_a_broken_line_is_skipped(self, tmp_path: Path) -> None:
        path = tmp_path / "spool.jsonl"
        path.write_bytes(encode(point(1)) + b"\0\0\0\n" + encode(point(2)))
        assert [line.entry for line in read_lines(path)] == [point(1), None, point(2)]

    def test_a_full_disk_loses_the_append_and_nothing_else(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "spool.jsonl"
        file = LineFile(path)
        assert file.append(encode(point(1)))
        whole_write = os.write
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", lambda fd, data: whole_write(fd, data[: len(data) // 2]))
            assert not file.append(encode(point(2)))
        assert file.append(encode(point(3)))
        file.close()
        assert [line.entry for line in read_lines(path)] == [point(1), point(3)]


def steps_once(said: Sequence[Entry]) -> list[int]:
    """Steps in the order in which they came first."""
    return list(dict.fromkeys(e.step for e in said if isinstance(e, Metrics)))


class TestDrain:
    def test_entries_arrive_in_order_and_files_apart(self, tmp_path: Path) -> None:
        said = [point(1), Artifact("a"), point(2), Artifact("b"), End("FINISHED", 1.0)]
        write(TrackingPaths(tmp_path).spool, said)
        sink = FakeSink()
        progress = push_all(tmp_path, sink).progress
        assert sink.taken == [point(1), point(2), End("FINISHED", 1.0)]
        assert sink.files == [Artifact("a"), Artifact("b")]
        assert (progress.data.pushed, progress.artifacts.pushed) == (3, 2)

    @settings(max_examples=50, deadline=None)
    @given(
        sizes=st.lists(st.integers(0, 700), max_size=4),
        moods=st.lists(st.sampled_from(["good", "down", "silent"]), max_size=12),
        life=st.integers(1, 4),
    )
    def test_nothing_is_lost_whatever_fails_and_whoever_dies(
        self,
        tmp_path_factory: pytest.TempPathFactory,
        sizes: list[int],
        moods: list[str],
        life: int,
    ) -> None:
        run_dir = tmp_path_factory.mktemp("run")
        sink, clock = FakeSink(moods), Clock()
        said: list[Entry] = []
        for size in sizes:
            more = [point(len(said) + i) for i in range(size)]
            write(TrackingPaths(run_dir).spool, more)
            said += more
            drain = start_drain(run_dir, sink, clock)  # the one before was killed
            for _ in range(life):
                drain.step()
                clock.now += 60.0
        push_all(run_dir, sink)
        assert steps_once(sink.taken) == list(range(len(said)))

    def test_a_failure_is_retried_after_a_pause_that_grows(self, tmp_path: Path) -> None:
        write(TrackingPaths(tmp_path).spool, [point(1)])
        sink, clock = FakeSink(["down"] * 20), Clock()
        drain = start_drain(tmp_path, sink, clock)
        tries = []
        while len(tries) < 8:
            before = len(sink.moods)
            drain.step()
            if len(sink.moods) < before:
                tries.append(clock.now)
            clock.now += 1.0
        pauses = [b - a for a, b in itertools.pairwise(tries)]
        assert pauses == [1, 2, 4, 8, 16, 30, 30]
        assert drain.progress.error == "down"

    def test_a_refused_entry_is_left_out_and_counted(self, tmp_path: Path) -> None:
        said = [point(i) for i in range(300)]
        write(TrackingPaths(tmp_path).spool, said)
        sink = FakeSink()
        sink.bad = said[137]
        progress = push_all(tmp_path, sink).progress
        assert sink.taken == said[:137] + said[138:]
        assert (progress.data.pushed, progress.data.dropped) == (299, 1)

    def test_a_broken_line_is_passed_and_counted(self, tmp_path: Path) -> None:
        path = TrackingPaths(tmp_path).spool
        path.parent.mkdir()
        path.write_bytes(encode(point(1)) + b"?\n")
        progress = push_all(tmp_path, FakeSink()).progress
        assert (progress.data.pushed, progress.data.dropped) == (1, 1)

    def test_runs_deleted_over_there_are_pushed_again_once(self, tmp_path: Path) -> None:
        said = [point(i) for i in range(300)]
        write(TrackingPaths(tmp_path).spool, said)
        sink = FakeSink(["good", "gone"])
        push_all(tmp_path, sink)
        assert sink.forgotten == 1
        assert sink.taken == said


class TestProgress:
    def test_another_server_gets_everything(self, tmp_path: Path) -> None:
        write(TrackingPaths(tmp_path).spool, [point(1)])
        push_all(tmp_path, FakeSink())
        paths = TrackingPaths(tmp_path)
        assert load_progress(paths, "here").data.pushed == 1
        assert load_progress(paths, "elsewhere") == Progress("elsewhere")

    def test_an_offset_into_another_spool_is_not_trusted(self, tmp_path: Path) -> None:
        paths = TrackingPaths(tmp_path)
        write(paths.spool, [point(i) for i in range(10)])
        push_all(tmp_path, FakeSink())
        paths.spool.unlink()  # a machine lost its power, and the end of the spool with it
        write(paths.spool, [point(i) for i in range(100, 110)])
        assert count_pending(paths, load_progress(paths, "here")) == 10
        sink = FakeSink()
        push_all(tmp_path, sink)
        assert sink.taken == [point(i) for i in range(100, 110)]

    @pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"target": "here"}'])
    def test_a_spoilt_offset_file_means_from_the_start(
        self, tmp_path: Path, content: bytes
    ) -> None:
        paths = TrackingPaths(tmp_path)
        write(paths.spool, [point(1)])
        paths.offset.write_bytes(content)
        assert load_progress(paths, "here") == Progress("here")

    def test_pending_counts_each_entry_once(self, tmp_path: Path) -> None:
        paths = TrackingPaths(tmp_path)
        write(paths.spool, [point(1), Artifact("a"), point(2)])
        assert count_pending(paths, Progress("here")) == 3
        done = push_all(tmp_path, FakeSink()).progress
        write(paths.spool, [Artifact("b"), point(3)])
        assert count_pending(paths, done) == 2
