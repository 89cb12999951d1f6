"""A space pool on Ray."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import ray

from cluster.ray_workers.ray_pool import RayPool, policy
from cluster.scaling.pool import Pool
from cluster.scaling.pool_policy import PoolCounts
from cluster.scaling.scaling_policy import Node
from tuner.candidate import Draft
from tuner.errors import TunerError
from tuner.measure import Evaluated
from tuner.request.options import DEVICE_WAIT_S
from tuner.utilisation import SPACE, Utilisation

Batch = tuple[Draft, ...]

BATCH_SIZE = 8
BATCH_DEADLINE_S = 60.0
_BATCHES_AHEAD = 2


class RaySpacePool:
    """Evaluates drafts on space workers, in small batches.

    Args:
        start: makes an actor from a worker's name.
        device_wait_s: time to wait for a machine that has room for a worker.
        suspect: is told of the machine of each lost worker.
        utilisation: is told of each worker's events.
    """

    def __init__(
        self,
        start: Callable[[str], Any],
        *,
        device_wait_s: float = DEVICE_WAIT_S,
        suspect: Callable[[str], None] = lambda node: None,
        utilisation: Utilisation | None = None,
    ) -> None:
        self._model: tuple[int, bytes] = (0, b"")
        self._queue: deque[Draft] = deque()
        self._out = self._batches = 0  # drafts not answered, and batches given to workers
        self._pool: RayPool[Batch] = RayPool(
            # After a crash a batch is evaluated draft by draft: the lease covers that too.
            Pool(
                SPACE,
                lambda batch: 60.0 + BATCH_DEADLINE_S * (1 + len(batch)),
                policy(device_wait_s),
            ),
            start=lambda name: self._with_model(start(name)),
            call=lambda actor, batch: actor.evaluate.remote(batch, BATCH_DEADLINE_S),
            beat=lambda actor: actor.beat.remote(),
            leave=lambda actor: actor.leave.remote(),
            suspect=suspect,
            worked_s=lambda answer: float(answer[1]),
            task_of=_task_of,
            utilisation=utilisation,
        )

    def resize(self, workers: int, machines: Sequence[str] = ()) -> None:
        """Change the wanted number of workers; see `RayPool.resize`."""
        self._pool.resize(workers, machines)

    def on_nodes(self, nodes: Sequence[Node]) -> None:
        """Take in the machines that there are; see `RayPool.on_nodes`."""
        self._pool.on_nodes(nodes)

    @property
    def counts(self) -> PoolCounts:
        """The numbers of workers, and of drafts that wait for one."""
        return replace(self._pool.state.counts, waiting=len(self._queue))

    def free(self) -> int:
        """Number of drafts that would keep the workers busy for a little while ahead."""
        return max(0, self._pool.state.ready * BATCH_SIZE * _BATCHES_AHEAD - self._out)

    def submit(self, drafts: Sequence[Draft]) -> None:
        """Take drafts."""
        self._out += len(drafts)
        self._queue += drafts
        self._give()

    def collect(self, timeout_s: float) -> list[Evaluated]:
        """Answers that are ready, waiting at most `timeout_s` for the first.

        Raises:
            TunerError: no space worker will ever start.
        """
        if timeout_s > 0 and (refs := self._pool.pending()):
            ray.wait(refs, num_returns=1, timeout=timeout_s, fetch_local=False)
        answers: list[Evaluated] = []
        for done in self._pool.step():
            self._batches -= 1
            self._out -= len(done.job)
            if done.lost:
                answers += [Evaluated(draft, error=f"lost: {done.lost}") for draft in done.job]
            else:
                answers += done.value[0]
        if self._pool.state.broken:
            raise TunerError(self._pool.state.broken)
        self._give()
        return answers

    def _give(self) -> None:
        """Give workers without a batch one, of all tasks that have drafts: a worker is heard of a
        few times a second only, and should have enough to do until then."""
        while self._queue and self._batches < max(1, self._pool.state.ready):
            first = [self._queue.popleft() for _ in range(min(BATCH_SIZE, len(self._queue)))]
            self._pool.submit(tuple(first))
            self._batches += 1

    def use_model(self, version: int, model: bytes) -> None:
        """Score from now on with this cost model; workers that start later get it too."""
        self._model = (version, model)
        self._pool.tell_all(lambda actor: actor.use_model.remote(version, model))

    def _with_model(self, actor: Any) -> Any:
        """A worker, which is sent the current model before its first batch."""
        version, model = self._model
        if version:
            actor.use_model.remote(version, model)
        return actor

    def close(self) -> None:
        """Stop the workers."""
        self._pool.close()


def _task_of(batch: Batch) -> str:
    keys = {draft.task_key for draft in batch}
    return keys.pop() if len(keys) == 1 else ""
