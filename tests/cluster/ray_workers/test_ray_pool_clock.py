"""What a pool on Ray does about time: machines that are silent or frozen hold nobody up.

Ray's objects are played here, with a clock: a wait is what it would cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from actors.ray_actors import About
from cluster.ray_workers import ray_pool
from cluster.ray_workers.ray_pool import BEAT_S, RayPool
from cluster.scaling.pool import Pool
from cluster.scaling.pool_policy import PoolPolicy
from cluster.scaling.scaling_policy import Node

pytestmark = pytest.mark.ray


@dataclass(eq=False)
class Object:
    """What a call answers; `far` is on a machine that gives nothing."""

    value: Any = None
    error: Exception | None = None
    ready: bool = False
    far: bool = False


@dataclass(eq=False)
class World:
    """Plays `ray`, and a worker's calls."""

    now_s: float = 0.0
    calls: dict[str, Object] = field(default_factory=dict)
    beats: list[Object] = field(default_factory=list)
    events: list[str] = field(default_factory=list)

    def wait(
        self, refs: Sequence[Object], *, num_returns: int, timeout: float, fetch_local: bool
    ) -> tuple[list[Object], list[Object]]:
        ready = [r for r in refs if r.ready and not (r.far and fetch_local)]
        return ready, [r for r in refs if r not in ready]

    def get(self, ref: Object, *, timeout: float) -> Any:
        if ref.far:
            self.now_s += timeout
            raise TimeoutError
        if ref.error is not None:
            raise ref.error
        return ref.value

    def call(self, worker: str, job: str) -> Object:
        self.calls[job] = Object()
        return self.calls[job]

    def beat(self, worker: str) -> Object:
        self.beats.append(Object())
        return self.beats[-1]

    def start(self, name: str) -> Any:
        self.events.append(f"start {name}")
        started = Object(About(f"node of {name}"), ready=True)

        class Ready:
            remote = staticmethod(lambda: started)

        return type("Actor", (), {"ready": Ready()})()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(ray_pool, "ray", made)
    return made


def pool_of(world: World, workers: int, *, lease_s: float = 600.0) -> RayPool[str]:
    pool: RayPool[str] = RayPool(
        Pool("worker", lambda job: lease_s, PoolPolicy(attempts=1)),
        start=world.start,
        call=world.call,
        beat=world.beat,
        stop=lambda actor: None,
        suspect=lambda node: world.events.append(f"suspect {node}"),
        clock=lambda: world.now_s,
    )
    pool.resize(workers)
    pool.step()
    for number in range(workers):
        pool.submit(f"job {number}")
    world.events.clear()
    return pool


def answer(world: World, job: str, *, far: bool = False) -> None:
    world.calls[job].ready, world.calls[job].far, world.calls[job].value = True, far, job


def test_answers_that_do_not_come_over_cost_those_that_do_no_time(world: World) -> None:
    pool = pool_of(world, 5)
    for number in range(4):
        answer(world, f"job {number}", far=True)
    answer(world, "job 4")
    assert [d.value for d in pool.step()] == ["job 4"]
    assert pool.pending() == []
    world.calls["job 0"].far = False
    assert [d.value for d in pool.step()] == ["job 0"]
    assert world.now_s == 0.0


def test_answers_that_never_come_over_are_lost_together(world: World) -> None:
    pool = pool_of(world, 5)
    for number in range(5):
        answer(world, f"job {number}", far=True)
    assert pool.step() == []
    world.now_s = 9.0
    assert pool.step() == []
    world.now_s = 10.0
    lost = {d.lost for d in pool.step()}
    assert lost == {"its answer did not come within 10 s"}
    assert world.now_s == 10.0


def test_all_machines_that_lost_a_worker_are_suspects_before_any_worker_is_replaced(
    world: World,
) -> None:
    """Suspects are asked whether they live when the next worker is started: all at once."""
    from ray.exceptions import ActorDiedError

    pool = pool_of(world, 4)
    for job in world.calls.values():
        job.ready, job.error = True, ActorDiedError()
    assert len(pool.step()) == 4
    first_start = next(i for i, event in enumerate(world.events) if event.startswith("start"))
    suspected = {event for event in world.events[:first_start] if event.startswith("suspect")}
    assert len(suspected) == 4


def test_signs_of_life_say_how_much_of_a_lease_was_frozen(world: World) -> None:
    pool = pool_of(world, 1, lease_s=20.0)
    frozen_s = 100.0
    for _ in range(40):
        world.now_s += BEAT_S / 2
        frozen_s += 0.75 * BEAT_S / 2
        for beat in world.beats:
            beat.ready, beat.value = True, frozen_s
        assert pool.step() == []
    answer(world, "job 0")
    assert [d.value for d in pool.step()] == ["job 0"]


def test_what_runs_five_seconds_before_a_machine_leaves_is_given_to_another(world: World) -> None:
    pool: RayPool[str] = RayPool(
        Pool("worker", lambda job: 600.0),
        start=world.start,
        call=world.call,
        beat=world.beat,
        stop=lambda actor: None,
        clock=lambda: world.now_s,
    )
    pool.resize(1)
    pool.step()
    pool.submit("job")
    first = world.calls["job"]
    pool.on_nodes([Node("node of worker-1", {}, leaves_in_s=30.0)])
    pool.step()
    assert world.calls["job"] is first, "it may finish"
    pool.on_nodes([Node("node of worker-1", {}, leaves_in_s=5.0)])
    pool.step()
    assert world.calls["job"] is not first
