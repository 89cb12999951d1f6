"""Progress is a fold over records: the same live and after a restart."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.candidate import Candidate, CandidateKind
from tuner.dynamic.shapes import MEASURED_SHAPES, choose_measured
from tuner.record import Measurement, Record, Status, Trial
from tuner.storage.sqlite_store import MemoryStore
from tuner.task import Instance, Task
from tuner.view.phase import Phase
from tuner.view.progress import Snapshot, TaskProgress, fold, side_by_side
from tuner.view.run_view import RunView


def candidate(n: int) -> Candidate:
    return Candidate(CandidateKind.TRACE, f"[{n}]", "space")


DEFAULT = candidate(0).key
A, B = Task("a", "a", "", "", weight=2.0), Task("b", "b", "", "", weight=1.0)


def record(
    n: int, seconds: float = 1.0, *, status: Status = Status.OK, task: str = "a", rung: int = 0
) -> Record:
    return Record(Trial(task, candidate(n), rung=rung), Measurement(status, (seconds,)))


def progress_of(*records: Record) -> TaskProgress:
    return fold([A], {"a": DEFAULT}, records)["a"]


def test_before_any_record_nothing_is_known() -> None:
    progress = progress_of()
    assert (progress.spent, progress.best_s, progress.default_s) == (0, None, None)
    assert progress.history == []


def test_best_and_default_are_found() -> None:
    progress = progress_of(record(0, 4.0), record(1, 2.0), record(2, 3.0))
    assert progress.default_s == 4.0
    assert progress.best_s == 2.0
    assert progress.history == [4.0, 2.0, 2.0]


def test_a_task_with_many_shapes_is_as_fast_as_its_weighted_mean() -> None:
    small, large = (("n", 1),), (("n", 9),)
    task = Task("a", "a", "", "", shapes=((small, 3.0), (large, 1.0)))

    def on(n: int, instance: Instance, seconds: float) -> Record:
        return Record(Trial("a", candidate(n), instance), Measurement(Status.OK, (seconds,)))

    records = [on(1, small, 1.0), on(1, large, 9.0), on(2, large, 5.0)]
    begun = fold([task], {"a": DEFAULT}, records[:1])["a"]
    assert (begun.best_s, begun.so_far_s) == (None, 1.0), "of one shape it says nothing of all"
    progress = fold([task], {"a": DEFAULT}, records)["a"]
    assert progress.bests == {small: 1.0, large: 5.0}
    assert (progress.best_s, progress.default_s) == (2.0, None)
    progress.observe(on(0, large, 20.0))  # four times the best, so on the other shape as well
    assert progress.default_s == 8.0


def test_the_best_of_many_shapes_never_becomes_slower() -> None:
    """As a mean over those that were seen so far would, when a heavy one comes."""
    sizes = range(1, 41)
    task = Task("a", "a", "", "", shapes=tuple(((("n", size),), 1.0) for size in sizes))
    progress, seen = TaskProgress(task), []
    for size in (*sizes, *sizes):
        instance = (("n", size),)
        if instance in dict(choose_measured(task.shapes)):
            trial = Trial("a", candidate(size), instance)
            progress.observe(Record(trial, Measurement(Status.OK, (float(size),))))
            seen.append(progress.best_s)
    known = [best_s for best_s in seen if best_s is not None]
    assert len(known) == MEASURED_SHAPES + 1
    assert len(set(known)) == 1
    assert known[0] == pytest.approx(sum(sizes) / len(sizes), rel=0.03), "weights are lost"


def test_rejects_spend_nothing() -> None:
    progress = progress_of(*(record(n, status=s) for n, s in enumerate(Status)))
    assert progress.spent == len(progress.history) == sum(s.spends_budget for s in Status)
    assert progress.statuses == dict.fromkeys(Status, 1)
    assert progress.view().failed == sum(s.failed for s in Status)


def test_history_has_no_best_before_the_first_valid_trial() -> None:
    progress = progress_of(record(1, status=Status.WRONG), record(2, 5.0), record(3, 6.0))
    assert progress.history == [None, 5.0, 5.0]


@pytest.mark.parametrize("nonsense", [math.nan, math.inf, -1.0, 0.0])
def test_a_time_that_is_none_is_never_best(nonsense: float) -> None:
    progress = progress_of(record(1, nonsense), record(2, 3.0))
    assert progress.best_s == 3.0
    assert progress.history == [None, 3.0]


def test_retimings_stand_apart_from_the_search() -> None:
    progress = progress_of(
        record(1, 2.0),
        record(1, 1.0, rung=1),
        record(1, 3.0, rung=2),
        record(2, 9.0, rung=1, status=Status.WRONG),
    )
    assert (progress.spent, progress.best_s) == (1, 2.0)
    assert progress.retimed == {candidate(1).key: [1.0, 3.0]}
    assert progress.statuses == {Status.OK: 1}


def test_records_of_other_tasks_are_ignored() -> None:
    assert fold([A], {}, [record(1, task="gone")])["a"].spent == 0


def gain(*progress: TaskProgress) -> float | None:
    return RunView(tasks=tuple(p.view() for p in progress)).gain


def test_gain_is_weighted_and_never_counts_a_loss() -> None:
    records = [record(0, 4.0), record(1, 1.0), record(0, 2.0, task="b")]
    progress = fold([A, B], {"a": DEFAULT, "b": DEFAULT}, records)
    assert gain(*progress.values()) == pytest.approx((2 * 4.0 + 2.0) / (2 * 1.0 + 2.0))
    assert gain(TaskProgress(A)) is None
    slower = TaskProgress(A, defaults={(): 1.0}, bests={(): 2.0})
    assert gain(slower) == 1.0


runs = st.lists(
    st.builds(
        record,
        st.integers(0, 5),
        st.floats(),
        status=st.sampled_from(Status),
        task=st.sampled_from("ab"),
        rung=st.integers(0, 2),
    )
)


@given(runs, st.integers(0, 20))
def test_a_restart_changes_nothing(records: list[Record], restart: int) -> None:
    defaults = {"a": DEFAULT, "b": DEFAULT}
    store = MemoryStore()
    live = fold([A, B], defaults, [])
    for n, rec in enumerate(records):
        if n == restart:
            live = fold([A, B], defaults, store.scan())
        if store.append_many([(rec, None)])[0]:
            live[rec.trial.task_key].observe(rec)
    assert live == fold([A, B], defaults, store.scan())


def snapshot_of(phase: Phase, *records: Record) -> Snapshot:
    tasks = tuple(p.view() for p in fold([A], {"a": DEFAULT}, records).values())
    return Snapshot(phase=phase, trials_budget=100, trials_per_s=2.0, tasks=tasks)


def test_searches_side_by_side_are_shown_as_one() -> None:
    one = snapshot_of(Phase.DONE, record(0, 4.0), record(1, 1.0))
    other = snapshot_of(Phase.SEARCH, record(0, 2.0))
    both = side_by_side({"fast": one, "slow": other})
    assert both.phase is Phase.SEARCH
    assert (both.trials, both.trials_budget, both.trials_per_s) == (3, 200, 4.0)
    assert both.statuses == {"ok": 3}
    assert [row.name for row in both.tasks] == ["fast/a", "slow/a"]
    assert both.gain == pytest.approx((4.0 + 2.0) / (1.0 + 2.0))


def test_one_alone_says_what_it_says_itself() -> None:
    one = snapshot_of(Phase.SEARCH, record(0, 4.0), record(1, 1.0))
    both = side_by_side({"only": one})
    assert (both.gain, both.trials, both.phase) == (one.gain, one.trials, one.phase)
