"""A run at a summary says what a fold over all of its records says, and reads few of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tuner.candidate import Candidate, CandidateKind
from tuner.record import Measurement, Record, Status, Trial
from tuner.report.summary import STALE_S, StoreSummaries, of_snapshot, state_of, summary_json
from tuner.storage.base import SessionSpan, begin_session
from tuner.storage.facts import Defaults, SessionAlive, SessionEnded, Tasks
from tuner.storage.sqlite_store import SqliteStore
from tuner.task import Instance, Task
from tuner.view.folds import view_winners
from tuner.view.phase import Phase
from tuner.view.progress import Snapshot, fold
from tuner.view.run_view import RunView
from tuner.view.task_view import TaskView

SHAPES = (((("T", 1),), 1.0), ((("T", 2),), 3.0))
STATIC = Task("static", "dense", "{}", "{}", 2.0, 1e6)
OTHER = Task("other", "softmax", "{}", "{}", 1.0, 1e6)
SYMBOLIC = Task("symbolic", "gemm", "{}", "{}", 1.0, 1e6, SHAPES)
TASKS = (STATIC, OTHER, SYMBOLIC)


def candidate(name: str) -> Candidate:
    return Candidate(CandidateKind.TRACE, name, "ours")


DEFAULT = candidate("default")


def record(
    task: Task,
    name: str,
    seconds: float | None,
    *,
    instance: Instance = (),
    rung: int = 0,
    time_s: float = 0.0,
) -> Record:
    good = Measurement(Status.OK, (seconds or 0.0,))
    measured = good if seconds is not None else Measurement(Status.WRONG)
    return Record(Trial(task.key, candidate(name), instance, rung), measured, time_s=time_s)


STORY = [
    record(STATIC, "default", 0.010, time_s=1),
    record(OTHER, "default", None, time_s=2),
    record(STATIC, "a", 0.004, time_s=3),
    *(record(SYMBOLIC, "default", 0.008, instance=i, time_s=4) for i, _ in SHAPES),
    record(SYMBOLIC, "b", 0.002, instance=SHAPES[0][0], time_s=5),
    record(OTHER, "c", 0.003, time_s=6),
    record(STATIC, "d", 0.005, time_s=7),
    record(STATIC, "a", 0.001, rung=1, time_s=8),
    record(SYMBOLIC, "b", 0.001, instance=SHAPES[1][0], rung=1, time_s=9),
]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with closing(SqliteStore(tmp_path / "records.sqlite")) as opened:
        opened.put(Tasks(TASKS), Defaults({task.key: DEFAULT.key for task in TASKS}))
        yield opened


def test_after_each_record_it_says_what_a_fold_over_all_of_them_says(store: SqliteStore) -> None:
    looking = StoreSummaries("x")
    for number in range(len(STORY) + 1):
        store.append_many([(r, None) for r in STORY[max(0, number - 1) : number]])
        defaults = {task.key: DEFAULT.key for task in TASKS}
        progress = fold(TASKS, defaults, STORY[:number]).values()
        wanted = RunView(tasks=tuple(p.view() for p in progress))
        for seen in (looking.look(store, 0.0), StoreSummaries("x").look(store, 0.0)):
            assert seen.tasks == wanted.tasks
            assert (seen.gain, seen.trials) == (wanted.gain, wanted.trials)


def test_it_knows_how_long_it_has_worked_since_a_task_became_faster(store: SqliteStore) -> None:
    looking = StoreSummaries("x")
    session = begin_session(store, 0.0)
    assert looking.look(store, 0.0).since_improved_s is None
    for r in STORY[:-1]:
        store.append_many([(r, None)])
    store.put(SessionAlive(session, 10.0, {}))
    assert looking.look(store, 10.0).since_improved_s == 10 - 6
    store.append_many([(STORY[-1], None)])
    assert looking.look(store, 10.0).since_improved_s == 10 - 9


def test_an_ended_run_has_the_times_of_its_last_lines(store: SqliteStore) -> None:
    session = begin_session(store, 0.0)
    for r in [*STORY, record(STATIC, "default", 0.012, rung=1)]:
        store.append_many([(r, None)])
    looking = StoreSummaries("x")
    search = looking.look(store, 0.0)
    assert not search.settled
    store.put(SessionEnded(session, 30.0, "trials"))
    ended = looking.look(store, 0.0, lambda _: {"symbolic": 0.0042})
    assert ended.settled
    assert ended.tasks == view_winners(store, {"symbolic": 0.0042})
    assert ended.gain != search.gain
    begin_session(store, 31.0)
    assert looking.look(store, 31.0).tasks == search.tasks, "it goes on"


def test_time_in_which_nobody_worked_is_not_held_against_a_run(store: SqliteStore) -> None:
    for r in STORY:
        store.append_many([(r, None)])
    store.put(SessionEnded(begin_session(store, 0.0), 30.0, "time"))
    looking = StoreSummaries("x")
    assert looking.look(store, 9999.0).since_improved_s == 30 - 9, "it ended long ago"
    store.put(SessionEnded(begin_session(store, 700.0), 705.0, "trials"))
    seen = looking.look(store, 9999.0)
    assert seen.since_improved_s == 30 - 9 + 5, "a session without trials, much later"
    assert summary_json(seen)["since_improved_s"] == seen.since_improved_s


def test_nothing_new_is_read_where_there_is_nothing_new(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    looking = StoreSummaries("x")
    for r in STORY[:3]:
        store.append_many([(r, None)])
    first = looking.look(store, 0.0)
    for reading in ("tallies", "scan", "tasks", "fastest", "features"):
        monkeypatch.setattr(SqliteStore, reading, lambda *_, **__: pytest.fail("read anew"))
    assert looking.look(store, 0.0) == first


def test_a_task_without_new_trials_is_not_read_anew(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for r in STORY[:3]:
        store.append_many([(r, None)])
    looking = StoreSummaries("x")
    looking.look(store, 0.0)
    asked: list[str] = []
    scan = SqliteStore.scan

    def note(self: SqliteStore, task_key: str, **only: int) -> Iterator[Record]:
        asked.extend([task_key] * ("fastest" in only))
        return scan(self, task_key, **only)

    monkeypatch.setattr(SqliteStore, "scan", note)
    store.append_many([(record(OTHER, "new", 0.001), None)])
    assert looking.look(store, 0.0).tasks[1].best_s == 0.001
    assert asked == ["other"]


def test_tasks_that_come_later_are_seen(store: SqliteStore) -> None:
    looking = StoreSummaries("x")
    looking.look(store, 0.0)
    later = Task("later", "conv", "{}", "{}", 1.0, 1e6)
    store.put(Tasks([later]), Defaults({"later": DEFAULT.key}))
    store.append_many([(record(later, "default", 0.001), None)])
    assert [row.name for row in looking.look(store, 0.0).tasks][-1] == "conv"


ENDED = SessionSpan(1, 0.0, 9.0, 9.0, "time")


@pytest.mark.parametrize(
    ("spans", "now_s", "state"),
    [
        ([], 0.0, ("not begun", False)),
        ([SessionSpan(1, 0.0, 10.0)], 11.0, ("at work", True)),
        ([SessionSpan(1, 0.0, 10.0)], 11.0 + STALE_S, ("silent", False)),
        ([SessionSpan(1, 0.0, 9.0, 9.0, "time")], 10.0, ("ended: time", False)),
        (
            [SessionSpan(1, 0.0, 9.0, 9.0, "time"), SessionSpan(2, 9.0, 9.5)],
            10.0,
            ("at work", True),
        ),
    ],
)
def test_how_a_run_stands(spans: list[SessionSpan], now_s: float, state: tuple[str, bool]) -> None:
    assert state_of(spans, now_s) == state


def test_a_search_says_of_itself_how_it_stands() -> None:
    counts = {Status.OK: 6, Status.WRONG: 1}
    task = TaskView("k", "gemm", 2.0, 0.0, counts, 0.004, 0.001)
    snapshot = Snapshot(phase=Phase.SEARCH, elapsed_s=5.0, trials_per_s=1.4, tasks=(task,))
    seen = of_snapshot("runs/x", snapshot)
    assert (seen.state, seen.at_work, seen.latency_s) == ("search", True, 0.002)
    assert seen.failures == {"wrong": 1}
    assert of_snapshot("runs/x", snapshot, "trials").state == "ended: trials"
    assert of_snapshot("runs/x", snapshot, "failed", "no disk").state == "failed: no disk"
