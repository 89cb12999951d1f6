"""Carries out a pool's commands with Ray actors, and tells the pool what happened."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Generic, TypeVar

import ray
from ray.exceptions import ObjectLostError, RayError

from cluster.scaling.pool import Pool
from cluster.scaling.pool_commands import Assign, Command, GiveUp, KillWorker, Prepare, StartWorker
from cluster.scaling.pool_policy import PoolPolicy
from cluster.scaling.scaling_policy import Node
from tuner.utilisation import Utilisation

Job = TypeVar("Job")
_log = logging.getLogger(__name__)

BEAT_S = 2.0
"""How often a worker is asked for a sign of life; Ray alone notices a lost machine after 15 s."""
_FETCH_S = 10.0
"""An answer that does not come over from its machine by then is lost with it."""
_LEAVE_S = 2.0
"""What workers get to remove their files at the end, all of them together."""
_REQUEUE_BEFORE_S = 5.0
"""A job that runs on a machine that leaves is given to another so long before that."""


def policy(wait_s: float) -> PoolPolicy:
    """Limits of a pool whose workers may wait so long for a machine, and then give signs of life:
    three that are missed are a loss."""
    return PoolPolicy(start_deadline_s=wait_s, silence_s=3 * BEAT_S)


@dataclass(frozen=True, slots=True)
class Done(Generic[Job]):
    """A job that came to its end.

    Attributes:
        value: what the worker answered; None if the job was given up.
        lost: why it was given up; empty if it was answered.
        missing: whether what the job was to be given was lost with another machine; its worker is
            well.
        unprepared: whether it was given up since no worker can make what it needs.
        worker: name of the worker that answered.
        about: what that worker said of itself when it became ready.
    """

    job: Job
    attempt: int
    value: Any = None
    lost: str = ""
    worker: str = ""
    about: Any = None
    missing: bool = False
    unprepared: bool = False


@dataclass(slots=True)
class _Worker:
    """An actor.

    Attributes:
        started_s: when it was asked for.
        ready: whether it has started; `about` is what it said of itself then.
        worked: whether it ever had a lease.
    """

    actor: Any
    started_s: float
    ready: bool = False
    about: Any = None
    worked: bool = False

    @property
    def node(self) -> str:
        """The machine that it is on; empty where that is not known."""
        return str(getattr(self.about, "node", ""))


class _Asked(Enum):
    """What a worker was asked for."""

    READY = "to start"
    LEASE = "to do a job, or to prepare for one"
    BEAT = "for a sign of life"


@dataclass(frozen=True, slots=True)
class _Call:
    """Something that a worker was asked for and has not answered yet; `lease` is a lease's."""

    worker: str
    asked: _Asked
    lease: int = 0


