"""Entries as the texts that a store keeps, and how far a tracker has come with them."""

from __future__ import annotations

import itertools
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
    entries_of,
    open_store,
    push_all,
    say,
    start_drain,
)
from tuner.storage.facts import TrackingEntries
from tuner.tracking.drain import count_pending
from tuner.tracking.entries import (
    End,
    Entry,
    Kept,
    Metrics,
    Start,
    TaskEntry,
    TrackingPaths,
    decode,
    encode,
)
from tuner.tracking.observer import TrackingObserver
from tuner.tracking.progress import Progress, load_progress
from tuner.tracking.sink import Unavailable

names = st.text(max_size=8)
floats = st.floats(allow_nan=False, allow_infinity=False)
entries = st.one_of(
    st.builds(Start, names, names, st.dictionaries(names, names), st.just({}), floats),
    st.builds(
        Metrics, st.none() | names, st.integers(0, 10**9), st.dictionaries(names, floats), floats
    ),
    st.builds(End, st.sampled_from(["FINISHED", "KILLED", "FAILED"]), floats),
)
START = Start("u1", "demo", {}, {}, 1000.0)
END = End("FINISHED", 9000.0)


def point(step: int, **values: float) -> Metrics:
    return Metrics("aa", step, values or {"x": float(step)}, 1000.0 + step)


class TestTexts:
    @given(entries)
    def test_what_was_said_is_what_is_read(self, entry: Kept) -> None:
        text = encode(entry)
        assert "\n" not in text
        assert decode(text) == entry

    def test_values_that_are_not_finite_are_left_out(self) -> None:
        text = encode(point(1, a=float("inf"), b=float("nan"), c=2.0))
        assert decode(text) == point(1, c=2.0)

    @pytest.mark.parametrize("text", ["{", "[]", "3", '{"kind":"x"}', '{"kind":"metrics"}'])
    def test_those_of_another_tuner_are_none(self, text: str) -> None:
        assert decode(text) is None

    def test_an_entry_that_comes_again_is_there_once(self, tmp_path: Path) -> None:
        """As where a process that was killed writes a stretch of a run once more."""
        say(tmp_path, [START, point(1)])
        say(tmp_path, [point(1), point(2)])
        assert entries_of(tmp_path) == [START, point(1), point(2)]

    def test_a_store_that_has_no_place_for_them_has_none(self, tmp_path: Path) -> None:
        say(tmp_path, [])
        with closing(open_store(tmp_path)) as store:
            store._db.execute("DROP TABLE tracking_entry")
            assert (store.last_entry(), store.entries_after(0, 9)) == (0, [])


def steps_once(said: Sequence[Entry]) -> list[int]:
    """Steps in the order in which they came first."""
    return list(dict.fromkeys(e.step for e in said if isinstance(e, Metrics)))


