"""Carries out a pool's commands with Ray actors, and tells the pool what happened."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import ray
from ray.exceptions import ObjectLostError, RayError

from cluster.scaling.pool import Pool, PoolPolicy
from cluster.scaling.pool_commands import Assign, Command, GiveUp, KillWorker, Prepare, StartWorker
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
        self._actors: dict[str, Any] = {}
        self._about: dict[str, Any] = {}
        self._starting: dict[Any, str] = {}
        self._started_s: dict[str, float] = {}
        self._answers: dict[Any, tuple[int, str]] = {}
        self._beats: dict[Any, str] = {}
        self._coming: dict[Any, float] = {}
        self._beaten_s = float("-inf")
        self._worked: set[str] = set()
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
            name: places.get(getattr(about, "node", ""), len(places))
            for name, about in self._about.items()
        }
        self._carry_out(self._pool.resize(wanted, self._clock(), ranks=ranked))

    def submit(self, job: Job, *, attempt: int = 1) -> None:
        """Take a job, at some attempt."""
        self._carry_out(self._pool.submit(job, self._clock(), attempt=attempt))

    def on_nodes(self, nodes: Sequence[Node]) -> None:
        """Take in which machines there are: workers on those that are gone are lost, those on
        machines that will leave get no more jobs."""
        staying = {node.id: node.leaves_in_s for node in nodes}
        for name, about in list(self._about.items()):
            node = getattr(about, "node", "")
            leaves_in_s = staying.get(node, 0.0)
            if not node or leaves_in_s is None:
                continue
            if node not in staying:
                self._lose(name, "its machine is gone")
            elif leaves_in_s <= _REQUEUE_BEFORE_S:
                self._lose(name, "its machine leaves")
            else:
                self._carry_out(self._pool.on_leaving(name, self._clock()))

    def pending(self) -> list[Any]:
        """References that something is expected on, for a wait over several pools. What has been
        answered and is on its way is not among them: nobody knows when it comes."""
        return [ref for ref in (*self._starting, *self._answers) if ref not in self._coming]

    def tell_all(self, send: Callable[[Any], object]) -> None:
        """Send every actor that has started something without waiting for an answer."""
        for actor in self._actors.values():
            send(actor)

    def step(self) -> list[Done[Job]]:
        """Take in what has happened; never waits."""
        self._listen()
        arrived = self._arrived()
        for ref in (ref for ref, (value, lost) in arrived if lost and value is None):
            # All of them before any is replaced, which asks who can be reached.
            self._suspect(getattr(self._about.get(self._whose(ref)), "node", ""))
        for ref, (value, lost) in arrived:
            self._take(ref, value, lost)
        self._carry_out(self._pool.tick(self._clock()))
        done, self._done = self._done, []
        return done

    def _arrived(self) -> list[tuple[Any, tuple[Any, str]]]:
        """References with their outcomes. What is not on this machine yet is on its way from now
        on, all of it at once, and for so long; nothing waits for it here."""
        refs = [*self._starting, *self._answers, *self._beats]
        if not refs:
            return []
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

    def _whose(self, ref: Any) -> str:
        """Name of the worker that a reference is of; empty if it is of none any more."""
        held = self._answers.get(ref)
        return held[1] if held else self._starting.get(ref) or self._beats.get(ref, "")

    def close(self) -> None:
        """Stop all workers; what they hold is dropped.

        Those that do not answer leave their files to who starts next on their machine.
        """
        if self._leave is not None:
            ready = [self._actors[name] for name in self._about if name in self._actors]
            if leaving := [self._leave(actor) for actor in ready]:
                ray.wait(leaving, num_returns=len(leaving), timeout=_LEAVE_S, fetch_local=False)
        for name, actor in self._actors.items():
            self._utilisation.gone(self._pool.kind, name)
            self._stop(actor)
        self._actors.clear()
        self._starting.clear()
        self._answers.clear()
        self._beats.clear()
        self._coming.clear()

    def _listen(self) -> None:
        """Ask all who have been silent for a while for a sign of life, unless they owe one."""
        now_s = self._clock()
        if self._beat is None or now_s - self._beaten_s < BEAT_S / 2:
            return
        self._beaten_s = now_s
        owing = set(self._beats.values())
        for name in self._pool.silent(now_s - BEAT_S):
            if name not in owing:
                self._beats[self._beat(self._actors[name])] = name

    def _take(self, ref: Any, value: Any, lost: str) -> None:
        if ref in self._starting:
            name = self._starting.pop(ref)
            if lost:
                self._lose(name, lost)
            elif why := self._refuses(value):
                _log.info("%s is not used: %s", name, why)
                self._forget(name)
                self._carry_out(self._pool.on_unfit(name, self._clock()))
            else:
                self._about[name] = value
                waited_s = self._clock() - self._started_s.pop(name, self._clock())
                _log.info("%s ready after %.1f s", name, waited_s)
                self._utilisation.ready(self._pool.kind, name)
                self._carry_out(self._pool.on_ready(name, self._clock()))
            return
        if ref in self._beats:
            name = self._beats.pop(ref)
            if lost:
                self._lose(name, lost)
            else:
                self._pool.on_heard(name, self._clock(), value)
            return
        if ref not in self._answers:
            return  # its lease ended while this round of answers was taken in
        lease, name = self._answers.pop(ref)
        missing = isinstance(value, ObjectLostError)
        if lost and not missing:
            self._lose(name, lost)
            return
        self._utilisation.answered(self._pool.kind, name, 0.0 if missing else self._worked_s(value))
        if not missing and (why := self._unprepared(value)):
            _log.info("%s: %s", name, why)
            self._carry_out(self._pool.on_unprepared(lease, why, self._clock()))
            return
        answered, commands = self._pool.on_answer(lease, self._clock())
        if answered is not None:
            about = self._about.get(name)
            self._done.append(
                Done(answered.job, answered.attempt, value, lost, name, about, missing)
            )
        self._carry_out(commands)

    def _lose(self, name: str, reason: str) -> None:
        _log.warning("%s lost: %s", name, reason)
        self._suspect(getattr(self._about.get(name), "node", ""))
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
                if command.reason:
                    _log.warning("%s ended: %s", command.worker, command.reason)
                    self._suspect(getattr(self._about.get(command.worker), "node", ""))
                self._forget(command.worker)
            elif isinstance(command, Assign | Prepare):
                self._hand_over(command)
            elif isinstance(command, GiveUp):
                given_up = Done(command.job, command.attempts, lost=command.reason)
                self._done.append(replace(given_up, unprepared=command.unprepared))

    def _hand_over(self, command: Assign[Job] | Prepare[Job]) -> None:
        """Give a worker its lease."""
        if command.worker not in self._worked:
            self._worked.add(command.worker)
            _log.info("%s first lease", command.worker)
        call = self._call if isinstance(command, Assign) else self._prepare
        assert call is not None, "a pool with needs has a call that meets them"
        ref = call(self._actors[command.worker], command.job)
        self._answers[ref] = (command.lease, command.worker)
        self._utilisation.given(self._pool.kind, command.worker)

    def _forget(self, name: str) -> None:
        actor = self._actors.pop(name, None)
        self._about.pop(name, None)
        self._worked.discard(name)
        self._starting = {r: n for r, n in self._starting.items() if n != name}
        self._answers = {r: held for r, held in self._answers.items() if held[1] != name}
        self._beats = {r: n for r, n in self._beats.items() if n != name}
        self._utilisation.gone(self._pool.kind, name)
        if actor is not None:
            self._stop(actor)


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
