"""Which tasks of a large network get a run of their own, and what becomes of the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

from tests.tuner.tracking.fake_sink import Clock, FakeSink, push_all, say, start_drain
from tests.tuner.tracking.tracked_runs import many_tasks
from tuner.candidate import Candidate, CandidateKind
from tuner.record import Measurement, Record, Status, Trial
from tuner.storage.base import begin_session
from tuner.storage.facts import Defaults, Tasks
from tuner.storage.sqlite_store import SqliteStore
from tuner.task import Task
from tuner.tracking.child_runs import MOST_CHILDREN, TRIED
from tuner.tracking.drain import RunDrain
from tuner.tracking.entries import End, Metrics, Start, TrackingPaths

END = End("FINISHED", 9000.0)
NETWORK = many_tasks(50)


def record(task: Task, number: int = 0, *, ok: bool = True) -> Record:
    """The default schedule is number 0; a task takes as long as it has operations."""
    candidate = Candidate(CandidateKind.TRACE, f"[{number}]", "space")
    latency_s = task.flops * 1e-10 / (number + 1)
    measured = Measurement(Status.OK, (latency_s,)) if ok else Measurement(Status.RUN_FAILED)
    return Record(Trial(task.key, candidate), measured, time_s=1001.0 + number)


DEFAULT = record(NETWORK[0]).trial.candidate.key


@contextmanager
def living(run_dir: Path, records: Sequence[Record] = ()) -> Iterator[SqliteStore]:
    """The store of a session that is at work, with records that it has already."""
    run_dir.mkdir(exist_ok=True)
    with closing(SqliteStore(TrackingPaths(run_dir).store)) as store:
        store.put(Tasks(NETWORK), Defaults({task.key: DEFAULT for task in NETWORK}))
        if not store.sessions():
            begin_session(store, 1000.0)
        store.append_many([(r, None) for r in records])
        yield store


def keep(run_dir: Path, records: Sequence[Record]) -> None:
    with living(run_dir, records):
        pass


def push_what_can_be(drain: RunDrain) -> None:
    while drain.step():
        pass


def announce(run_dir: Path, tasks: Sequence[Task] = NETWORK, time_s: float = 1000.0) -> None:
    say(run_dir, [Start("u1", "demo", {}, {}, time_s)], tasks)


def children(sink: FakeSink) -> set[str]:
    return sink.known - {""}


def heaviest(number: int) -> set[str]:
    ordered = sorted(NETWORK, key=lambda task: -task.weight * task.flops)
    return {task.key for task in ordered[:number]}


def points(sink: FakeSink, task: str | None, name: str) -> list[int]:
    metrics = (e for e in sink.taken if isinstance(e, Metrics))
    return list(dict.fromkeys(e.step for e in metrics if e.task == task and name in e.values))


def test_a_few_tasks_all_have_a_run_before_anything_was_measured(tmp_path: Path) -> None:
    few = NETWORK[:MOST_CHILDREN]
    announce(tmp_path, few)
    sink = FakeSink()
    start_drain(tmp_path, sink, Clock(), over=True).step()
    assert children(sink) == {task.key for task in few}


def test_of_many_those_that_take_most_of_the_models_time(tmp_path: Path) -> None:
    announce(tmp_path)
    keep(tmp_path, [record(task, n) for n in range(3) for task in NETWORK])
    sink = FakeSink()
    push_all(tmp_path, sink)
    assert len(children(sink)) == MOST_CHILDREN
    assert children(sink) == heaviest(MOST_CHILDREN)


def test_their_curves_are_whole_and_the_model_has_all_tasks_in_it(tmp_path: Path) -> None:
    announce(tmp_path)
    keep(tmp_path, [record(task, n) for n in range(3) for task in NETWORK])
    say(tmp_path, [END], NETWORK)
    sink = FakeSink()
    push_all(tmp_path, sink)
    for task in NETWORK:
        there = [1, 2, 3] if task.key in children(sink) else []
        assert points(sink, task.key, "task/best_us") == there
    whole_ms = sum(task.weight * task.flops for task in NETWORK) * 1e-10 * 1e3
    said = [e for e in sink.taken if isinstance(e, Metrics) and "model/gain" in e.values]
    assert (said[0].step, round(said[0].values["model/latency_ms"], 6)) == (50, round(whole_ms, 6))
    assert (said[-1].step, round(said[-1].values["model/gain"], 6)) == (150, 3.0)
    assert sink.taken[-1] == END


def test_nothing_is_chosen_before_each_task_has_a_time(tmp_path: Path) -> None:
    announce(tmp_path)
    sink = FakeSink()
    drain = start_drain(tmp_path, sink, Clock())
    with living(tmp_path, [record(task) for task in NETWORK[:-1]]) as store:
        push_what_can_be(drain)
        assert children(sink) == set()
        store.append_many([(record(NETWORK[-1]), None)])
        push_what_can_be(drain)
    assert children(sink) == heaviest(MOST_CHILDREN)
    assert points(sink, NETWORK[-1].key, "task/best_us") == [1]


def test_a_task_that_never_has_a_time_is_not_waited_for_longer_than_its_first_trials(
    tmp_path: Path,
) -> None:
    announce(tmp_path)
    broken, *others = reversed(NETWORK)
    kinds = (Status.RUN_FAILED, Status.BUILD_FAILED, Status.INVALID)
    failures = [
        replace(record(broken, n), measurement=Measurement(kinds[n % 3])) for n in range(TRIED)
    ]
    sink = FakeSink()
    drain = start_drain(tmp_path, sink, Clock())
    with living(tmp_path, [*map(record, others), *failures[:-1]]) as store:
        push_what_can_be(drain)
        assert children(sink) == set()
        store.append_many([(failures[-1], None)])
        push_what_can_be(drain)
    assert children(sink) == heaviest(MOST_CHILDREN + 1) - {broken.key}


def test_a_task_that_was_given_up_is_not_waited_for_to_the_end(tmp_path: Path) -> None:
    announce(tmp_path)
    _, *others = NETWORK
    sink = FakeSink()
    drain = start_drain(tmp_path, sink, Clock())
    with living(tmp_path, [record(task, n) for task in others for n in range(30)]) as store:
        push_what_can_be(drain)
        assert children(sink) == set()
        store.append_many([(record(task, n), None) for task in others for n in range(30, 50)])
        push_what_can_be(drain)
    assert len(children(sink)) == MOST_CHILDREN


def test_a_session_that_ends_early_shows_what_it_has_and_the_next_one_adds_the_rest(
    tmp_path: Path,
) -> None:
    announce(tmp_path)
    keep(tmp_path, [record(task) for task in NETWORK[:5]])
    say(tmp_path, [END], NETWORK)
    sink = FakeSink()
    push_all(tmp_path, sink)
    first = {task.key for task in NETWORK[:5]}
    assert children(sink) == first
    announce(tmp_path, time_s=9100.0)
    keep(tmp_path, [record(task, 1) for task in NETWORK])
    say(tmp_path, [End("FINISHED", 9900.0)], NETWORK)
    push_all(tmp_path, sink)
    assert children(sink) == first | heaviest(MOST_CHILDREN - 5)
    for key in children(sink):
        there = [1, 2] if key in first else [1]
        assert points(sink, key, "task/best_us") == there


def test_the_last_values_of_a_task_without_a_run_are_left_to_the_table(tmp_path: Path) -> None:
    announce(tmp_path)
    keep(tmp_path, [record(task) for task in NETWORK])
    say(tmp_path, [Metrics(task.key, 0, {"task/gain": 1.0}, 2000.0) for task in NETWORK], NETWORK)
    sink = FakeSink()
    progress = push_all(tmp_path, sink).progress
    told = {e.task for e in sink.taken if isinstance(e, Metrics) and "task/gain" in e.values}
    assert told == heaviest(MOST_CHILDREN)
    assert progress.dropped == 0


def test_a_run_keeps_the_runs_that_its_tasks_have(
    tmp_path: Path,
) -> None:
    announce(tmp_path)
    keep(tmp_path, [record(task, n) for n in range(2) for task in NETWORK])
    sink = FakeSink()
    sink.known = {"", *(task.key for task in NETWORK)}
    push_all(tmp_path, sink)
    assert children(sink) == {task.key for task in NETWORK}
    assert all(points(sink, task.key, "task/best_us") == [1, 2] for task in NETWORK)


def test_a_run_that_was_deleted_over_there_gets_its_child_runs_again(tmp_path: Path) -> None:
    announce(tmp_path)
    keep(tmp_path, [record(task) for task in NETWORK[:15]])
    say(tmp_path, [END], NETWORK)
    push_all(tmp_path, sink := FakeSink())
    assert len(children(sink)) == 15
    drain = start_drain(tmp_path, sink, Clock(), over=True)
    while drain.step():
        pass
    keep(tmp_path, [record(NETWORK[0], 1)])
    sink.moods = ["gone"]
    while drain.step():
        pass
    assert sink.forgotten == 1
    assert children(sink) == {task.key for task in NETWORK[:15]}


def test_a_tracker_that_dies_when_it_has_chosen_leaves_no_gap(tmp_path: Path) -> None:
    """Whatever it did last: its successor's runs have all that was before they were chosen."""
    for life in range(1, 8):
        run_dir = tmp_path / f"{life}"
        announce(run_dir)
        keep(run_dir, [record(task, n) for n in range(2) for task in NETWORK])
        sink, clock = FakeSink(["good", "silent", "good"]), Clock()
        drain = start_drain(run_dir, sink, clock, over=True)
        for _ in range(life):
            drain.step()
            clock.now += 60.0
        push_all(run_dir, sink)
        assert children(sink) == heaviest(MOST_CHILDREN)
        assert all(points(sink, key, "task/best_us") == [1, 2] for key in children(sink))