class TestDrain:
    def test_entries_arrive_in_order_and_files_apart(self, tmp_path: Path) -> None:
        say(tmp_path, [START, point(1), point(2), END])
        files = TrackingPaths(tmp_path).files
        (files / "deep").mkdir(parents=True)
        for name in ("a", "deep/b", ".a.tmp"):
            (files / name).write_text("content")
        sink = FakeSink()
        progress = push_all(tmp_path, sink).progress
        tasks = [entry for entry in sink.taken if isinstance(entry, TaskEntry)]
        assert sink.taken == [START, *tasks, point(1), point(2), END]
        assert [entry.task for entry in tasks] == [task.key for task in TASKS]
        assert sink.files == ["a", "deep/b"]
        assert progress.pushed == 4 + 2 + 2

    def test_a_file_goes_again_when_it_was_written_again(self, tmp_path: Path) -> None:
        say(tmp_path, [START])
        report = tmp_path / "report.html"
        sink = FakeSink()
        for content in ("first", "first", "second"):
            if not report.exists() or report.read_text() != content:
                report.unlink(missing_ok=True)
                report.write_text(content)
            push_all(tmp_path, sink)
        assert sink.files == ["report.html"] * 2

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
        say(run_dir, [START])
        said: list[Kept] = []
        for size in sizes:
            more = [point(len(said) + i) for i in range(size)]
            say(run_dir, more)
            said += more
            drain = start_drain(run_dir, sink, clock, over=True)  # the one before was killed
            for _ in range(life):
                drain.step()
                clock.now += 60.0
        push_all(run_dir, sink)
        assert steps_once(sink.taken) == list(range(len(said)))

    def test_a_failure_is_retried_after_a_pause_that_grows(self, tmp_path: Path) -> None:
        say(tmp_path, [START])
        sink, clock = FakeSink(["down"] * 20), Clock()
        drain = start_drain(tmp_path, sink, clock, over=True)
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
        say(tmp_path, [START, *said])
        sink = FakeSink()
        sink.bad = said[137]
        progress = push_all(tmp_path, sink).progress
        assert sink.taken[3:] == said[:137] + said[138:]
        assert (progress.pushed, progress.dropped) == (3 + 299, 1)

    def test_what_another_tuner_said_is_passed_and_counted(self, tmp_path: Path) -> None:
        say(tmp_path, [START, point(1)])
        with closing(open_store(tmp_path)) as store:
            store.put(TrackingEntries(['{"kind":"new"}']))
            observer = TrackingObserver(TrackingPaths(tmp_path), store, name="demo", params={})
            observer.on_start(TASKS)
        say(tmp_path, [point(2)])
        sink = FakeSink()
        progress = push_all(tmp_path, sink).progress
        assert steps_once(sink.taken) == [1, 2]
        assert progress.dropped == 1
        starts = [entry for entry in sink.taken if isinstance(entry, Start)]
        assert [start.uuid for start in starts] == ["u1", "u1"]

    def test_a_refused_announcement_costs_nothing_else(self, tmp_path: Path) -> None:
        say(tmp_path, [START, point(1)])
        again = Start("u1", "demo", {}, {}, 2000.0)
        say(tmp_path, [again, point(2)])
        sink = FakeSink()
        sink.bad = again
        progress = push_all(tmp_path, sink).progress
        assert steps_once(sink.taken) == [1, 2]
        assert progress.dropped == 1

    def test_while_no_run_can_be_made_it_is_tried_again_after_a_pause(self, tmp_path: Path) -> None:
        say(tmp_path, [START, point(1)])
        sink, clock = FakeSink(), Clock()
        sink.bad = START
        drain = start_drain(tmp_path, sink, clock, over=True)
        for _ in range(50):
            assert not drain.step()
        assert (drain.progress.dropped, drain.progress.error) == (0, "bad")
        sink.bad = None
        push_all(tmp_path, sink)
        assert steps_once(sink.taken) == [1]

    def test_a_file_that_is_not_taken_does_not_hold_up_the_others(self, tmp_path: Path) -> None:
        class Small(FakeSink):
            def upload(self, name: str, path: Path) -> None:
                if name == "a":
                    raise Unavailable("too large")
                super().upload(name, path)

        say(tmp_path, [START])
        files = TrackingPaths(tmp_path).files
        files.mkdir(parents=True)
        for name in ("a", "b", "c"):
            (files / name).write_text("content")
        sink, clock = Small(), Clock()
        drain = start_drain(tmp_path, sink, clock, over=True)
        for _ in range(20):
            drain.step()
            clock.now += 60.0
        assert sink.files == ["b", "c"]
        assert not drain.drained()

    def test_runs_deleted_over_there_are_pushed_again_once(self, tmp_path: Path) -> None:
        said = [point(i) for i in range(300)]
        say(tmp_path, [START, *said])
        sink = FakeSink(["good", "gone"])
        push_all(tmp_path, sink)
        assert sink.forgotten == 1
        assert sink.taken[3:] == said

    def test_a_run_whose_ids_were_lost_is_pushed_again(self, tmp_path: Path) -> None:
        say(tmp_path, [START, point(1)])
        push_all(tmp_path, FakeSink())
        say(tmp_path, [point(2)])
        sink = FakeSink()  # which knows of nothing
        push_all(tmp_path, sink)
        assert (sink.taken[0], steps_once(sink.taken)) == (START, [1, 2])


class TestProgress:
    def test_another_server_gets_everything(self, tmp_path: Path) -> None:
        say(tmp_path, [START, point(1)])
        push_all(tmp_path, FakeSink())
        paths = TrackingPaths(tmp_path)
        assert load_progress(paths, "here").pushed == 4
        assert load_progress(paths, "elsewhere") == Progress("elsewhere")

    def test_a_place_in_another_store_is_not_trusted(self, tmp_path: Path) -> None:
        paths = TrackingPaths(tmp_path)
        say(tmp_path, [START, *(point(i) for i in range(10))])
        push_all(tmp_path, FakeSink())
        paths.store.unlink()  # a machine lost its power, and the end of the store with it
        say(tmp_path, [START, *(point(i) for i in range(100, 110))])
        assert count_pending(paths, load_progress(paths, "here")) == 11
        sink = FakeSink()
        push_all(tmp_path, sink)
        assert sink.taken[3:] == [point(i) for i in range(100, 110)]

    @pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"target": "here"}'])
    def test_a_spoilt_file_means_from_the_start(self, tmp_path: Path, content: bytes) -> None:
        paths = TrackingPaths(tmp_path)
        paths.folder.mkdir()
        paths.progress.write_bytes(content)
        assert load_progress(paths, "here") == Progress("here")

    def test_pending_counts_each_entry_once(self, tmp_path: Path) -> None:
        paths = TrackingPaths(tmp_path)
        say(tmp_path, [START, point(1)])
        paths.files.mkdir(parents=True)
        (paths.files / "a").write_text("content")
        assert count_pending(paths, Progress("here")) == 3
        done = push_all(tmp_path, FakeSink()).progress
        say(tmp_path, [point(3)])
        (paths.files / "b").write_text("content")
        assert count_pending(paths, done) == 2

    def test_of_a_run_that_nobody_announced_nothing_is_pending(self, tmp_path: Path) -> None:
        say(tmp_path, [])
        assert count_pending(TrackingPaths(tmp_path), Progress("here")) == 0
