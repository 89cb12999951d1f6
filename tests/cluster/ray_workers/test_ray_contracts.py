"""The contracts of measurers and space pools, on Ray actors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.measurer import MeasurerContract, Measuring
from tests.contracts.programs import BROKEN, gemm_task, sampled, setting_of, twin_of
from tests.contracts.space_pool import SpacePoolContract
from tuner.effort import EFFORTS
from tuner.measure import SpacePool
from tuner.task import Task

pytestmark = [
    pytest.mark.tvm,
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.usefixtures("embedded_ray"),
]


@pytest.fixture(scope="module")
def task() -> Task:
    return gemm_task()


def start(kind: str, folder: Path, task: Task) -> Any:
    """A function that makes actors of a kind."""
    from actors.chunked_args import in_pieces
    from actors.ray_actors import WorkerPlace, actor_class

    place = WorkerPlace(quiet=folder / "quiet", logs=folder / "logs", scratch=folder / "scratch")
    return lambda name: actor_class(kind).remote(name, place, *in_pieces([task]))


@pytest.fixture(scope="module")
def measuring(
    task: Task, tmp_path_factory: pytest.TempPathFactory, embedded_ray: None
) -> Iterator[Measuring]:
    from cluster.ray_workers.ray_measurer import RayMeasurer, Starters
    from cluster.scaling.scaling_policy import WorkerCounts

    folder = tmp_path_factory.mktemp("ray")
    starters = Starters(start("builder", folder, task), start("runner", folder, task))
    measurer = RayMeasurer(starters, effort=EFFORTS["quick"])
    measurer.resize(WorkerCounts(runners=1, builders=2, space_workers=1))
    good = sampled(task, 4)
    twin, setting = twin_of(task, good[0]), setting_of(task)
    yield Measuring(measurer, task.key, good, BROKEN, twin, setting)
    measurer.close()


@pytest.fixture(scope="module")
def pool(
    task: Task, tmp_path_factory: pytest.TempPathFactory, embedded_ray: None
) -> Iterator[SpacePool]:
    from cluster.ray_workers.ray_space_pool import RaySpacePool

    pool = RaySpacePool(start("space", tmp_path_factory.mktemp("space"), task))
    pool.resize(1)
    yield pool
    pool.close()


class TestRayMeasurer(MeasurerContract):
    """On builder and runner actors."""


class TestRaySpacePool(SpacePoolContract):
    @pytest.fixture
    def task_key(self, task: Task) -> str:
        return task.key

    @pytest.fixture
    def model(self) -> bytes:
        import numpy as np

        from spaces.features.vectors import FEATURE_LENGTH
        from tuner.cost_models.xgb import XgbModel

        model = XgbModel(0)
        rows = np.random.default_rng(0).random((16, FEATURE_LENGTH), dtype=np.float32)
        times = np.linspace(1e-3, 2e-3, 16, dtype=np.float32)
        model.fit(rows, times, np.zeros(16, dtype=np.int32))
        return model.dump()
