"""Carries out a pool's commands with Ray actors, and tells the pool what happened."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import ray
from ray.exceptions import RayError

from cluster.pool import Assign, Command, GiveUp, KillWorker, Pool, StartWorker
from tuner.utilisation import Utilisation

Job = TypeVar("Job")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Done(Generic[Job]):
    """A job that came to its end.

    Attributes:
        value: what the worker answered; None if the job was given up.
        lost: why it was given up; empty if it was answered.
        worker: name of the worker that answered.
        about: what that worker said of itself when it became ready.
    """

    job: Job
    attempt: int
    value: Any = None
    lost: str = ""
    worker: str = ""
    about: Any = None


class RayPool(Generic[Job]):
    """Workers of one kind on a Ray cluster.

    An actor is never restarted by Ray and its calls are never retried by Ray: both are the
    pool's decisions. One call at a time is given to each.

    Args:
        pool: decides.
        start: makes the actor of a worker's name; it must answer `ready()`.
        call: starts a job on an actor and gives the reference to its answer.
        worked_s: seconds of its own work that a worker's answer tells of; None where it does not.
        utilisation: told of what becomes of each worker.
        clock: seconds that never go back.
    """

    def __init__(
        self,
        pool: Pool[Job],
        *,
        start: Callable[[str], Any],
        call: Callable[[Any, Job], Any],
        worked_s: Callable[[Any], float | None] = lambda value: None,
        utilisation: Utilisation | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pool = pool
        self._start = start
        self._call = call
        self._worked_s = worked_s
        self._utilisation = utilisation or Utilisation(clock)
        self._clock = clock
        self._actors: dict[str, Any] = {}
        self._about: dict[str, Any] = {}
        self._starting: dict[Any, str] = {}
        self._started_s: dict[str, float] = {}
        self._answers: dict[Any, tuple[int, str]] = {}
        self._done: list[Done[Job]] = []

    @property
    def state(self) -> Pool[Job]:
        """The pool, for its numbers."""
        return self._pool

    def resize(self, wanted: int) -> None:
        """Change how many workers there should be."""
        self._carry_out(self._pool.resize(wanted, self._clock()))

    def submit(self, job: Job) -> None:
        """Take a job."""
        self._carry_out(self._pool.submit(job, self._clock()))

    def pending(self) -> list[Any]:
        """References that something is expected on, for a wait over several pools."""
        return [*self._starting, *self._answers]

    def tell_all(self, send: Callable[[Any], object]) -> None:
        """Send every actor that has started something without waiting for an answer."""
        for actor in self._actors.values():
            send(actor)

    def step(self) -> list[Done[Job]]:
        """Take in what has happened; never waits."""
        refs = self.pending()
        if refs:
            ready, _ = ray.wait(refs, num_returns=len(refs), timeout=0, fetch_local=False)
            for ref in ready:
                self._take(ref)
        self._carry_out(self._pool.tick(self._clock()))
        done, self._done = self._done, []
        return done

    def close(self) -> None:
        """Stop all workers; what they hold is dropped."""
        for name, actor in self._actors.items():
            self._utilisation.gone(self._pool.kind, name)
            ray.kill(actor)
        self._actors.clear()
        self._starting.clear()
        self._answers.clear()

    def _take(self, ref: Any) -> None:
        if ref in self._starting:
            name = self._starting.pop(ref)
            value, lost = _outcome(ref)
            if lost:
                self._lose(name, lost)
            else:
                self._about[name] = value
                waited_s = self._clock() - self._started_s.pop(name, self._clock())
                _log.info("%s ready after %.1f s", name, waited_s)
                self._utilisation.ready(self._pool.kind, name)
                self._carry_out(self._pool.on_ready(name, self._clock()))
            return
        if ref not in self._answers:
            return  # its lease ended while this round of answers was taken in
        lease, name = self._answers.pop(ref)
        value, lost = _outcome(ref)
        if lost:
            self._lose(name, lost)
            return
        self._utilisation.answered(self._pool.kind, name, self._worked_s(value))
        answered, commands = self._pool.on_answer(lease, self._clock())
        if answered is not None:
            about = self._about.get(name)
            self._done.append(Done(answered.job, answered.attempt, value, "", name, about))
        self._carry_out(commands)

    def _lose(self, name: str, reason: str) -> None:
        _log.warning("%s lost: %s", name, reason)
        self._forget(name)
        self._carry_out(self._pool.on_lost(name, reason, self._clock()))

    def _carry_out(self, commands: Sequence[Command[Job]]) -> None:
        for command in commands:
            if isinstance(command, StartWorker):
                actor = self._start(command.worker)
                self._actors[command.worker] = actor
                self._utilisation.started(self._pool.kind, command.worker)
                self._started_s[command.worker] = self._clock()
                self._starting[actor.ready.remote()] = command.worker
            elif isinstance(command, KillWorker):
                self._forget(command.worker)
            elif isinstance(command, Assign):
                ref = self._call(self._actors[command.worker], command.job)
                self._answers[ref] = (command.lease, command.worker)
                self._utilisation.given(self._pool.kind, command.worker)
            elif isinstance(command, GiveUp):
                self._done.append(Done(command.job, command.attempts, lost=command.reason))

    def _forget(self, name: str) -> None:
        actor = self._actors.pop(name, None)
        self._about.pop(name, None)
        self._starting = {r: n for r, n in self._starting.items() if n != name}
        self._answers = {r: held for r, held in self._answers.items() if held[1] != name}
        self._utilisation.gone(self._pool.kind, name)
        if actor is not None:
            ray.kill(actor)


def _outcome(ref: Any) -> tuple[Any, str]:
    """The value behind a reference that is ready, or why there is none.

    An exception of the worker's own code counts as its loss too: workers answer failures as
    values, so it is in a state that nobody planned.
    """
    try:
        return ray.get(ref, timeout=10), ""
    except RayError as error:
        cause = getattr(error, "cause", None) or error
        lines = str(cause).strip().splitlines() or [type(cause).__name__]
        return None, f"{type(cause).__name__}: {lines[-1][:200]}"
