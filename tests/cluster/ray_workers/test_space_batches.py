"""Drafts of many tasks are evaluated together: a worker is heard of a few times a second only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from cluster.ray_workers.ray_space_pool import RaySpacePool
from tuner.candidate import Draft
from tuner.measure import Evaluated

pytestmark = [pytest.mark.ray]


@pytest.fixture
def pool(embedded_ray: Any) -> Iterator[RaySpacePool]:
    import ray

    @ray.remote(num_cpus=0)
    class Worker:
        def ready(self) -> None: ...

        def beat(self) -> float:
            return 0.0

        def evaluate(
            self, drafts: tuple[Draft, ...], deadline_s: float
        ) -> tuple[list[Evaluated], float]:
            return [Evaluated(draft, error=f"with {len(drafts)}") for draft in drafts], 0.0

        def leave(self) -> None: ...

    with closing(RaySpacePool(lambda name: Worker.remote())) as made:
        made.resize(1)
        while not made.counts.ready:
            made.collect(0.1)
        yield made


def test_what_waits_for_a_worker_is_one_batch(pool: RaySpacePool) -> None:
    for number in range(11):  # as many tasks, one draft each
        pool.submit([Draft(f"task {number}", 1, 0)])
    answers: list[Evaluated] = []
    while len(answers) < 11:
        answers += pool.collect(5.0)
    assert sorted(answer.draft.task_key for answer in answers) == sorted(
        f"task {number}" for number in range(11)
    )
    assert [answer.error for answer in answers] == ["with 1", *["with 8"] * 8, *["with 2"] * 2]
