"""Pools follow the cluster and the work: more workers while there is much, fewer before the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cluster.ray_workers.elastic import ElasticPools
from cluster.scaling.pool_policy import PoolCounts
from cluster.scaling.scaling_policy import LEAST_BUILDERS, Cluster, Demand, Node, WorkerCounts

DEVICES, CPUS = 3, 12


class Sizes:
    """Stands for the pools: notes how large they should be."""

    def __init__(self) -> None:
        self.worker_counts = WorkerCounts(0, 0, 0)
        self.space_workers = 0
        self.machines: Sequence[str] = ()
        self.ready = 1

    @property
    def counts(self) -> PoolCounts:
        return PoolCounts(ready=self.ready, wanted=self.space_workers, waiting=0, lost=0)

    def on_nodes(self, nodes: Sequence[Node]) -> None:
        self.nodes = nodes

    def resize(self, wanted: Any, machines: Sequence[str]) -> None:
        if isinstance(wanted, WorkerCounts):
            self.worker_counts = wanted
        else:
            self.space_workers = wanted
        self.machines = machines


class Fleet:
    """A growing cluster that has all it may have, and a run on it, a look at a time."""

    def __init__(self, *, grows: bool = True) -> None:
        self.now_s = 0.0
        self.left = 10_000
        self.sizes = Sizes()
        nodes = [Node(name, {"CPU": 4.0, "GPU": 1.0}) for name in "abc"]
        self._pools = ElasticPools(
            self.sizes,  # type: ignore[arg-type]
            self.sizes,  # type: ignore[arg-type]
            look=lambda: Cluster(nodes, grows),
            demand=lambda: Demand("GPU", self.left),
            clock=lambda: self.now_s,
        )

    def runners(self, seconds: int) -> int:
        """How many are wanted after so many more seconds."""
        for _ in range(seconds):
            self.now_s += 1.0
            self._pools.adapt()
        return self.sizes.worker_counts.runners


def test_machines_are_let_go_while_the_last_trials_are_measured() -> None:
    fleet = Fleet()
    assert fleet.runners(1) == 2 * DEVICES + 1
    fleet.left = 60
    assert fleet.runners(20) == DEVICES, "they may be needed again"
    assert fleet.runners(20) == 2
    fleet.left = 5
    assert fleet.runners(40) == 1
    assert fleet.sizes.worker_counts == WorkerCounts(1, 2, 1)
    assert fleet.sizes.space_workers == 1
    assert fleet.sizes.machines == ["a", "b", "c"]


def test_a_cluster_that_grows_no_more_still_shrinks() -> None:
    fleet = Fleet()
    assert fleet.runners(300) == DEVICES, "none came for what waited"
    fleet.left = 5
    assert fleet.runners(40) == 1


def test_builders_leave_room_for_the_first_space_worker() -> None:
    fleet = Fleet()
    fleet.sizes.ready = 0
    fleet.runners(40)
    assert fleet.sizes.worker_counts.builders == CPUS, "each takes half a CPU"
    fleet.sizes.ready = 1
    fleet.runners(1)
    assert fleet.sizes.worker_counts.builders == LEAST_BUILDERS * (2 * DEVICES + 1)


def test_a_cluster_of_fixed_size_keeps_all_to_the_end() -> None:
    fleet = Fleet(grows=False)
    fleet.left = 5
    assert fleet.runners(200) == DEVICES
