"""What every measurer keeps to: each submitted trial comes back as exactly one record.

The suite runs on the replay measurer here; `tests/actors` and `tests/cluster` run it on the ones
that really build and measure, by making `Measuring` of their own.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.contracts.measurer import MeasurerContract, Measuring
from tuner.candidate import Candidate, CandidateKind
from tuner.record import Measurement, Status
from tuner.replay.recorded import Recorded
from tuner.replay.replay import ReplayMeasurer, VirtualClock


def recorded(number: int, measurement: Measurement) -> Recorded:
    candidate = Candidate(CandidateKind.TRACE, f"[{number}]", "test")
    return Recorded(candidate, np.zeros(1, dtype=np.float32), measurement)


class TestReplayMeasurer(MeasurerContract):
    @pytest.fixture
    def measuring(self) -> Measuring:
        good = [
            recorded(n, Measurement(Status.OK, (1e-3 * (n + 1),) * 3, build_s=0.1, run_s=0.1))
            for n in range(4)
        ]
        broken = recorded(9, Measurement(Status.BUILD_FAILED, error="odd", build_s=0.1))
        measurer = ReplayMeasurer({"task": [*good, broken]}, slots=2, clock=VirtualClock())
        return Measuring(
            measurer,
            task_key="task",
            good=tuple(r.candidate for r in good),
            invalid=Candidate(CandidateKind.TRACE, "nowhere", "test"),
        )
