"""What a page shows, as data: the model's curve, failures, noise, predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar

import pytest

from tests.tuner.pages.sample_run import (
    DEVICE,
    MANIFEST,
    START_S,
    default_of,
    fill,
    sample,
)
from tuner.candidate import of_knobs
from tuner.pages.wording import conditions_note
from tuner.record import Conditions, Measurement, Predicted, Provenance, Record, Status, Trial
from tuner.report.conditions import ConditionsFold
from tuner.report.failures import FailureFold
from tuner.report.noise import RetimingFold
from tuner.report.predictions import PredictionFold, spread
from tuner.report.run_report import run_report
from tuner.storage.base import SessionSpan, begin_session
from tuner.storage.facts import SessionEnded
from tuner.storage.history import History
from tuner.storage.sqlite_store import MemoryStore
from tuner.task import Task
from tuner.utilisation import SlotSpan
from tuner.view.model_curve import model_curve


class Takes(Protocol):
    """A fold over records."""

    def take(self, record: Record) -> None:
        """Take in the next record."""


Fold = TypeVar("Fold", bound=Takes)
TASKS = [Task(name, name, "module", "{}", weight) for name, weight in (("a", 1.0), ("b", 3.0))]
DEFAULTS = {name: default_of(name).key for name in "ab"}
SESSIONS = (
    SessionSpan(1, START_S, START_S + 10, START_S + 10, "signal"),
    SessionSpan(2, START_S + 100, START_S + 120, START_S + 120, "trials"),
)


def record(
    task: str,
    number: int,
    latency_s: float | None,
    at_s: float,
    *,
    rung: int = 0,
    error: str = "",
    predicted: Predicted | None = None,
) -> Record:
    candidate = default_of(task) if number == 0 else of_knobs({"n": number}, "kernel:a@1")
    measured = (
        Measurement(Status.INVALID, error=error)
        if latency_s is None
        else Measurement(Status.OK, (latency_s,))
    )
    trial = Trial(task, candidate, (), rung)
    return Record(trial, measured, DEVICE, time_s=START_S + at_s, predicted=predicted)


def taken(fold: Fold, records: Sequence[Record]) -> Fold:
    """A fold that has taken in some records."""
    for one in records:
        fold.take(one)
    return fold


class TestModelCurve:
    def test_begins_when_every_task_has_a_time_and_leaves_out_time_between_sessions(self) -> None:
        told = model_curve(
            TASKS,
            DEFAULTS,
            [
                record("a", 0, 4.0, 1),
                record("a", 1, 2.0, 2),
                record("b", 0, 1.0, 5),
                record("b", 1, 9.0, 6),
                record("b", 2, 0.5, 103),
            ],
            SESSIONS,
        )
        assert [(p.elapsed_s, p.trials, p.latency_s) for p in told.points] == [
            (5.0, 3, 5.0),
            (13.0, 5, 3.5),
            (30.0, 5, 3.5),
        ]
        assert [p.time_s - START_S for p in told.points] == [5.0, 103.0, 103.0]
        assert told.default_s == 7.0
        assert told.best_s == 3.5

    def test_counts_only_tasks_that_have_a_time(self) -> None:
        told = model_curve(TASKS, DEFAULTS, [record("a", 0, 4.0, 1)], SESSIONS)
        assert (told.tasks, told.best_s, told.default_s) == (1, 4.0, 4.0)

    def test_is_empty_without_a_time(self) -> None:
        assert model_curve(TASKS, DEFAULTS, [record("a", 1, None, 1)], SESSIONS).points == ()


def test_failures_are_by_kind_and_first_line_with_their_tasks() -> None:
    some = [record("a", n, None, n, error="no room\nmore") for n in (1, 2)]
    some += [record("b", 3, None, 3, error="no room"), record("b", 4, None, 4)]
    some += [record("b", 5, 1.0, 5), record("b", 6, None, 6, rung=1, error="not of the search")]
    (kind,) = taken(FailureFold({"a": "first", "b": "second"}), some).kinds()
    assert (kind.status, kind.count) == (Status.INVALID, 4)
    assert [(r.line, r.count, r.tasks) for r in kind.reasons] == [
        ("no room", 3, ("first", "second")),
        ("no reason given", 1, ("second",)),
    ]


def test_noise_is_told_of_candidates_that_were_timed_again_twice() -> None:
    some = [record("a", 1, s, 1, rung=n) for n, s in enumerate((9.0, 1.0, 1.2, 1.1))]
    some += [record("a", 2, 2.0, 2, rung=1)]
    told = taken(RetimingFold({"a": "first"}), some).retimings()
    assert [(r.task, r.round, r.winner) for r in told] == [
        ("first", 1, True),
        ("first", 2, True),
        ("first", 3, True),
    ]
    assert [r.relative for r in told] == pytest.approx([1.0 / 1.1, 1.2 / 1.1, 1.0])


def test_what_was_wrong_with_devices_is_counted_and_said() -> None:
    def timed(number: int, worker: str, **condition: Any) -> Record:
        conditions = Conditions("warm", **condition)
        told = record("a", number, 2.0, number)
        return replace(
            told,
            measurement=replace(told.measurement, conditions=conditions),
            provenance=Provenance(worker),
        )

    some = [record("a", 0, 4.0, 1)]
    some += [timed(n, "runner-1", anchor_s=2e-4) for n in range(1, 4)]
    assert conditions_note(taken(ConditionsFold(), some).conditions()) == ""
    some.append(timed(4, "runner-1", anchor_s=2e-4, slowed_by=("temperature",)))
    some.append(timed(5, "runner-2", anchor_s=3e-4, strangers=1))
    assert conditions_note(taken(ConditionsFold(), some).conditions()) == (
        "1 of 5 times on a device that was slowed by temperature; "
        "1 of 5 times beside other processes on the device; "
        "fixed work took 1.50 times as long on runner-2 as on runner-1"
    )


def test_predictions_stand_beside_what_was_measured() -> None:
    some = [
        record("a", 0, 4.0, 1),
        record("a", 1, 2.0, 2, predicted=Predicted(0.5, 1, 3.0)),
        record("a", 2, 8.0, 3, predicted=Predicted(estimate_s=5.0)),
        record("a", 3, None, 4, predicted=Predicted(0.9, 1)),
    ]
    told = taken(PredictionFold({"a": "first"}), some).pairs()
    assert [(p.trial, p.of_best, p.score, p.estimate_s) for p in told] == [
        (2, 1.0, 0.5, 3.0),
        (3, 0.25, None, 5.0),
    ]
    many = list(told) * 50
    assert len(spread(many, 7)) == 7
    assert (spread(many, 7)[0], spread(many, 7)[-1]) == (many[0], many[-1])


def test_the_model_is_the_weighted_sum_of_the_winners() -> None:
    run = sample()
    weighted = [task.weight * (task.best_s or 0) for task in run.view.tasks]
    assert run.view.tuned_s == pytest.approx(sum(weighted))
    assert run.devices == ("a desk",)


def test_time_between_sessions_is_not_in_the_picture() -> None:
    store = MemoryStore()
    fill(store, ["conv"], 20)
    before = store.sessions()[0]
    again = begin_session(store, before.started_s + 86_400)
    late = SlotSpan(
        "runner", "runner-1", "busy", before.started_s + 86_401, before.started_s + 86_402
    )
    store.put(History((late,)))
    store.put(SessionEnded(again, before.started_s + 86_403, "trials"))
    told = run_report(store, MANIFEST, name="x", place="x", kernel_sets={})
    assert max(span.ended_s for span in told.spans) <= before.elapsed_s + 3
    assert told.spans[-1].started_s == pytest.approx(before.elapsed_s + 1)
