"""The contract of space pools, on the replayed one."""

from __future__ import annotations

import numpy as np
import pytest

from tests.contracts.space_pool import SpacePoolContract
from tuner.candidate import Candidate, CandidateKind
from tuner.cost_models.random_model import RandomModel
from tuner.record import Measurement, Status
from tuner.replay.recorded import Recorded
from tuner.replay.replay import ReplaySpacePool


def recorded(number: int) -> Recorded:
    status = Status.INVALID if number % 5 == 0 else Status.OK
    return Recorded(
        Candidate(CandidateKind.TRACE, f"[{number}]", "test"),
        np.array([number, 1.0], dtype=np.float32),
        Measurement(status, (1e-3,), error="refused" if status is Status.INVALID else ""),
    )


def loaded(data: bytes) -> RandomModel:
    model = RandomModel(0)
    model.load(data)
    return model


class TestReplaySpacePool(SpacePoolContract):
    @pytest.fixture
    def task_key(self) -> str:
        return "task"

    @pytest.fixture
    def model(self) -> bytes:
        return RandomModel(0).dump()

    @pytest.fixture
    def pool(self) -> ReplaySpacePool:
        return ReplaySpacePool({"task": [recorded(n) for n in range(60)]}, load=loaded)
