"""What records say: the same to whoever reads them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tests.tuner.tracking.fake_sink import FakeSink, push_all
from tests.tuner.tracking.tracked_runs import many_tasks, replayed_run
from tuner.candidate import Candidate, CandidateKind
from tuner.record import Measurement, Record, Status, Trial
from tuner.storage.base import SessionSpan, work_until_s
from tuner.task import Task
from tuner.tracking.entries import Metrics
from tuner.tracking.record_metrics import RecordMetrics

CONV = Task("aa", "conv", "{}", "llvm", weight=3, flops=2e6)
DENSE = Task("bb", "dense", "{}", "llvm")
SYMBOLIC = Task("cc", "open", "{}", "llvm", shapes=(((("T", 5),), 1.0), ((("T", 64),), 3.0)))
SESSION = (SessionSpan(1, 1000.0, 1100.0),)


def record(latency_s: float | None, time_s: float, *, rung: int = 0, task: Task = CONV) -> Record:
    candidate = Candidate(CandidateKind.TRACE, f"[{time_s}]", "space")
    measured = (
        Measurement(Status.BUILD_FAILED, error="no")
        if latency_s is None
        else Measurement(Status.OK, (latency_s,))
    )
    return Record(Trial(task.key, candidate, rung=rung), measured, time_s=time_s)


def said(
    *records: Record, sessions: tuple[SessionSpan, ...] = SESSION, task: Task = CONV
) -> list[Metrics]:
    metrics = RecordMetrics([task], {})
    taken = [entry for each in records for entry in metrics.take(each, sessions)]
    return [entry for entry in taken if isinstance(entry, Metrics) and entry.task]


def curve(entries: list[Metrics], name: str) -> list[tuple[int, float]]:
    return [(e.step, round(e.values[name], 6)) for e in entries if name in e.values]


def test_a_point_of_each_curve_for_each_record_of_a_task() -> None:
    found = said(record(2e-3, 1001.5), record(None, 1002.0), record(1e-3, 1002.5))
    assert curve(found, "task/latency_us") == [(1, 2000.0), (3, 1000.0)]
    assert curve(found, "task/best_us") == [(1, 2000.0), (2, 2000.0), (3, 1000.0)]
    assert curve(found, "task/best_us_by_time") == [(1, 2000.0), (2, 2000.0), (2, 1000.0)]
    assert curve(found, "task/gflops") == [(1, 1.0), (3, 2.0)]
    assert [e.time_s for e in found] == [1001.5, 1001.5, 1002.0, 1002.0, 1002.5, 1002.5]
    assert {e.task for e in found} == {"aa"}


def test_a_record_before_any_time_is_a_step_without_values() -> None:
    assert said(record(None, 1001.0)) == [Metrics("aa", 1, {}, 1001.0)]


def test_a_finalist_is_timed_again_without_touching_the_curve() -> None:
    found = said(record(2e-3, 1001.0), record(3e-3, 1002.0, rung=1))
    assert curve(found, "task/latency_us") == [(1, 2000.0)]
    assert curve(found, "task/retimed_us") == [(2, 3000.0)]
    assert curve(found, "task/best_us") == [(1, 2000.0), (2, 2000.0)]


def test_of_many_shapes_the_best_is_known_once_all_have_a_time() -> None:
    records = []
    for number, (instance, _) in enumerate(SYMBOLIC.shapes):
        one = record((1 + number) * 1e-3, 1001.0 + number, task=SYMBOLIC)
        records.append(replace(one, trial=replace(one.trial, instance=instance)))
    found = said(*records, task=SYMBOLIC)
    assert curve(found, "task/latency_us") == [(1, 1000.0), (2, 2000.0)]
    assert curve(found, "task/best_us") == [(2, 1750.0)]


def test_a_time_that_is_none_is_no_entry_that_cannot_be_stored() -> None:
    assert all(math.isfinite(e.time_s) for e in said(record(1e-3, math.nan)))


def test_the_best_by_time_goes_on_with_the_next_session_and_never_back() -> None:
    sessions = (
        SessionSpan(1, 1000.0, 1005.5, 1005.5, "trials"),
        SessionSpan(2, 9000.0, 9050.0),
    )
    records = (record(4e-3, 1005.0), record(3e-3, 9002.0), record(2e-3, 8000.0))
    assert curve(said(*records, sessions=sessions), "task/best_us_by_time") == [
        (5, 4000.0),
        (7, 3000.0),
        (7, 2000.0),
    ]


def test_time_worked_leaves_out_what_lies_between_sessions() -> None:
    sessions = (
        SessionSpan(1, 1000.0, 1010.0, 1010.0, "time"),
        SessionSpan(2, 2000.0, 2004.0),  # killed
        SessionSpan(3, 3000.0, 3001.0),
    )
    moments = (0.0, 1003.0, 1500.0, 2002.0, 2500.0, 3000.5, 3010.0)  # the last is not yet over
    assert [work_until_s(sessions, at) for at in moments] == [0, 3, 10, 12, 14, 14.5, 24]
    assert work_until_s((), 1000.0) == 0.0


def of_the_model(*records: Record, defaults: dict[str, str] | None = None) -> list[Metrics]:
    return whole_of(RecordMetrics([CONV, DENSE], defaults or {}), records)


def whole_of(metrics: RecordMetrics, records: Sequence[Record]) -> list[Metrics]:
    taken = [entry for each in records for entry in metrics.take(each, SESSION)]
    return [entry for entry in taken if isinstance(entry, Metrics) and entry.task is None]


def test_the_models_latency_over_trials_and_time_once_every_task_has_one() -> None:
    """Each task counts as often as it runs: the convolution three times."""
    slow, fast = record(2e-3, 1001.5), record(1e-3, 1004.5)
    default = {CONV.key: slow.trial.candidate.key}
    records = (
        slow,
        record(None, 1002.0, task=DENSE),  # not built, which costs no trial
        record(1e-3, 1003.2, task=DENSE),
        record(4e-3, 1003.4),  # nothing new, and in the same second
        record(15e-4, 1004.2),
        fast,  # in the same second, which has its point
        record(9e-4, 1004.9, rung=1),
        record(5e-3, 1006.0),
    )
    found = of_the_model(*records, defaults=default)
    assert curve(found, "model/latency_ms") == [
        (2, 7.0),
        (4, 5.5),
        (5, 4.0),
        (6, 4.0),
    ]
    assert curve(found, "model/latency_ms_by_time") == [(3, 7.0), (4, 5.5), (6, 4.0)]
    for name in ("model/gain", "model/untuned_ms"):
        assert curve(found, name) == []  # nobody timed the other task's default


def test_the_untuned_model_and_the_gain_are_known_once_each_default_is() -> None:
    conv, dense = record(2e-3, 1001.0), record(1e-3, 1002.0, task=DENSE)
    defaults = {r.trial.task_key: r.trial.candidate.key for r in (conv, dense)}
    found = of_the_model(conv, dense, record(1e-3, 1003.0), defaults=defaults)
    assert curve(found, "model/untuned_ms") == [(0, 7.0)]
    assert curve(found, "model/latency_ms") == [(2, 7.0), (3, 4.0)]
    assert curve(found, "model/gain") == [(2, 1.0), (3, 1.75)]


def test_with_many_shapes_the_untuned_model_is_an_estimate_of_which_the_latest_counts() -> None:
    short, long = (instance for instance, _ in SYMBOLIC.shapes)
    default, other = record(4e-3, 1001.0, task=SYMBOLIC), record(9e-3, 1002.0, task=SYMBOLIC)
    better = record(1e-3, 1003.0, task=SYMBOLIC)
    told = [
        replace(one, trial=replace(one.trial, instance=instance))
        for one, instance in ((default, short), (other, long), (better, short))
    ]
    metrics = RecordMetrics([SYMBOLIC], {SYMBOLIC.key: default.trial.candidate.key})
    found = whole_of(metrics, told)
    steps = curve(found, "model/untuned_ms")
    assert len(steps) == 2
    assert {step for step, _ in steps} == {0}
    (_, gain), (_, latency_ms) = (curve(found, f"model/{n}")[-1] for n in ("gain", "latency_ms"))
    assert abs(steps[-1][1] - gain * latency_ms) < 0.01 * steps[-1][1]


def test_a_task_without_any_time_leaves_the_model_unknown() -> None:
    assert of_the_model(record(2e-3, 1001.0), record(None, 1002.0, task=DENSE)) == []


def test_what_records_say_of_the_model_is_what_its_session_says_at_the_end(tmp_path: Path) -> None:
    replayed_run(tmp_path, many_tasks(3), trials=60)
    sink = FakeSink()
    push_all(tmp_path, sink)
    whole = [e for e in sink.taken if isinstance(e, Metrics) and e.task is None]
    for name in ("model/gain", "model/latency_ms"):
        said = [(e.step, e.values[name]) for e in whole if name in e.values]
        last = max(step for step, _ in said)
        assert last == 60
        at_the_end = {value for step, value in said if step == last}
        assert len(at_the_end) == 1, name
