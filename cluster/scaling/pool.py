r"""The elastic core: which worker has which job, and recovery when workers vanish. Without I/O.

A `Pool` holds workers of one kind and the jobs given to it. It is told of events (`submit`,
`resize`, `tick`, `on_...`) and answers with commands (`cluster.scaling.pool_commands`), which
`cluster.ray_workers.ray_pool` carries out. The life of a worker:

    STARTING --ready--> IDLE --given--> BUSY --answered--> IDLE
        \________________\______________\----lost----> GONE

Every job that a worker is given is a lease, with a number, an attempt and a deadline, all kept
here. A worker that is lost, is silent for some heartbeats, or holds a lease past its deadline,
costs that lease and nothing else: the job goes back to the front of the queue with its attempt
counted, and is given up after the last attempt. An answer to a lease that no longer stands is
dropped, so that each job's answer counts once.

Some jobs need something that the worker makes first, such as the reference output of a task. Making
it is a lease of its own, with a deadline of its own; the job waits meanwhile, at no cost to its
attempts while no worker has made the need yet. See `cluster.scaling.needs`.

Time that a worker's machine spent frozen counts against no lease (see `actors.quiet_lock`): signs
of life report that time.

A worker whose machine will leave gets no more jobs and is stopped once it has none. It does not
count towards the wanted number, so another is started in its place at once.

The state machine leaves out leases, needs and frozen time: the rules for these are in `Pool`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from cluster.scaling.needs import Needs
from cluster.scaling.pool_commands import Assign, Command, GiveUp, KillWorker, Prepare, StartWorker
from cluster.scaling.pool_policy import NORMAL, PoolCounts, PoolPolicy
from cluster.scaling.worker_life import TRANSITIONS, Lease, Worker, WorkerEvent, WorkerState

Job = TypeVar("Job")

_LONGEST_PAUSE_S = 30.0
_READY = (WorkerState.IDLE, WorkerState.BUSY)


@dataclass(slots=True)
class Pool(Generic[Job]):
    """Workers of one kind, the jobs that wait for them, and the leases they hold.

    Args:
        kind: name of the workers' kind.
        lease_s: time for which a worker may hold a job.
        needs: the need that a worker must have made before it gets a job; None is no need.
        prepare_s: time in which a worker must make a need.
    """

    kind: str
    lease_s: Callable[[Job], float]
    policy: PoolPolicy = NORMAL
    needs: Callable[[Job], Hashable | None] = lambda job: None
    prepare_s: float = math.inf
    _needs: Needs = field(init=False)
    _workers: dict[str, Worker] = field(init=False, default_factory=dict)
    _queue: deque[tuple[Job, int]] = field(init=False, default_factory=deque)
    """Jobs, each with the number of its attempt; the next one first."""
    _leases: dict[int, Lease[Job]] = field(init=False, default_factory=dict)
    _wanted: int = field(init=False, default=0)
    _ranks: Mapping[str, int] = field(init=False, default_factory=dict)
    _next_worker: int = field(init=False, default=0)
    _next_lease: int = field(init=False, default=0)
    _failed_starts: int = field(init=False, default=0)
    """Workers lost in their start while none was ready, since one last was; see `broken`."""
    _pauses: int = field(init=False, default=0)
    """Workers lost in their start since the last became ready; each makes the next start later."""
    _no_start_before_s: float = field(init=False, default=0.0)
    _last_loss: str = field(init=False, default="")
    _losses: int = field(init=False, default=0)
    _ticked_s: float | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._needs = Needs(self.policy.attempts)

    @property
    def ready(self) -> int:
        """Number of workers that are idle or busy and whose machine stays."""
        return sum(w.state in _READY and not w.leaving for w in self._workers.values())

    @property
    def waiting(self) -> int:
        """Number of jobs that no worker holds."""
        return len(self._queue)

    @property
    def load(self) -> int:
        """Number of jobs that wait or are held by a worker."""
        return len(self._queue) + len(self._leases)

    @property
    def counts(self) -> PoolCounts:
        """The numbers of the pool now."""
        return PoolCounts(self.ready, self._wanted, self.waiting, self._losses)

    @property
    def broken(self) -> str:
        """The reason why no worker will ever be ready; empty as long as one may be."""
        if self._failed_starts < self.policy.failed_starts or self.ready:
            return ""
        return f"{self.kind} workers do not start: {self._last_loss}"

    def resize(
        self, wanted: int, now_s: float, *, ranks: Mapping[str, int] | None = None
    ) -> list[Command[Job]]:
        """Change the wanted number of workers. Starting workers are stopped first, then idle ones;
        busy ones finish.

        Args:
            ranks: rank of each worker. Those with the highest go first, even where others are idle.
        """
        self._wanted, self._ranks = wanted, ranks or {}
        return self._settle(now_s)

    def submit(self, job: Job, now_s: float, *, attempt: int = 1) -> list[Command[Job]]:
        """Take a job.

        Args:
            attempt: number of its next attempt, where earlier ones were lost elsewhere.
        """
        if reason := self.refused(self.needs(job)):
            return [GiveUp(job, attempt, reason, unprepared=True)]
        self._queue.append((job, attempt))
        return self._settle(now_s)

    def refused(self, need: Hashable | None) -> str:
        """The reason why no worker can make a need; empty if it is not refused."""
        return self._needs.refused(need)

    def on_ready(self, worker: str, now_s: float) -> list[Command[Job]]:
        """A worker started."""
        if worker not in self._workers:
            return []  # the worker was given up while it started
        self._move(worker, WorkerEvent.READY, now_s)
        self._workers[worker].heard_s = now_s
        self._failed_starts = self._pauses = 0
        return self._settle(now_s)

    def on_heard(self, worker: str, now_s: float, frozen_s: float | None = None) -> None:
        """A worker gave a sign of life.

        Args:
            frozen_s: time that its machine spent frozen so far, on a clock that only goes up.
        """
        if worker not in self._workers:
            return
        heard = self._workers[worker]
        heard.heard_s = now_s
        if frozen_s is not None:
            heard.frozen_s = frozen_s
            if heard.frozen_before_s is None:
                heard.frozen_before_s = frozen_s

    def silent(self, since_s: float) -> list[str]:
        """Names of ready workers that were last heard of at `since_s` or before."""
        return [
            name for name, w in self._workers.items() if w.state in _READY and w.heard_s <= since_s
        ]

    def on_leaving(self, worker: str, now_s: float) -> list[Command[Job]]:
        """A worker's machine will soon be gone."""
        if worker not in self._workers:
            return []
        self._workers[worker].leaving = True
        return self._settle(now_s)

    def on_lost(self, worker: str, reason: str, now_s: float) -> list[Command[Job]]:
        """A worker is gone, by itself or because it was killed."""
        if worker not in self._workers:
            return []
        return [*self._lose(worker, reason, now_s), *self._settle(now_s)]

    def on_unfit(self, worker: str, now_s: float) -> list[Command[Job]]:
        """A worker that started cannot be used for this run; this does not count as a failure."""
        if worker not in self._workers:
            return []
        self._dismiss(worker, now_s)
        return self._settle(now_s)

    def on_answer(self, lease: int, now_s: float) -> tuple[Lease[Job] | None, list[Command[Job]]]:
        """A lease was answered.

        Returns:
            The lease whose answer is to be delivered, and the next commands. The lease is None
            where the answer has to be dropped, and where only a need was made: its job comes next.
        """
        answered = self._release(lease, now_s)
        if answered is None:
            return None, []
        if not answered.prepares:
            return answered, self._settle(now_s)
        worker, need = self._workers[answered.worker], self.needs(answered.job)
        self._needs.end(need)
        worker.has.add(need)
        self._queue.appendleft((answered.job, answered.attempt))
        first = [] if worker.leaving else self._give(answered.worker, now_s)
        return None, [*first, *self._settle(now_s)]

    def on_unprepared(self, lease: int, reason: str, now_s: float) -> list[Command[Job]]:
        """A worker answered that it lacks the job's need: it could not make it, or it has lost it
        since it made it."""
        answered = self._release(lease, now_s)
        if answered is None:
            return []
        need = self.needs(answered.job)
        if answered.prepares:
            self._needs.refuse(need, reason)
            self._workers[answered.worker].failed_at.add(need)
        self._workers[answered.worker].has.discard(need)
        commands = self._try_again(answered, reason, unprepared=True)
        return [*commands, *self._settle(now_s)]

    def tick(self, now_s: float) -> list[Command[Job]]:
        """Check the deadlines of leases and of starts, and look for silent workers."""
        self._excuse_silence(now_s)
        late = [
            lease.worker
            for lease in self._leases.values()
            if now_s >= lease.deadline_s + self._workers[lease.worker].excused_s
        ]
        silent = [n for n in self.silent(now_s - self.policy.silence_s) if n not in late]
        slow = [
            name
            for name, w in self._workers.items()
            if w.state is WorkerState.STARTING and now_s - w.since_s >= self.policy.start_deadline_s
        ]
        no_room = f"no machine had room for one within {self.policy.start_deadline_s:g} s"
        commands: list[Command[Job]] = []
        for name in late:
            commands += self._kill(name, "held its lease too long", now_s)
        for name in silent:
            commands += self._kill(name, "not heard of any more", now_s)
        for name in slow:
            commands += self._kill(name, no_room, now_s)
        return commands + self._settle(now_s)

    def _kill(self, name: str, reason: str, now_s: float) -> list[Command[Job]]:
        return [KillWorker(name, reason), *self._lose(name, reason, now_s)]

    def _excuse_silence(self, now_s: float) -> None:
        """Count a long time without a tick against no worker: no heartbeats were heard in it
        either."""
        if self._ticked_s is not None and now_s - self._ticked_s >= self.policy.silence_s / 3:
            for worker in self._workers.values():
                worker.heard_s += now_s - self._ticked_s
        self._ticked_s = now_s

    def _lose(self, name: str, reason: str, now_s: float) -> list[Command[Job]]:
        worker = self._workers[name]
        if worker.state is WorkerState.STARTING:
            waited = now_s - worker.since_s >= self.policy.start_deadline_s
            self._note_failed_start(now_s, hopeless=waited)
        self._last_loss, self._losses = reason, self._losses + 1
        self._move(name, WorkerEvent.LOST, now_s)
        del self._workers[name]
        if worker.lease is None:
            return []
        lease = self._leases.pop(worker.lease)
        if lease.prepares:
            self._needs.lose(self.needs(lease.job), reason)
        return self._try_again(lease, reason)

    def _release(self, number: int, now_s: float) -> Lease[Job] | None:
        """End a lease that was answered, and return it; None if it no longer stands."""
        answered = self._leases.pop(number, None)
        if answered is not None:
            self._workers[answered.worker].lease = None
            self._workers[answered.worker].heard_s = now_s
            self._move(answered.worker, WorkerEvent.ANSWERED, now_s)
        return answered

    def _try_again(
        self, lease: Lease[Job], reason: str, *, unprepared: bool = False
    ) -> list[Command[Job]]:
        """Put a job that failed back in front, unless this was its last attempt, or its need is
        refused: then all jobs with that need are given up."""
        need = self.needs(lease.job)
        # The first worker to make a need finds out whether it can be made: this costs no attempt.
        first_to_make = lease.prepares and not self._needs.made(need)
        attempt = lease.attempt + (not first_to_make)
        if attempt > self.policy.attempts:
            return [GiveUp(lease.job, lease.attempt, reason, unprepared)]
        self._queue.appendleft((lease.job, attempt))
        if not (hopeless := self._needs.refused(need)):
            return []
        given_up = [(job, n) for job, n in self._queue if self.needs(job) == need]
        self._queue = deque(held for held in self._queue if self.needs(held[0]) != need)
        return [GiveUp(job, n, hopeless, unprepared=True) for job, n in given_up]

    def _note_failed_start(self, now_s: float, *, hopeless: bool) -> None:
        """Delay the next start, the more the more starts failed. While no worker is ready, count
        the failure against the pool: `failed_starts` in a row break it, or one missed deadline."""
        if not self.ready:
            self._failed_starts += self.policy.failed_starts if hopeless else 1
        if self._pauses:
            self._no_start_before_s = now_s + min(2.0 ** (self._pauses - 1), _LONGEST_PAUSE_S)
        self._pauses += 1

    def _settle(self, now_s: float) -> list[Command[Job]]:
        """Start and stop workers towards the wanted number, and give jobs to idle ones."""
        commands: list[Command[Job]] = []
        may_start = now_s >= self._no_start_before_s
        while may_start and self._staying < self._wanted and not self.broken:
            self._next_worker += 1
            name = f"{self.kind}-{self._next_worker}"
            self._workers[name] = Worker(since_s=now_s)
            commands.append(StartWorker(name))
        for name in self._spare():
            commands.append(KillWorker(name))
            self._dismiss(name, now_s)
        for name, worker in self._workers.items():
            if not self._queue:
                break
            if worker.state is WorkerState.IDLE:
                commands += self._give(name, now_s)
        return commands

    @property
    def _staying(self) -> int:
        """Number of workers whose machine stays, as far as is known."""
        return sum(not w.leaving for w in self._workers.values())

    def _spare(self) -> list[str]:
        """Workers without a lease that are too many, or whose machine leaves."""
        spare = [n for n, w in self._workers.items() if w.leaving]
        if (too_many := self._staying - self._wanted) > 0:
            staying = [n for n, w in self._workers.items() if not w.leaving]
            spare += sorted(staying, key=self._use)[:too_many]
        return [n for n in spare if self._workers[n].state is not WorkerState.BUSY]

    def _use(self, name: str) -> tuple[bool, int, bool]:
        """Sort key of a worker's worth, the least first: starting, high rank, idle."""
        state = self._workers[name].state
        starting, busy = state is WorkerState.STARTING, state is WorkerState.BUSY
        return not starting, -self._ranks.get(name, 0), busy

    def _dismiss(self, name: str, now_s: float) -> None:
        """Remove a worker that holds no lease, without counting a failure."""
        self._move(name, WorkerEvent.LOST, now_s)
        del self._workers[name]

    def _give(self, name: str, now_s: float) -> list[Command[Job]]:
        """Give an idle worker the first job that it can do, or whose need it may make."""
        worker = self._workers[name]
        for place, (job, attempt) in enumerate(self._queue):
            need = self.needs(job)
            prepares = need is not None and need not in worker.has
            if prepares and not self._may_make(name, need):
                continue
            del self._queue[place]
            self._next_lease += 1
            self._move(name, WorkerEvent.GIVEN, now_s)
            worker.lease, worker.frozen_before_s = self._next_lease, worker.frozen_s
            deadline_s = now_s + (self.prepare_s if prepares else self.lease_s(job))
            self._leases[worker.lease] = Lease(job, attempt, name, deadline_s, prepares)
            if prepares:
                self._needs.begin(need)
                return [Prepare(worker.lease, name, job)]
            return [Assign(worker.lease, name, job, attempt)]
        return []

    def _may_make(self, name: str, need: Hashable | None) -> bool:
        """Whether a worker should make a job's need. One that failed at it leaves it to ready
        workers that have not."""
        if need in self._workers[name].failed_at and any(
            w.state in _READY and not w.leaving and need not in w.failed_at
            for w in self._workers.values()
        ):
            return False
        return self._needs.may_begin(need)

    def _move(self, name: str, event: WorkerEvent, now_s: float) -> None:
        worker = self._workers[name]
        state = TRANSITIONS.get((worker.state, event))
        if state is None:
            raise ValueError(f"{name} is {worker.state.value}: it cannot be {event.value}")
        worker.state, worker.since_s = state, now_s
