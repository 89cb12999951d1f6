"""The inline measurer, with a real builder and runner under the quiet lock."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors.builder import Builder
from actors.quiet_lock import Quiet
from actors.runner import Runner
from tests.actors.inline_measurer import InlineMeasurer
from tuner.candidate import Candidate, CandidateKind
from tuner.record import Provenance, Record, Status, Trial
from tuner.task import Task

pytestmark = pytest.mark.tvm

WAIT_S = 120.0
TARGET = json.dumps({"kind": "llvm", "num-cores": 1})


@pytest.fixture(scope="module")
def task() -> Task:
    import tvm
    from tvm import te

    a = te.placeholder((32, 32), name="A")
    c = te.compute((32, 32), lambda i, j: a[i, j] * 2.0 + 1.0, name="C")
    module = tvm.IRModule({"main": te.create_prim_func([a, c])})
    return Task("3" * 16, "scale", tvm.ir.save_json(module), TARGET)


@pytest.fixture
def measurer(task: Task, tmp_path: Path) -> Iterator[InlineMeasurer]:
    quiet = Quiet(tmp_path / "quiet")
    made = InlineMeasurer(
        [task],
        Builder(log_dir=tmp_path, quiet=quiet),
        Runner(target=TARGET, log_dir=tmp_path, scratch=tmp_path, quiet=quiet),
        provenance=Provenance("here", "this device", "these tools"),
        clock=lambda: 12.5,
    )
    yield made
    made.close()


def trials(task: Task) -> list[Trial]:
    """The untouched schedule, searched and timed again, and one that cannot be realised."""
    from spaces.design_space.realize import DEFAULT_SPACE
    from spaces.ir.schedules import canonical_payload, new_schedule, task_module

    payload = canonical_payload(new_schedule(task_module(task.module)).trace)
    good = Candidate(CandidateKind.TRACE, payload, DEFAULT_SPACE)
    bad = Candidate(CandidateKind.TRACE, "[[1],[]]", DEFAULT_SPACE)
    return [Trial(task.key, good), Trial(task.key, bad), Trial(task.key, good, rung=1)]


def collect(measurer: InlineMeasurer, count: int) -> list[Record]:
    records: list[Record] = []
    until = time.monotonic() + WAIT_S
    while len(records) < count:
        assert time.monotonic() < until, f"{len(records)} of {count} records came"
        records += measurer.collect(1.0)
    return records


def test_every_trial_comes_back_as_one_record(measurer: InlineMeasurer, task: Task) -> None:
    wanted = trials(task)
    assert measurer.free() == 3
    measurer.submit(wanted)
    assert measurer.free() == 0
    records = {record.trial: record for record in collect(measurer, 3)}
    assert measurer.free() == 3
    assert set(records) == set(wanted)
    statuses = [records[trial].measurement.status for trial in wanted]
    assert statuses == [Status.OK, Status.INVALID, Status.OK]
    searched, again = records[wanted[0]], records[wanted[2]]
    assert searched.latency_s is not None
    assert searched.measurement.build_s > 0
    assert searched.measurement.run_s > 0
    assert (again.time_s, again.provenance.worker) == (12.5, "here")
    assert measurer.collect(0.0) == []


def test_an_unknown_task_is_refused_and_nothing_is_taken(measurer: InlineMeasurer) -> None:
    candidate = Candidate(CandidateKind.TRACE, "", "")
    with pytest.raises(KeyError):
        measurer.submit([Trial("no such task", candidate)])
    assert measurer.free() == 3


def test_closing_while_the_builder_takes_the_last_trial_is_no_error(
    measurer: InlineMeasurer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A queue that looks full may be empty a moment later."""
    monkeypatch.setattr(measurer._to_build, "empty", lambda: False)
    measurer.close()


def test_closing_drops_what_is_in_flight(measurer: InlineMeasurer, task: Task) -> None:
    measurer.submit(trials(task))
    measurer.close()
    measurer.close()
