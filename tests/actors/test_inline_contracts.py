"""The contracts of measurers and space pools, on the ones that work without a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from actors.builder import Builder
from actors.runner import Runner
from spaces.targets.target import emulate_target, resolve_target
from tests.actors.inline_measurer import InlineMeasurer
from tests.actors.inline_space_pool import InlineSpacePool
from tests.contracts.measurer import MeasurerContract, Measuring
from tests.contracts.programs import BROKEN, gemm_task, sampled, setting_of, twin_of
from tests.contracts.space_pool import SpacePoolContract
from tuner.candidate import Candidate
from tuner.record import Provenance
from tuner.task import Task

pytestmark = [pytest.mark.tvm, pytest.mark.slow]


@pytest.fixture(scope="module")
def task() -> Task:
    return gemm_task()


class TestInlineMeasurer(MeasurerContract):
    """On one builder and one runner of this process."""

    @pytest.fixture(scope="class")
    @classmethod
    def measuring(cls, task: Task, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Measuring]:
        yield from open_measuring(task, tmp_path_factory.mktemp("inline"), setting_of(task))


class _OnCuda(MeasurerContract):
    """Of a product on the device that `find_target` finds."""

    find_target: ClassVar[Callable[[], str]]

    @pytest.fixture(scope="class")
    @classmethod
    def measuring(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Measuring]:
        yield from open_measuring(gemm_task(cls.find_target()), tmp_path_factory.mktemp("cuda"))


@pytest.mark.long
class TestInlineMeasurerOfTheEmulatedDevice(_OnCuda):
    find_target = partial(emulate_target, '{"kind":"cuda","arch":"sm_80"}')


@pytest.mark.gpu
class TestInlineMeasurerOfADevice(_OnCuda):
    find_target = partial(resolve_target, "cuda")


def open_measuring(
    task: Task, folder: Path, setting: Candidate | None = None
) -> Iterator[Measuring]:
    """A measurer of a task, and what it can be asked for."""
    measurer = InlineMeasurer(
        [task],
        Builder(log_dir=folder),
        Runner(target=task.target, log_dir=folder, scratch=folder),
        provenance=Provenance("inline", "this device", "this tvm"),
    )
    good = sampled(task, 4)
    yield Measuring(measurer, task.key, good, BROKEN, twin_of(task, good[0]), setting)
    measurer.close()


class TestInlineSpacePool(SpacePoolContract):
    @pytest.fixture
    def task_key(self, task: Task) -> str:
        return task.key

    @pytest.fixture
    def pool(self, task: Task) -> InlineSpacePool:
        return InlineSpacePool([task], capacity=64)

    @pytest.fixture
    def model(self, task: Task, pool: InlineSpacePool) -> bytes:
        return fitted_model(self, pool, task.key)


def fitted_model(suite: SpacePoolContract, pool: InlineSpacePool, task_key: str) -> bytes:
    """A cost model that learned something about a task's candidates."""
    from tuner.candidate import Draft
    from tuner.cost_models.xgb import XgbModel

    answers = suite.evaluate(pool, [Draft(task_key, n, seed=n) for n in range(32)])
    rows = np.stack([a.features for a in answers if a.features is not None])
    model = XgbModel(0)
    times = np.linspace(1e-3, 2e-3, len(rows), dtype=np.float32)
    model.fit(rows, times, np.zeros(len(rows), dtype=np.int32))
    return model.dump()
