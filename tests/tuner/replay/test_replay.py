"""Replay: recorded measurements in virtual time."""

from __future__ import annotations

import numpy as np

from tuner.candidate import Candidate, CandidateKind, Draft
from tuner.record import Measurement, Status, Trial
from tuner.replay.recorded import Recorded
from tuner.replay.replay import ReplayMeasurer, ReplaySpacePool, VirtualClock


def recorded(number: int, *, run_s: float = 1.0) -> Recorded:
    return Recorded(
        Candidate(CandidateKind.TRACE, f"[{number}]", "test"),
        np.array([number], dtype=np.float32),
        Measurement(Status.OK, (1e-3,), run_s=run_s),
    )


def trial(number: int) -> Trial:
    return Trial("task", recorded(number).candidate)


def test_records_come_in_the_order_in_which_they_would_end() -> None:
    clock = VirtualClock()
    space = {"task": [recorded(1, run_s=3.0), recorded(2, run_s=1.0)]}
    measurer = ReplayMeasurer(space, slots=2, clock=clock)
    measurer.submit([trial(1), trial(2)])
    assert [r.trial for r in measurer.collect(10.0)] == [trial(2)]
    assert clock() == 1.0
    assert [r.trial for r in measurer.collect(10.0)] == [trial(1)]
    assert clock() == 3.0


def test_waiting_for_nothing_takes_the_whole_timeout() -> None:
    clock = VirtualClock()
    measurer = ReplayMeasurer({"task": [recorded(1, run_s=3.0)]}, slots=1, clock=clock)
    measurer.submit([trial(1)])
    assert measurer.collect(2.0) == []
    assert clock() == 2.0


def test_a_mutation_is_a_neighbour_of_its_parent() -> None:
    pool = ReplaySpacePool({"task": [recorded(n) for n in range(1000)]}, capacity=100)
    parent = recorded(500).candidate
    pool.submit([Draft("task", n, seed=n, parent=parent) for n in range(50)])
    children = [int(a.candidate.payload[1:-1]) for a in pool.collect(0.0) if a.candidate]
    assert len(children) == 50
    assert all(0 < abs(child - 500) <= 12 for child in children)
