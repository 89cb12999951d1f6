"""Answers that lie on a machine that is cut off: nobody waits for one of them."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.fleet.local import LocalFleet, local_fleet
from cluster.scaling.pool import Pool
from cluster.scaling.pool_policy import PoolPolicy

pytestmark = [pytest.mark.ray, pytest.mark.long]

FAR, NEAR = {"far": 1.0}, {"near": 1.0}
FAR_WORKERS = 5


class Large:
    """A worker whose answers are too large to come with the word that they are there."""

    def ready(self) -> str:
        return "ready"

    def work(self, job: str) -> bytes:
        return job.encode() * (1 << 20)


@pytest.fixture
def fleet() -> Iterator[LocalFleet]:
    before = dict(os.environ)
    with local_fleet({"CPU": 1, "near": 1}) as started:
        yield started
    os.environ.clear()
    os.environ.update(before)


def test_answers_of_a_machine_that_is_cut_off_hold_nobody_up(fleet: LocalFleet) -> None:
    import ray

    from cluster.ray_workers.ray_pool import (
        RayPool,  # Ray is imported once it knows to stay on loopback
    )

    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    node = fleet.add({"CPU": 1, "far": FAR_WORKERS})
    ray.init(address=fleet.address, log_to_driver=False)
    actor = ray.remote(num_cpus=0, max_restarts=0)(Large)
    pool: RayPool[str] = RayPool(
        Pool("large", lambda job: 600.0, PoolPolicy(attempts=1)),
        start=lambda name: actor.options(resources=NEAR if name.endswith("-6") else FAR).remote(),
        call=lambda handle, job: handle.work.remote(job),
    )
    try:
        pool.resize(FAR_WORKERS + 1)
        until_s = time.monotonic() + 180.0
        while pool.state.ready < FAR_WORKERS + 1:
            assert time.monotonic() < until_s
            pool.step()
            time.sleep(0.05)
        for number in range(FAR_WORKERS):
            pool.submit(f"{number}")
        refs = pool.pending()
        assert len(ray.wait(refs, num_returns=len(refs), timeout=60, fetch_local=False)[0]) == 5
        stopped = fleet.cut_off(node)
        pool.submit("5")
        done: list[Any] = []
        while not done:
            assert time.monotonic() < until_s
            done += pool.step()
            time.sleep(0.05)
        assert [d.job for d in done] == ["5"]
        assert pool.state.load == FAR_WORKERS
        assert pool.pending() == []
        for process in stopped:
            process.resume()
        while len(done) < FAR_WORKERS + 1:
            assert time.monotonic() < until_s, done
            done += pool.step()
            time.sleep(0.05)
        assert sorted(d.job for d in done) == ["0", "1", "2", "3", "4", "5"]
        assert [d.lost for d in done] == [""] * (FAR_WORKERS + 1)
    finally:
        pool.close()
        ray.shutdown()
