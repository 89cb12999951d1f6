"""Carries out a pool's commands with Ray actors, and reports events to the pool."""

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
"""The interval of asking a worker for a sign of life; Ray notices a lost machine after 15 s."""
_FETCH_S = 10.0
"""The time in which an answer must come over from its machine, or else counts as lost."""
_LEAVE_S = 2.0
"""The time for all workers together to remove their files at the end."""
_REQUEUE_BEFORE_S = 5.0
"""The time before a machine leaves at which its jobs are given to other workers."""


def policy(wait_s: float) -> PoolPolicy:
    """Limits of a pool whose workers may wait `wait_s` for a machine, and then give signs of life:
    a worker that misses three is lost."""
    return PoolPolicy(start_deadline_s=wait_s, silence_s=3 * BEAT_S)


@dataclass(frozen=True, slots=True)
class Done(Generic[Job]):
    """A job that has ended.

    Attributes:
        value: the worker's answer; None if the job was given up.
        lost: why the job was given up; empty if it was answered.
        missing: whether an input of the job was lost with another machine; the worker is well.
        unprepared: whether it was given up since no worker can make its need.
        worker: name of the worker that answered.
        about: that worker's description of itself when it became ready.
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
    """An actor of the pool.

    Attributes:
        started_s: time at which it was requested.
        ready: whether it has started.
        about: its description of itself when it became ready.
        worked: whether it ever had a lease.
    """

    actor: Any
    started_s: float
    ready: bool = False
    about: Any = None
    worked: bool = False

    @property
    def node(self) -> str:
        """The id of its machine; empty where that is not known."""
        return str(getattr(self.about, "node", ""))


class _Asked(Enum):
    """The kinds of calls to a worker."""

    READY = "to start"
    LEASE = "to do a job, or to prepare for one"
    BEAT = "for a sign of life"


@dataclass(frozen=True, slots=True)
class _Call:
    """A call that a worker has not answered yet; `lease` is the number of its lease, if any."""

    worker: str
    asked: _Asked
    lease: int = 0


class RayPool(Generic[Job]):
    """Workers of one kind on a Ray cluster.

    Ray never restarts an actor and never retries its calls: both are the pool's decisions. Each
    actor is given one job at a time.

    Args:
        pool: takes the decisions.
        start: makes an actor from a worker's name; the actor must answer `ready()`.
        call: starts a job on an actor; returns the reference to its answer.
        prepare: starts making a job's need on an actor; returns the reference to its answer.
        unprepared: why a worker lacks a job's need, from its answer to either call; empty if it
            has it.
        worked_s: seconds of a worker's own work, from its answer; None where not told.
        task_of: key of a job's task; empty where it is of several.
        refuses: why a worker that is ready cannot be used, from its description; empty if it can.
            It must see to it that the next worker is started elsewhere.
        beat: asks an actor for a sign of life; None where the pool waits for none.
        leave: asks an actor to remove its files; None where it has none.
        stop: ends an actor at once.
        suspect: is told of the machine of each lost worker, before another is started.
        utilisation: is told of each worker's events.
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
        task_of: Callable[[Job], str] = lambda job: "",
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
        self._worked_s, self._task_of = worked_s, task_of
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
        """The pool, to read its numbers from."""
        return self._pool

    def resize(self, wanted: int, machines: Sequence[str] = ()) -> None:
        """Change the wanted number of workers.

        Args:
            machines: ids of machines; where there are too many workers, those on the first machines
                stay. Empty if it does not matter which.
        """
        places = {node: place for place, node in enumerate(machines)}
        ranked = {
            name: places.get(worker.node, len(places))
            for name, worker in self._workers.items()
            if worker.ready
        }
        self._carry_out(self._pool.resize(wanted, self._clock(), ranks=ranked))

    def submit(self, job: Job, *, attempt: int = 1) -> None:
        """Take a job, at the given attempt."""
        self._carry_out(self._pool.submit(job, self._clock(), attempt=attempt))

    def on_nodes(self, nodes: Sequence[Node]) -> None:
        """Take in the machines that there are: workers on machines that are gone are lost, workers
        on machines that will leave get no more jobs."""
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
        """References to answers that are awaited, for a wait over several pools. Answers that are
        on their way to this machine are left out: nobody knows when they arrive."""
        return [
            ref
            for ref, call in self._calls.items()
            if call.asked is not _Asked.BEAT and ref not in self._coming
        ]

    def tell_all(self, send: Callable[[Any], object]) -> None:
        """Call `send` with every actor, without waiting for an answer."""
        for worker in self._workers.values():
            send(worker.actor)

    def step(self) -> list[Done[Job]]:
        """Take in all events since the last step, and return the jobs that ended; never waits."""
        self._listen()
        arrived = self._arrived()
        for ref in (ref for ref, (value, lost) in arrived if lost and value is None):
            # Suspect all of them before any is replaced: a start asks which machines are reached.
            self._suspect_node_of(self._calls[ref].worker)
        for ref, (value, lost) in arrived:
            self._take(ref, value, lost)
        self._carry_out(self._pool.tick(self._clock()))
        done, self._done = self._done, []
        return done

    def _arrived(self) -> list[tuple[Any, tuple[Any, str]]]:
        """References that are answered, with their outcomes. Answers that are not on this machine
        yet are fetched from now on, all at once, for at most `_FETCH_S`; nothing waits here."""
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
        """Stop all workers; their jobs are dropped.

        Files of workers that do not answer are removed by the next worker on their machine.
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
        """Ask all workers that were silent for a while for a sign of life, unless they owe one."""
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
        """Take in that a worker started, with its description of itself."""
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
        """Take in the answer to a lease; `missing`: an input of its job is lost."""
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
        task_key = self._task_of(command.job)
        self._utilisation.given(self._pool.kind, command.worker, task_key)

    def _forget(self, name: str) -> None:
        worker = self._workers.pop(name, None)
        self._calls = {ref: call for ref, call in self._calls.items() if call.worker != name}
        self._utilisation.gone(self._pool.kind, name)
        if worker is not None:
            self._stop(worker.actor)


def _outcome(ref: Any, timeout_s: float) -> tuple[Any, str]:
    """The value behind a reference that is ready and here, or why there is none.

    An exception of the worker's own code counts as its loss too: workers answer failures as
    values, so it is in a state that nobody planned. The loss of a call's input is not the worker's
    fault: then the value is that error.
    """
    try:
        return ray.get(ref, timeout=max(0.0, timeout_s)), ""
    except (RayError, TimeoutError) as error:
        cause = getattr(error, "cause", None) or error
        lines = str(cause).strip().splitlines() or [type(cause).__name__]
        value = cause if isinstance(cause, ObjectLostError) else None
        return value, f"{type(cause).__name__}: {lines[-1][:200]}"
