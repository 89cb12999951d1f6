"""What happened reaches the store in pieces, on the wall's clock, and never holds a run up."""

from __future__ import annotations

from tuner.cost_models.base import FittedModel
from tuner.errors import TunerError
from tuner.record import Status
from tuner.replay.replay import VirtualClock
from tuner.session.history_keeper import HistoryKeeper
from tuner.storage.facts import Fact
from tuner.storage.history import History
from tuner.storage.sqlite_store import MemoryStore
from tuner.utilisation import RUNNER, Utilisation
from tuner.view.phase import Phase
from tuner.view.progress import Snapshot
from tuner.view.task_view import TaskView


def snapshot(trials: int, next_gain: float | None = None) -> Snapshot:
    task = TaskView("t", statuses={Status.OK: trials})
    return Snapshot(phase=Phase.SEARCH, tasks=(task,), next_gain=next_gain)


SNAPSHOT = snapshot(3)
EPOCH_S = 1_000_000.0


def keeper_at_work(store: MemoryStore) -> tuple[HistoryKeeper, Utilisation, VirtualClock]:
    clock = VirtualClock()
    used = Utilisation(clock)
    keeper = HistoryKeeper(store, used, clock=clock, wall=lambda: EPOCH_S + clock())
    used.started(RUNNER, "r")
    used.ready(RUNNER, "r")
    return keeper, used, clock


def test_spans_are_on_the_clock_of_the_wall_and_a_job_is_told_when_it_is_done() -> None:
    store = MemoryStore()
    keeper, used, clock = keeper_at_work(store)
    clock.now_s = 4.0
    used.given(RUNNER, "r", "task")
    clock.now_s = 11.0
    keeper.on_snapshot(SNAPSHOT)
    assert [(s.category, s.ended_s) for s in store.get(History).spans] == [
        ("not_needed", EPOCH_S + 4.0)
    ]
    clock.now_s = 12.0
    used.answered(RUNNER, "r", worked_s=6.0)
    keeper.on_snapshot(SNAPSHOT)
    assert len(store.get(History).spans) == 1, "ten seconds have not passed"
    keeper.on_end(SNAPSHOT)
    waited, worked = store.get(History).spans[1:]
    assert (waited.category, waited.started_s, waited.ended_s) == (
        "waiting",
        EPOCH_S + 4.0,
        EPOCH_S + 6.0,
    )
    assert (worked.category, worked.ended_s, worked.task_key) == ("busy", EPOCH_S + 12.0, "task")


def test_a_job_across_pieces_begins_where_the_wait_before_it_ended() -> None:
    store, clock, wall = MemoryStore(), VirtualClock(), VirtualClock()
    used = Utilisation(clock)
    keeper = HistoryKeeper(store, used, clock=clock, wall=wall)
    used.started(RUNNER, "r")
    used.ready(RUNNER, "r")
    clock.now_s = wall.now_s = 7.0
    used.given(RUNNER, "r", "task")
    keeper.keep()
    wall.now_s = 5.0
    clock.now_s = 9.0
    used.answered(RUNNER, "r")
    keeper.keep()
    idle, busy = store.get(History).spans
    assert idle.ended_s == busy.started_s


def test_a_job_that_the_end_finds_in_progress_is_told_up_to_there() -> None:
    store = MemoryStore()
    keeper, used, clock = keeper_at_work(store)
    clock.now_s = 3.0
    used.given(RUNNER, "r", "task")
    clock.now_s = 8.0
    keeper.on_end(SNAPSHOT)
    idle, busy = store.get(History).spans
    assert idle.category == "not_needed"
    assert (busy.category, busy.task_key) == ("busy", "task")
    assert (busy.started_s, busy.ended_s) == (EPOCH_S + 3.0, EPOCH_S + 8.0)


def test_fits_are_kept_with_their_time() -> None:
    store = MemoryStore()
    keeper, _, clock = keeper_at_work(store)
    clock.now_s = 2.0
    keeper.on_model(FittedModel(version=1, model=b"", records=64, pairwise_accuracy=0.8, fit_s=0.1))
    keeper.on_end(SNAPSHOT)
    (fit,) = store.get(History).fits
    assert (fit.time_s, fit.version, fit.accuracy) == (EPOCH_S + 2.0, 1, 0.8)


def test_what_more_trials_would_bring_is_kept_once_for_each_prediction() -> None:
    store = MemoryStore()
    keeper, _, clock = keeper_at_work(store)
    for now_s, trials, next_gain in ((1.0, 100, None), (2.0, 128, 0.2), (3.0, 130, 0.2)):
        clock.now_s = now_s
        keeper.on_snapshot(snapshot(trials, next_gain))
    keeper.on_end(snapshot(256, 0.02))
    told = [(o.time_s, o.trials, o.next_gain) for o in store.get(History).outlooks]
    assert told == [(EPOCH_S + 2.0, 128, 0.2), (EPOCH_S + 3.0, 256, 0.02)]


def test_a_store_that_refuses_is_asked_once() -> None:
    class Full(MemoryStore):
        asked = 0

        def put(self, *facts: Fact) -> None:
            self.asked += 1
            raise TunerError("the disk is full")

    store = Full()
    keeper, _, clock = keeper_at_work(store)
    for now_s in (11.0, 22.0, 33.0):
        clock.now_s = now_s
        keeper.on_snapshot(SNAPSHOT)
    keeper.on_end(SNAPSHOT)
    assert store.asked == 1