class RayPool(Generic[Job]):
    """Workers of one kind on a Ray cluster.

    An actor is never restarted by Ray and its calls are never retried by Ray: both are the
    pool's decisions. One call at a time is given to each.

    Args:
        pool: decides.
        start: makes the actor of a worker's name; it must answer `ready()`.
        call: starts a job on an actor and gives the reference to its answer.
        prepare: starts making what a job needs on an actor, likewise.
        unprepared: why a worker does not have what a job needs, from its answer to either call;
            empty if it has.
        worked_s: seconds of its own work that a worker's answer tells of; None where it does not.
        refuses: why a worker that is ready cannot be used, from what it said; empty if it can.
            Who refuses sees to it that the next one is started elsewhere.
        beat: asks an actor for a sign of life; None where the pool waits for none.
        leave: asks an actor to remove what it keeps on its machine; None where it keeps nothing.
        stop: ends an actor at once.
        suspect: told of the machine of each worker that is lost, before another is started.
        utilisation: told of what becomes of each worker.
        clock: seconds that never go back.
    """

    def __init__(
        self,
        pool: Pool[Job],
        *,
        start: Callable[[str], Any],
        call: Callable[[Any, Job], Any],
        prepare: Callable[[Any, Job], Any] | None = None,
        unprepared: Callable[[Any], str] = lambda value: "",
        worked_s: Callable[[Any], float | None] = lambda value: None,
        refuses: Callable[[Any], str] = lambda about: "",
        beat: Callable[[Any], Any] | None = None,
        leave: Callable[[Any], Any] | None = None,
        stop: Callable[[Any], None] = ray.kill,
        suspect: Callable[[str], None] = lambda node: None,
        utilisation: Utilisation | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pool = pool
        self._start = start
        self._call, self._prepare, self._unprepared = call, prepare, unprepared
        self._worked_s = worked_s
        self._refuses = refuses
        self._beat = beat
        self._leave = leave
        self._stop = stop
        self._suspect = suspect
        self._utilisation = utilisation or Utilisation(clock)
        self._clock = clock
        self._workers: dict[str, _Worker] = {}
        self._calls: dict[Any, _Call] = {}  # by the references to their answers
        self._coming: dict[Any, float] = {}
        self._beaten_s = float("-inf")
        self._done: list[Done[Job]] = []

    @property
    def state(self) -> Pool[Job]:
        """The pool, for its numbers."""
        return self._pool

    def resize(self, wanted: int, machines: Sequence[str] = ()) -> None:
        """Change how many workers there should be.

        Args:
            machines: by id; where there are too many workers, those on the first stay. Empty if it
                does not matter which.
        """
        places = {node: place for place, node in enumerate(machines)}
        ranked = {
            name: places.get(worker.node, len(places))
            for name, worker in self._workers.items()
            if worker.ready
        }
        self._carry_out(self._pool.resize(wanted, self._clock(), ranks=ranked))

    def submit(self, job: Job, *, attempt: int = 1) -> None:
        """Take a job, at some attempt."""
        self._carry_out(self._pool.submit(job, self._clock(), attempt=attempt))

    def on_nodes(self, nodes: Sequence[Node]) -> None:
        """Take in which machines there are: workers on those that are gone are lost, those on
        machines that will leave get no more jobs."""
        staying = {node.id: node.leaves_in_s for node in nodes}
        for name, worker in list(self._workers.items()):
            leaves_in_s = staying.get(worker.node, 0.0)
            if not worker.node or leaves_in_s is None:
                continue
            if worker.node not in staying:
                self._lose(name, "its machine is gone")
            elif leaves_in_s <= _REQUEUE_BEFORE_S:
                self._lose(name, "its machine leaves")
            else:
                self._carry_out(self._pool.on_leaving(name, self._clock()))

    def pending(self) -> list[Any]:
        """References that something is expected on, for a wait over several pools. What has been
        answered and is on its way is not among them: nobody knows when it comes."""
        return [
            ref
            for ref, call in self._calls.items()
            if call.asked is not _Asked.BEAT and ref not in self._coming
        ]

    def tell_all(self, send: Callable[[Any], object]) -> None:
        """Send every actor that has started something without waiting for an answer."""
        for worker in self._workers.values():
            send(worker.actor)

    def step(self) -> list[Done[Job]]:
        """Take in what has happened; never waits."""
        self._listen()
        arrived = self._arrived()
        for ref in (ref for ref, (value, lost) in arrived if lost and value is None):
            # All of them before any is replaced, which asks who can be reached.
            self._suspect_node_of(self._calls[ref].worker)
        for ref, (value, lost) in arrived:
            self._take(ref, value, lost)
        self._carry_out(self._pool.tick(self._clock()))
        done, self._done = self._done, []
        return done

    def _arrived(self) -> list[tuple[Any, tuple[Any, str]]]:
        """References with their outcomes. What is not on this machine yet is on its way from now
        on, all of it at once, and for so long; nothing waits for it here."""
        if not self._calls:
            return []
        refs = list(self._calls)
        ready, _ = ray.wait(refs, num_returns=len(refs), timeout=0, fetch_local=False)
        if not ready:
            return []
        here, away = ray.wait(ready, num_returns=len(ready), timeout=0, fetch_local=True)
        now_s = self._clock()
        self._coming = {ref: self._coming.get(ref, now_s) for ref in away}
        late = [ref for ref, since_s in self._coming.items() if now_s - since_s >= _FETCH_S]
        why = f"its answer did not come within {_FETCH_S:g} s"
        until_s = now_s + _FETCH_S
        arrived = [(ref, _outcome(ref, until_s - self._clock())) for ref in here]
        return [*arrived, *((ref, (None, why)) for ref in late)]

    def close(self) -> None:
        """Stop all workers; what they hold is dropped.

        Those that do not answer leave their files to who starts next on their machine.
        """
        if self._leave is not None:
            ready = [worker.actor for worker in self._workers.values() if worker.ready]
            if leaving := [self._leave(actor) for actor in ready]:
                ray.wait(leaving, num_returns=len(leaving), timeout=_LEAVE_S, fetch_local=False)
        for name, worker in self._workers.items():
            self._utilisation.gone(self._pool.kind, name)
            self._stop(worker.actor)
        self._workers.clear()
        self._calls.clear()
        self._coming.clear()

    def _listen(self) -> None:
        """Ask all who have been silent for a while for a sign of life, unless they owe one."""
        now_s = self._clock()
        if self._beat is None or now_s - self._beaten_s < BEAT_S / 2:
            return
        self._beaten_s = now_s
        owing = {call.worker for call in self._calls.values() if call.asked is _Asked.BEAT}
        for name in self._pool.silent(now_s - BEAT_S):
            if name not in owing:
                beat = self._beat(self._workers[name].actor)
                self._calls[beat] = _Call(name, _Asked.BEAT)

    def _take(self, ref: Any, value: Any, lost: str) -> None:
        call = self._calls.pop(ref, None)
        if call is None:
            return  # its worker was lost while this round of answers was taken in
        missing = isinstance(value, ObjectLostError)
        if lost and not (missing and call.asked is _Asked.LEASE):
            self._lose(call.worker, lost)
        elif call.asked is _Asked.READY:
            self._take_start(call.worker, value)
        elif call.asked is _Asked.BEAT:
            self._pool.on_heard(call.worker, self._clock(), value)
        else:
            self._take_answer(call, value, lost, missing=missing)

    def _take_start(self, name: str, about: Any) -> None:
        """A worker started, and says what it is."""
        if why := self._refuses(about):
            _log.info("%s is not used: %s", name, why)
            self._forget(name)
            self._carry_out(self._pool.on_unfit(name, self._clock()))
            return
        worker = self._workers[name]
        worker.ready, worker.about = True, about
        _log.info("%s ready after %.1f s", name, self._clock() - worker.started_s)
        self._utilisation.ready(self._pool.kind, name)
        self._carry_out(self._pool.on_ready(name, self._clock()))

    def _take_answer(self, call: _Call, value: Any, lost: str, *, missing: bool) -> None:
        """A lease was answered; `missing`: what its job was to be given is gone."""
        name, worked_s = call.worker, 0.0 if missing else self._worked_s(value)
        self._utilisation.answered(self._pool.kind, name, worked_s)
        if not missing and (why := self._unprepared(value)):
            _log.info("%s: %s", name, why)
            self._carry_out(self._pool.on_unprepared(call.lease, why, self._clock()))
            return
        answered, commands = self._pool.on_answer(call.lease, self._clock())
        if answered is not None:
            about = self._workers[name].about
            self._done.append(
                Done(answered.job, answered.attempt, value, lost, name, about, missing)
            )
        self._carry_out(commands)

    def _suspect_node_of(self, name: str) -> None:
        worker = self._workers.get(name)
        self._suspect("" if worker is None else worker.node)

    def _lose(self, name: str, reason: str) -> None:
        _log.warning("%s lost: %s", name, reason)
        self._suspect_node_of(name)
        self._forget(name)
        self._carry_out(self._pool.on_lost(name, reason, self._clock()))

    def _carry_out(self, commands: Sequence[Command[Job]]) -> None:
        for command in commands:
            if isinstance(command, StartWorker):
                actor = self._start(command.worker)
                self._workers[command.worker] = _Worker(actor, self._clock())
                self._utilisation.started(self._pool.kind, command.worker)
                self._calls[actor.ready.remote()] = _Call(command.worker, _Asked.READY)
            elif isinstance(command, KillWorker):
                if command.reason:
                    _log.warning("%s ended: %s", command.worker, command.reason)
                    self._suspect_node_of(command.worker)
                self._forget(command.worker)
            elif isinstance(command, Assign | Prepare):
                self._hand_over(command)
            elif isinstance(command, GiveUp):
                given_up = Done(command.job, command.attempts, lost=command.reason)
                self._done.append(replace(given_up, unprepared=command.unprepared))

    def _hand_over(self, command: Assign[Job] | Prepare[Job]) -> None:
        """Give a worker its lease."""
        worker = self._workers[command.worker]
        if not worker.worked:
            worker.worked = True
            _log.info("%s first lease", command.worker)
        call = self._call if isinstance(command, Assign) else self._prepare
        assert call is not None, "a pool with needs has a call that meets them"
        ref = call(worker.actor, command.job)
        self._calls[ref] = _Call(command.worker, _Asked.LEASE, command.lease)
        self._utilisation.given(self._pool.kind, command.worker)

    def _forget(self, name: str) -> None:
        worker = self._workers.pop(name, None)
        self._calls = {ref: call for ref, call in self._calls.items() if call.worker != name}
        self._utilisation.gone(self._pool.kind, name)
        if worker is not None:
            self._stop(worker.actor)


def _outcome(ref: Any, timeout_s: float) -> tuple[Any, str]:
    """The value behind a reference that is ready and here, or why there is none.

    An exception of the worker's own code counts as its loss too: workers answer failures as
    values, so it is in a state that nobody planned. That what a call was to be given is lost is
    no fault of the worker: then the value is that error.
    """
    try:
        return ray.get(ref, timeout=max(0.0, timeout_s)), ""
    except (RayError, TimeoutError) as error:
        cause = getattr(error, "cause", None) or error
        lines = str(cause).strip().splitlines() or [type(cause).__name__]
        value = cause if isinstance(cause, ObjectLostError) else None
        return value, f"{type(cause).__name__}: {lines[-1][:200]}"
