"""What the cost model is shown of each record."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tuner.candidate import Candidate, CandidateKind
from tuner.cost_models.dataset import Dataset
from tuner.record import Measurement, Record, Status, Trial


def record(status: Status, *samples_s: float, task: str = "a", rung: int = 0) -> Record:
    candidate = Candidate(CandidateKind.TRACE, "[]", "test")
    return Record(Trial(task, candidate, rung=rung), Measurement(status, samples_s))


def vector(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)


@pytest.mark.parametrize(
    ("status", "samples_s", "latency_s"),
    [
        (Status.OK, (1.0, 3.0, 2.0), 2.0),
        (Status.CENSORED, (5.0,), 5.0),
        (Status.DUPLICATE, (5.0, 7.0, 6.0), 6.0),
        (Status.WRONG, (), math.inf),
        (Status.RUN_FAILED, (), math.inf),
        (Status.TIMEOUT, (), math.inf),
    ],
)
def test_each_status_gives_a_latency(
    status: Status, samples_s: tuple[float, ...], latency_s: float
) -> None:
    dataset = Dataset()
    dataset.add(record(status, *samples_s), vector(1.0))
    assert dataset.snapshot().latencies_s.tolist() == [latency_s]


def test_lost_trials_and_retimings_say_nothing() -> None:
    dataset = Dataset()
    dataset.add(record(Status.LOST), vector(1.0))
    dataset.add(record(Status.OK, 1.0, rung=1), vector(1.0))
    assert len(dataset) == 0


def test_only_what_was_cut_off_is_a_bound() -> None:
    dataset = Dataset()
    dataset.add(record(Status.OK, 1.0), vector(1.0))
    dataset.add(record(Status.CENSORED, 5.0), vector(2.0))
    dataset.add(record(Status.WRONG), vector(3.0))
    dataset.add(record(Status.CENSORED), vector(4.0))  # no sample: no bound
    rows = dataset.snapshot()
    assert rows.bounds.tolist() == [False, True, False, False]
    again = rows.with_more(dataset.snapshot(1))
    assert again.bounds.tolist() == [False, True, False, False, True, False, False]
    assert again.latencies_s.tolist()[4] == 5.0


def test_rows_of_a_task_share_a_group() -> None:
    dataset = Dataset()
    for task in "aba":
        dataset.add(record(Status.OK, 1.0, task=task), vector(1.0))
    assert dataset.snapshot().groups.tolist() == [0, 1, 0]


def test_features_of_another_length_begin_anew() -> None:
    dataset = Dataset()
    dataset.add(record(Status.OK, 1.0), vector(1.0))
    dataset.add(record(Status.OK, 2.0), vector(1.0, 2.0))
    assert dataset.snapshot().features.tolist() == [[1.0, 2.0]]
