"""What every record store does."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tuner.storage.objects.memory_objects import MemoryObjectStore
from tuner.arrays import Features
from tuner.candidate import Candidate, CandidateKind, of_knobs
from tuner.record import Measurement, Predicted, Provenance, Record, Status, Trial
from tuner.storage.base import RecordStore, begin_session, elapsed_s
from tuner.storage.facts import (
    Defaults,
    Fact,
    SessionAlive,
    SessionEnded,
    Sizes,
    Tasks,
    TrackingEntries,
)
from tuner.storage.history import Fit, History
from tuner.storage.segments.store import SegmentStore
from tuner.storage.sqlite_store import MemoryStore, SqliteStore
from tuner.storage.tallies import (
    SpaceTally,
    count_by_space,
    count_by_toolchain,
    count_statuses,
)
from tuner.task import Task
from tuner.utilisation import SlotSpan


class AlwaysWritten(SegmentStore):
    """A store of segments that waits for each of them: all answers come from its index."""

    def append_many(self, items: Sequence[tuple[Record, Features | None]]) -> list[bool]:
        new = super().append_many(items)
        self.flush()
        return new

    def put(self, *facts: Fact) -> None:
        super().put(*facts)
        self.flush()


OpenStore = Callable[[Path], RecordStore]

STORES: dict[str, OpenStore] = {
    "memory": lambda folder: MemoryStore(),
    "sqlite": lambda folder: SqliteStore(folder / "records.sqlite"),
    "segments": lambda folder: SegmentStore(MemoryObjectStore(), folder / "index.sqlite"),
    "written segments": lambda folder: AlwaysWritten(MemoryObjectStore(), folder / "index.sqlite"),
}


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RecordStore]:
    with closing(STORES[request.param](tmp_path)) as opened:
        yield opened


def candidate(n: int) -> Candidate:
    return Candidate(CandidateKind.TRACE, f"[{n}]", "space")


def timed(n: int, seconds: float, *, task: str = "t", rung: int = 0) -> Record:
    return Record(Trial(task, candidate(n), rung=rung), Measurement(Status.OK, (seconds,)))


def failed(n: int, status: Status, *, task: str = "t") -> Record:
    return Record(Trial(task, candidate(n)), Measurement(status, error="why"))


def task(key: str, **changes: object) -> Task:
    made = Task(key, f"name of {key}", "{}", '{"kind":"llvm"}', 2.0, 1e9, (((("n", 128),), 1.0),))
    return replace(made, **changes)  # type: ignore[arg-type]


class TestRecords:
    def test_come_back_in_the_order_they_were_appended(self, store: RecordStore) -> None:
        records = [timed(3, 3.0), timed(1, 1.0, task="u"), failed(2, Status.WRONG)]
        assert [store.append_many([(r, None)])[0] for r in records] == [True, True, True]
        assert list(store.scan()) == records

    def test_a_trial_has_one_record(self, store: RecordStore) -> None:
        first = timed(1, 1.0)
        store.append_many([(first, np.array([1.0], np.float32))])
        assert store.append_many([(timed(1, 0.5), np.array([2.0], np.float32))])[0] is False
        assert list(store.scan()) == [first]
        assert list(store.scan("t", fastest=9)) == [first]
        assert count_statuses(store.tallies()) == {"t": {Status.OK: 1}}
        assert store.features("t")[candidate(1).key].tolist() == [1.0]

    def test_a_written_setting_keeps_its_trace_for_each_task(self, store: RecordStore) -> None:
        setting = of_knobs({"rows": 6}, "kernel:a")
        for key in ("t", "u"):
            trial = Trial(key, replace(setting, trace=f"[[{key}],[]]"))
            store.append_many([(Record(trial, Measurement(Status.OK, (1.0,))), None)])
        store.append_many([(Record(Trial("t", setting, rung=1), Measurement(Status.LOST)), None)])
        assert [r.trial.candidate for r in store.scan()] == [setting] * 3
        traces = [r.trial.candidate.trace for r in store.scan() if not r.trial.rung]
        assert traces == ["[[t],[]]", "[[u],[]]"]
        assert [r.trial.candidate.trace for r in store.scan("u", fastest=1)] == ["[[u],[]]"]

    @pytest.mark.parametrize(
        "other",
        [
            Trial("u", candidate(1)),
            Trial("t", candidate(2)),
            Trial("t", candidate(1), instance=(("n", 1),)),
            Trial("t", candidate(1), rung=1),
        ],
    )
    def test_task_candidate_instance_and_rung_tell_trials_apart(
        self, store: RecordStore, other: Trial
    ) -> None:
        store.append_many([(timed(1, 1.0), None)])
        assert store.append_many([(Record(other, Measurement(Status.OK, (1.0,))), None)])[0]
        assert [r.trial for r in store.scan()] == [Trial("t", candidate(1)), other]

    def test_many_are_appended_like_one_after_the_other(self, store: RecordStore) -> None:
        items = [(timed(1, 1.0), None), (timed(2, 1.0), None), (timed(1, 2.0), None)]
        assert store.append_many(items) == [True, True, False]
        assert store.append_many(items[1:]) == [False, False]
        assert list(store.scan()) == [timed(1, 1.0), timed(2, 1.0)]

    def test_scan_filters(self, store: RecordStore) -> None:
        records = [timed(1, 1.0), timed(2, 2.0), timed(1, 1.1, rung=1), timed(1, 1.0, task="u")]
        for record in records:
            store.append_many([(record, None)])
        assert list(store.scan("t")) == records[:3]
        assert list(store.scan("t", min_rung=1)) == [records[2]]
        assert list(store.scan(candidate_key=candidate(1).key)) == [records[n] for n in (0, 2, 3)]
        assert list(store.scan("u", candidate_key=candidate(2).key)) == []

    def test_scan_sees_what_was_there_when_it_was_called(self, store: RecordStore) -> None:
        store.append_many([(timed(n, 1.0), None) for n in range(600)])
        scan = store.scan()
        for n, record in enumerate(scan):
            assert record == timed(n, 1.0)
            store.append_many([(timed(1000 + n, 1.0), None)])
        assert len(list(store.scan())) == 1200


class TestBest:
    def test_fastest_first_by_median(self, store: RecordStore) -> None:
        samples = [(9.0, 2.0, 2.0), (1.0, 3.0, 3.0), (1.0, 1.0, 8.0)]
        for n, seconds in enumerate(samples):
            store.append_many(
                [(Record(Trial("t", candidate(n)), Measurement(Status.OK, seconds)), None)]
            )
        assert [r.latency_s for r in store.scan("t", fastest=2)] == [1.0, 2.0]
        assert [r.latency_s for r in store.scan("t", fastest=9)] == [1.0, 2.0, 3.0]
        assert list(store.scan("t", fastest=0)) == []
        assert list(store.scan("unknown", fastest=1)) == []

    def test_equals_keep_their_order(self, store: RecordStore) -> None:
        for n in (5, 1, 4):
            store.append_many([(timed(n, 1.0), None)])
        assert list(store.scan("t", fastest=3)) == [timed(n, 1.0) for n in (5, 1, 4)]

    def test_only_valid_times_of_this_tasks_search_count(self, store: RecordStore) -> None:
        for n, status in enumerate(Status):
            store.append_many(
                [(Record(Trial("t", candidate(n)), Measurement(status, (2.0,))), None)]
            )
        store.append_many([(timed(50, 1.0, rung=1), None)])
        store.append_many([(timed(51, 1.0, task="u"), None)])
        store.append_many([(Record(Trial("t", candidate(52)), Measurement(Status.OK)), None)])
        for n, seconds in enumerate((math.nan, math.inf, -1.0, 0.0), start=60):
            store.append_many(
                [(Record(Trial("t", candidate(n)), Measurement(Status.OK, (seconds,))), None)]
            )
        assert [r.measurement.status for r in store.scan("t", fastest=99)] == [Status.OK]

    def test_counts_are_of_the_search(self, store: RecordStore) -> None:
        store.append_many([(timed(1, 1.0), None)])
        store.append_many([(timed(2, 1.0), None)])
        store.append_many([(timed(1, 1.0, rung=1), None)])
        store.append_many([(failed(3, Status.WRONG), None)])
        store.append_many([(failed(1, Status.LOST, task="u"), None)])
        assert count_statuses(store.tallies()) == {
            "t": {Status.OK: 2, Status.WRONG: 1},
            "u": {Status.LOST: 1},
        }

    def test_spaces_are_those_of_the_search(self, store: RecordStore) -> None:
        mine = candidate(1).space
        other = replace(candidate(4), space="other")
        store.append_many([(timed(1, 2.0), None)])
        store.append_many([(timed(2, 1.0), None)])
        store.append_many([(timed(2, 0.5, rung=1), None)])
        store.append_many([(failed(3, Status.WRONG), None)])
        store.append_many(
            [(Record(Trial("t", other), Measurement(Status.INVALID, error="no")), None)]
        )
        assert count_by_space(store.tallies()) == {
            "t": {mine: SpaceTally(3, 1, 1.0, 3), "other": SpaceTally(0, 1, None, 1)}
        }

    def test_toolchains_are_counted_and_the_last_used_is_the_last(self, store: RecordStore) -> None:
        used = ["b 1.0", "a 2.0", "b 1.0", ""]
        found = [(timed(n, 1.0), toolchain) for n, toolchain in enumerate(used)]
        found += [(failed(8, Status.WRONG), "c 3.0"), (timed(9, 1.0, rung=1), "d 4.0")]
        found += [(timed(n, 1.0, task="u"), used) for n, used in enumerate(["e 5.0", "a 2.0"])]
        for record, toolchain in found:
            store.append_many([(replace(record, provenance=Provenance("w", "d", toolchain)), None)])
        assert [*count_by_toolchain(store.tallies()).items()] == [
            ("b 1.0", {"t": 2}),
            ("e 5.0", {"u": 1}),
            ("a 2.0", {"t": 1, "u": 1}),
        ]

    def test_sizes_of_spaces_are_noted_by_task(self, store: RecordStore) -> None:
        store.put(Tasks([task("t"), task("u")]))
        store.put(Sizes({"t": {"mine": 3}, "unknown": {"mine": 9}}))
        store.put(Sizes({"t": {"other": 1 << 80}, "u": {"mine": 4}}))
        store.put(Sizes({"t": {"mine": 5}}))
        store.flush()
        assert store.get(Sizes).by_task == {"t": {"mine": 5, "other": 1 << 80}, "u": {"mine": 4}}
        store.put(Tasks([task("t")]))
        assert store.get(Sizes).by_task["t"]["mine"] == 5, "a task that is put again keeps them"


class TestHistory:
    def test_is_joined_from_what_was_noted(self, store: RecordStore) -> None:
        assert store.get(History) == History()
        busy = SlotSpan("runner", "r", "busy", 10.0, 11.5, "t")
        goes_on = replace(busy, started_s=11.5, ended_s=12.0)
        fit = Fit(11.0, 1, 64, 0.75, 0.2)
        store.put(History((busy,), (fit,)))
        store.put(History((goes_on,), (replace(fit, version=2, accuracy=None),)))
        store.flush()
        told = store.get(History)
        assert told.spans == (replace(busy, ended_s=12.0),)
        assert [f.accuracy for f in told.fits] == [0.75, None]


class TestTrackingEntries:
    def test_come_back_in_order_and_once(self, store: RecordStore) -> None:
        assert list(store.get(TrackingEntries).texts) == []
        store.put(TrackingEntries(["b", "a"]))
        store.append_many([(timed(1, 1.0), None)])
        store.put(TrackingEntries(["a", "c"]))
        store.flush()
        assert list(store.get(TrackingEntries).texts) == ["b", "a", "c"]


class TestFeatures:
    def test_come_back_by_task_and_candidate(self, store: RecordStore) -> None:
        vector = np.array([0.1, -2.0, np.inf], np.float32)
        store.append_many([(timed(1, 1.0), vector)])
        store.append_many([(timed(2, 1.0), None)])
        store.append_many([(timed(1, 1.0, task="u"), vector * 2)])
        assert list(store.features("t")) == [candidate(1).key]
        got = store.features("t")[candidate(1).key]
        assert got.dtype == np.float32
        assert got.tolist() == vector.tolist()
        assert store.features("u")[candidate(1).key].tolist() == (vector * 2).tolist()
        assert store.features("unknown") == {}

    def test_are_copied(self, store: RecordStore) -> None:
        vector = np.array([1.0], np.float32)
        store.append_many([(timed(1, 1.0), vector)])
        vector[0] = 7.0
        assert store.features("t")[candidate(1).key].tolist() == [1.0]

    def test_that_are_no_vector_are_refused_and_nothing_is_stored(self, store: RecordStore) -> None:
        with pytest.raises(ValueError, match="2-dimensional"):
            store.append_many([(timed(1, 1.0), np.zeros((2, 2), np.float32))])
        assert list(store.scan()) == []


class TestTasks:
    def test_keep_order_and_content(self, store: RecordStore) -> None:
        tasks = (task("b"), task("a", shapes=(), flops=0.0))
        store.put(Tasks(tasks), Defaults({"a": "k1"}))
        assert store.tasks() == tasks
        assert store.get(Defaults).by_task == {"a": "k1"}

    def test_put_again_are_updated_in_place(self, store: RecordStore) -> None:
        store.put(Tasks([task("a"), task("b")]), Defaults({"a": "k1"}))
        store.put(Tasks([task("c"), task("a", weight=5.0)]))
        assert store.tasks() == (task("a", weight=5.0), task("b"), task("c"))
        assert store.get(Defaults).by_task == {"a": "k1"}
        store.put(Tasks([]), Defaults({"a": "k2", "b": "k3"}))
        assert store.get(Defaults).by_task == {"a": "k2", "b": "k3"}

    def test_default_of_an_unknown_task_is_refused(self, store: RecordStore) -> None:
        with pytest.raises(ValueError, match="zz"):
            store.put(Tasks([task("a")]), Defaults({"a": "k", "zz": "k"}))
        assert store.tasks() == ()
        assert store.get(Defaults).by_task == {}


class TestSessions:
    def test_time_adds_up_over_sessions(self, store: RecordStore) -> None:
        assert elapsed_s(store.sessions()) == 0.0
        first = begin_session(store, 100.0)
        assert elapsed_s(store.sessions()) == 0.0
        store.put(SessionAlive(first, 110.0))
        assert elapsed_s(store.sessions()) == 10.0
        second = begin_session(store, 500.0)  # the first was killed
        store.put(SessionAlive(second, 505.0))
        store.put(SessionEnded(second, 507.0, "budget spent"))
        assert elapsed_s(store.sessions()) == 17.0
        assert [s.reason for s in store.sessions()] == ["", "budget spent"]
        assert [s.number for s in store.sessions()] == [first, second]

    def test_where_the_workers_time_went_is_kept(self, store: RecordStore) -> None:
        session = begin_session(store, 0.0)
        assert store.sessions()[0].utilisation == {}
        store.put(SessionAlive(session, 1.0, {"runner": {"busy": 0.5, "starting": 0.5}}))
        store.put(SessionAlive(session, 2.0))  # says nothing of it
        store.put(SessionEnded(session, 2.0, "done"))
        assert store.sessions()[0].utilisation == {"runner": {"busy": 0.5, "starting": 0.5}}

    def test_the_end_is_final(self, store: RecordStore) -> None:
        session = begin_session(store, 0.0)
        store.put(SessionEnded(session, 5.0, "interrupted"))
        store.put(SessionAlive(session, 9.0))
        store.put(SessionEnded(session, 9.0, "again"))
        assert elapsed_s(store.sessions()) == 5.0
        assert store.sessions()[0].reason == "interrupted"

    def test_a_clock_set_back_costs_no_time(self, store: RecordStore) -> None:
        store.put(SessionEnded(begin_session(store, 0.0), 5.0, ""))
        store.put(SessionAlive(begin_session(store, 100.0), 50.0))
        assert elapsed_s(store.sessions()) == 5.0

    def test_closing_twice_is_allowed(self, store: RecordStore) -> None:
        store.close()


times = st.floats()  # NaN and infinities included
durations = times.map(lambda seconds: seconds + 0.0)  # -0.0 s is 0.0 s to everyone
# A compiler's output may hold anything, halves of surrogate pairs and NUL included.
errors = st.text(st.characters(exclude_categories=()), max_size=20)
words = st.text(max_size=8)
instances = st.dictionaries(words, st.integers(), max_size=3).map(
    lambda d: tuple(sorted(d.items()))
)
records = st.builds(
    Record,
    trial=st.builds(
        Trial,
        task_key=words,
        candidate=st.builds(Candidate, st.sampled_from(CandidateKind), words, words),
        instance=instances,
        rung=st.integers(0, 9),
    ),
    measurement=st.builds(
        Measurement,
        status=st.sampled_from(Status),
        samples_s=st.lists(times, max_size=5).map(tuple),
        error=errors,
        build_s=durations,
        run_s=durations,
    ),
    provenance=st.builds(Provenance, words, words, words),
    predicted=st.none()
    | st.builds(Predicted, st.floats(-9, 9), st.integers(0, 9), st.none() | st.floats(0, 9)),
    attempt=st.integers(1, 9),
    time_s=durations,
)


@pytest.mark.parametrize("kind", STORES)
@settings(max_examples=60, deadline=None)
@given(written=st.lists(records, max_size=6))
def test_whatever_a_record_holds_comes_back(kind: str, written: list[Record]) -> None:
    unique = list({r.trial.key: r for r in reversed(written)}.values())[::-1]
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(STORES[kind](Path(folder))) as store,
    ):
        fresh = store.append_many([(record, None) for record in written])
        first = [record for record, new in zip(written, fresh, strict=True) if new]
        assert {r.trial.key for r in first} == {r.trial.key for r in unique}
        # As text, since NaN does not equal itself.
        assert [repr(r) for r in store.scan()] == [repr(r) for r in first]
