"""Which machines a target is for, where the cluster has them, starts them, or has none."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from cluster.app.driver.device_wait import NoMachine, Wait, machines_for
from cluster.scaling.scaling_policy import Cluster, Node
from tuner.errors import TunerError

pytestmark = pytest.mark.ray

HEAD = Node("head", {"node:10.0.0.1": 1.0})
CPU = Node("cpu", {"measure": 1.0})
GPU = Node("gpu", {"CPU": 6.0, "GPU": 1.0, "measure": 1.0})
BUILDER = Node("builder", {"CPU": 16.0})


class World(threading.Event):
    """A cluster in which nothing but waiting takes time: a second is over with each look at `stop`.

    Args:
        comes: machines by the resource they are started for, each three seconds after somebody
            asked for it; the autoscaler has no others.
        joins: a machine that somebody joins by hand, with when.
    """

    def __init__(
        self,
        *nodes: Node,
        grows: bool = False,
        comes: Sequence[Node] = (),
        joins: tuple[float, Node] | None = None,
    ) -> None:
        super().__init__()
        self.nodes, self.grows, self.comes, self.joins = list(nodes), grows, comes, joins
        self.now_s = 0.0
        self.stopped_s = float("inf")
        self.due: tuple[float, Node] | None = None
        self.asked_for: list[str] = []
        self.waiting = 0

    def look(self) -> Cluster:
        for event in (self.due, self.joins):
            if event is not None and event[0] <= self.now_s and event[1] not in self.nodes:
                self.nodes.append(event[1])
        return Cluster(tuple(self.nodes), self.grows)

    @contextmanager
    def asked(self, resource: str) -> Iterator[None]:
        self.asked_for.append(resource)
        self.waiting += 1
        found = next((node for node in self.comes if resource in node.resources), None)
        if found is not None:
            self.due = (self.now_s + 3.0, found)
        try:
            yield
        finally:
            self.waiting -= 1

    def in_vain(self, resource: str) -> bool:
        """It takes the autoscaler a second to say so."""
        return self.grows and self.due is None and self.now_s >= 1.0

    def wait(self, timeout: float | None = None) -> bool:
        self.now_s += timeout or 0.0
        return self.now_s >= self.stopped_s


def found(world: World, target: str, limit_s: float | None = None) -> tuple[str, list[str]]:
    """The target and its machines."""
    wait = Wait(world.look, world, limit_s, world, clock=lambda: world.now_s)
    target, machines = machines_for(target, wait)
    assert world.waiting == 0, "nothing is asked for any more"
    return target, [machine.id for machine in machines]


@pytest.mark.parametrize(
    ("target", "kind", "machine"),
    [
        ("auto", "cuda", "gpu"),
        ("cuda", "cuda", "gpu"),
        ("nvidia/nvidia-h100", "nvidia/nvidia-h100", "gpu"),
        ("llvm", "llvm", "cpu"),
        ('{"kind":"llvm","mcpu":"znver4"}', '{"kind":"llvm","mcpu":"znver4"}', "cpu"),
    ],
)
@pytest.mark.parametrize("grows", [False, True])
def test_machines_that_are_there_are_taken_at_once(
    target: str, kind: str, machine: str, grows: bool
) -> None:
    gpu = Node("gpu", {"GPU": 1.0})
    world = World(HEAD, CPU, gpu, grows=grows)
    assert found(world, target) == (kind, [machine])
    assert world.asked_for == []


@pytest.mark.parametrize("target", ["auto", "llvm"])
def test_a_cluster_of_fixed_size_that_declares_nothing_measures_anywhere(target: str) -> None:
    world = World(HEAD, BUILDER)
    assert found(world, target) == ("llvm", [])
    assert (world.asked_for, world.now_s) == ([], 0.0)


def test_a_fleet_of_cpus_at_its_minimum_starts_one_that_measures() -> None:
    world = World(HEAD, grows=True, comes=[CPU, BUILDER])
    assert found(world, "llvm") == ("llvm", ["cpu"])
    assert world.asked_for == ["measure"]


def test_one_that_only_builds_is_not_asked() -> None:
    world = World(HEAD, BUILDER, grows=True, comes=[CPU, BUILDER])
    assert found(world, "llvm") == ("llvm", ["cpu"])


@pytest.mark.parametrize(
    ("comes", "expected", "asked_for"),
    [
        ([CPU, BUILDER], ("llvm", ["cpu"]), ["GPU", "measure"]),
        ([GPU, BUILDER], ("cuda", ["gpu"]), ["GPU"]),
        ([CPU, GPU], ("cuda", ["gpu"]), ["GPU"]),
    ],
)
@pytest.mark.parametrize("limit_s", [None, 3600.0])
def test_auto_is_cuda_where_the_fleet_can_start_a_gpu(
    comes: list[Node],
    expected: tuple[str, list[str]],
    asked_for: list[str],
    limit_s: float | None,
) -> None:
    world = World(HEAD, grows=True, comes=comes)
    assert found(world, "auto", limit_s) == expected
    assert world.asked_for == asked_for
    assert world.now_s < 10.0, "the autoscaler's word ends the wait"


def test_auto_does_not_depend_on_what_others_left_running() -> None:
    assert found(World(HEAD, CPU, grows=True, comes=[CPU]), "auto") == ("llvm", ["cpu"])
    assert found(World(HEAD, CPU, grows=True, comes=[CPU, GPU]), "auto") == ("cuda", ["gpu"])


@pytest.mark.parametrize("grows", [False, True])
def test_a_gpu_that_nobody_will_start_is_refused_at_once(grows: bool) -> None:
    world = World(HEAD, CPU, grows=grows, comes=[CPU, BUILDER])
    with pytest.raises(NoMachine, match="no machine with a GPU and starts none; --device-wait"):
        found(world, "cuda")
    assert world.now_s < 10.0
    assert world.waiting == 0


def test_a_fleet_without_machines_that_measure_is_refused_at_once() -> None:
    with pytest.raises(NoMachine, match="resource `measure`"):
        found(World(HEAD, BUILDER, grows=True, comes=[BUILDER]), "llvm")


@pytest.mark.parametrize("grows", [False, True])
def test_who_says_how_long_waits_for_a_machine_that_somebody_joins(grows: bool) -> None:
    world = World(HEAD, grows=grows, joins=(200.0, GPU))
    assert found(world, "cuda", 300.0) == ("cuda", ["gpu"])


@pytest.mark.parametrize("target", ["cuda", "llvm"])
def test_a_machine_that_does_not_come_in_time(target: str) -> None:
    world = World(HEAD, grows=True, joins=(400.0, GPU))
    with pytest.raises(TunerError, match="joined within 300 s"):
        found(world, target, 300.0)
    assert world.waiting == 0


def test_one_that_leaves_is_none() -> None:
    leaving = Node("old", {"GPU": 1.0}, leaves_in_s=20.0)
    assert found(World(HEAD, leaving, grows=True, comes=[GPU]), "cuda") == ("cuda", ["gpu"])


def test_a_wait_can_be_stopped() -> None:
    world = World(HEAD, grows=True, joins=(400.0, GPU))
    world.stopped_s = 5.0
    with pytest.raises(KeyboardInterrupt):
        found(world, "cuda", 300.0)
    assert world.now_s == world.stopped_s
    assert world.waiting == 0
