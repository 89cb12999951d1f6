"""A simulated fleet: slots that sleep as long as their work would take, on real Ray actors.

For fleets larger than the machines at hand. An asynchronous actor hosts many slots; to the pool
each is a builder or a runner, with its own handle and their answers. Everything between the search
and the slots is real: leases, signs of life, queues, the store. Only the work of a slot is
simulated.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ray

from actors.ray_actors import About, Compiled
from actors.runner import Learned
from cluster.ray_workers.ray_measurer import Starters
from tuner.candidate import Candidate
from tuner.record import Measurement, Status
from tuner.task import Instance

_SLOTS_PER_HOST = 64
_CALLS_PER_SLOT = 3


@dataclass(frozen=True, slots=True)
class Pace:
    """The durations of simulated work.

    Attributes:
        run_s: seconds of a measurement.
        build_s: seconds of a build.
        slow_share: share of builds that take `slow_s` instead.
    """

    run_s: float = 0.3
    build_s: float = 0.0
    slow_share: float = 0.0
    slow_s: float = 0.0

    def build_of(self, candidate: Candidate) -> float:
        """Seconds of a candidate's build: always the same."""
        rng = random.Random(candidate.key)
        return self.slow_s if rng.random() < self.slow_share else self.build_s


class SlotHost:
    """Many slots in one process. A plain class, which `HostActor` makes an actor of."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace

    async def ready(self) -> About:
        """Answer at once, as every slot is ready."""
        return About(ray.get_runtime_context().get_node_id(), "simulated", "simulated")

    async def beat(self) -> None:
        """Give a sign of life."""

    async def leave(self) -> None:
        """Do nothing: there are no files."""

    @ray.method(num_returns=2)  # type: ignore[untyped-decorator]
    async def build(self, task_key: str, candidate: Candidate, deadline_s: float) -> Any:
        """Take as long as a build would."""
        seconds = self._pace.build_of(candidate)
        if seconds > 0:
            await asyncio.sleep(seconds)
        artifact = candidate.key.encode()
        return Compiled(seconds, hashlib.sha256(artifact).hexdigest()), artifact

    async def learn(self, task_key: str, instance: Instance, deadline_s: float) -> Learned:
        """Do nothing: no outputs are compared."""
        return Learned("", 0.0)

    async def run(self, task_key: str, artifact: Sequence[Any], *more: Any) -> Measurement:
        """Take as long as a measurement would; the kernel's own time is made up."""
        await asyncio.sleep(self._pace.run_s)
        candidate_s = 1e-3 * (1.0 + random.Random((await artifact[0]).decode()).random())
        return Measurement(Status.OK, (candidate_s,) * 3, run_s=self._pace.run_s)


HostActor = ray.remote(num_cpus=0, max_restarts=0, max_task_retries=0)(SlotHost)


class SimulatedFleet:
    """Hosts for some slots, and handles of the slots.

    Args:
        slots: number of slots in all, builders and runners together.
    """

    def __init__(self, slots: int, pace: Pace) -> None:
        number = -(-slots // _SLOTS_PER_HOST)
        calls = _CALLS_PER_SLOT * _SLOTS_PER_HOST
        self._hosts: Sequence[Any] = [
            HostActor.options(max_concurrency=calls).remote(pace) for _ in range(number)
        ]
        self._next = 0

    def starters(self) -> Starters:
        """Functions that give the slots as builders and runners; a stopped slot is left alone."""
        return Starters(self._slot, self._slot, stop=lambda slot: None)

    def close(self) -> None:
        """Stop the hosts."""
        for host in self._hosts:
            ray.kill(host)

    def _slot(self, name: str) -> Any:
        self._next += 1
        return self._hosts[self._next % len(self._hosts)]
