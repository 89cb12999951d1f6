"""The only loop: it moves work between the search, the machines, the learner and the store.

No stage waits for another. A slot that is free gets a trial of the task where it is expected to
gain most; a space worker that is free gets drafts for the tasks that need candidates next. Every
record is in the store before anyone hears of it. Machines come and go in one place,
`Machines.adapt`; all that the rest sees of it is that `free()` changes.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from tuner.candidate import Candidate
from tuner.cost_models.base import FittedModel
from tuner.effort import Effort
from tuner.generations import generation_for, is_of
from tuner.record import Record, Status, Trial, TrialKey
from tuner.search.base import SearchMaker
from tuner.session.allocation import Allocation
from tuner.session.allocator import Allocator, AskedTurns, Turns
from tuner.session.ending.finalists import Contention, Finalists, most_retimings, schedule
from tuner.session.ending.halving import rounds_of, stages
from tuner.session.given_trials import note_libraries
from tuner.session.limits import Ended, Limits, SessionTime
from tuner.session.machines import Machines, idle_reasons
from tuner.session.observer import Observer
from tuner.session.remeasure import Remeasurements
from tuner.session.state import SessionState
from tuner.storage.base import RecordStore, begin_session
from tuner.storage.facts import SessionAlive, SessionEnded
from tuner.task import Task
from tuner.user_code.faults import LayerFailed
from tuner.utilisation import Utilisation
from tuner.view.outcome import settle
from tuner.view.phase import Phase
from tuner.view.progress import Snapshot

_WAIT_S = 0.05
_SNAPSHOT_S = 0.25
_TELL_S = 2.0
_DRAIN_S = 15.0
_FIRST_DRAFTS = 8
_DRAFTED_TASKS = 4


class Session:
    """One session of a run: goes on from the store's records until a budget is spent.

    Args:
        tasks: the tasks to tune.
        defaults: the default candidate of each task, which is measured as well.
        libraries: candidates that no search makes, by task key, which are measured as well.
        store: holds earlier sessions' records, and gets each new one before anyone hears of it.
        allocator: a user's own, in the place of `tuner.session.allocator.priorities`.
        on_begin: is called with the deadline once the machines let the session's time begin.
        clock: seconds that never go back, for deadlines; `wall` is for people.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        defaults: Mapping[str, Candidate],
        *,
        libraries: Mapping[str, Sequence[Candidate]] = MappingProxyType({}),
        machines: Machines,
        store: RecordStore,
        limits: Limits,
        effort: Effort,
        make_search: SearchMaker,
        seed: int,
        observers: Sequence[Observer] = (),
        allocator: Allocator | None = None,
        on_begin: Callable[[float], None] = lambda deadline_s: None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._machines = machines
        self._store = store
        self._limits = limits
        self._effort = effort
        self._observers = observers
        self._clock, self._wall = clock, wall
        self._tasks = tuple(tasks)
        self._defaults = dict(defaults)
        self._libraries = libraries
        self._stop = threading.Event()
        self._time = SessionTime(limits.deadline_s, clock, machines.waits, on_begin)
        self._told_s = self._drawn_s = -1e9
        self._phase = Phase.STARTING
        self._accuracy: float | None = None
        self._utilisation = machines.utilisation or Utilisation(clock)
        self._in_flight: dict[TrialKey, Trial] = {}
        self._asked: set[str] = set()  # tasks that drafts were made for
        self._remeasured = Remeasurements()
        self._to_retime = most_retimings(self._tasks, effort)
        self._session_id = begin_session(store, wall())
        note_libraries(store, libraries)
        self._searches = {t.key: make_search(t, seed + self._session_id) for t in self._tasks}
        self._finalists = Finalists(
            self._searches, store, self._defaults, libraries, effort.finalists
        )
        self._known = SessionState(self._tasks, self._defaults, self._searches, store, observers)
        self._allocation = Allocation(
            self._tasks,
            self._defaults,
            libraries,
            self._known,
            self._in_flight.keys(),
            gain_floor=effort.gain_floor,
            allocator=allocator,
        )
        self._snapshot = self._draw()

    # Calls from other threads.

    def stop(self) -> None:
        """End the run in order, soon."""
        self._stop.set()

    def snapshot(self) -> Snapshot:
        """The run as it was a moment ago."""
        return self._snapshot

    @property
    def left_out(self) -> tuple[str, ...]:
        """The tasks that were given up, as lines that say why."""
        return tuple(self._known.left_out.values())

    # The loop.

    def run(self) -> Ended:
        """Tune until a budget is spent, nothing is left to try, or `stop` is called.

        Raises:
            LayerFailed: an object of the user's failed. What was measured is kept.
        """
        try:
            return self._run()
        except LayerFailed:
            with contextlib.suppress(LayerFailed):
                self._rescue()
            self._store.put(SessionEnded(self._session_id, self._wall(), "failed"))
            raise

    def _run(self) -> Ended:
        for observer in self._observers:
            observer.on_start(self._tasks)
        while (ended := self._ended()) is None:
            self._machines.adapt()
            self._take_records()
            self._time.look()
            self._known.absorb(self._machines.space_pool.collect(0.0))
            self._take_model()
            self._give_trials()
            self._give_drafts()
            self._account()
            self._tell()
        self._drain()
        if ended != "signal":
            self._retime_finalists()
        if self._stop.is_set():
            ended = "signal"
        self._phase = Phase.DONE
        self._store.flush()  # make durable what observers are told next
        self._known.choose_kernels()
        self._tell(ended=True)
        self._store.put(SessionEnded(self._session_id, self._wall(), ended))
        return ended

    def _ended(self) -> Ended | None:
        if self._stop.is_set():
            return "signal"
        if self._time.is_up(self._limits.finalists_s):
            return "time"
        if self._known.gains_less_than(self._limits.until):
            return "enough"
        if self._in_flight:
            return None
        if self._known.spent >= self._limits.trials:
            return "trials"
        if not any(map(self._allocation.is_open, self._searches)):
            return "done"
        return None

    def _give_trials(self) -> None:
        """Fill free slots where most is to be gained."""
        measurer = self._machines.measurer
        turns = self._allocation.turns()
        while measurer.free() > 0 and self._budget_left() > 0:
            if (trial := self._next(turns)) is None:
                return
            self._phase = Phase.SEARCH
            of_default = trial.candidate.key == self._defaults[trial.task_key].key
            self._submit(trial, cutoff_s=None if of_default else self._cutoff_s(trial))

    def _next(self, turns: Turns | AskedTurns) -> Trial | None:
        """The trial to measure next; None where no task has one."""
        while (task_key := turns.first) is not None:
            if (given := self._allocation.given(task_key)) is not None:
                turns.served()
                return given
            proposed = self._searches[task_key].propose(1)
            if not proposed:
                turns.passed()
            elif not self._known.has(proposed[0]) and proposed[0].key not in self._in_flight:
                turns.served()
                return proposed[0]
        return None

    def _give_drafts(self) -> None:
        """Send drafts for the tasks that come next."""
        pool = self._machines.space_pool
        served = 0
        for task_key in self._allocation.order():
            if served >= _DRAFTED_TASKS or pool.free() <= 0:
                return
            most = pool.free()
            if task_key not in self._known.answered:
                # Every task soon has a candidate, and its answers tell how many it needs.
                most = 0 if task_key in self._asked else min(most, _FIRST_DRAFTS)
            if drafts := self._searches[task_key].drafts(most):
                if not drafts[0].listing:
                    self._asked.add(task_key)
                pool.submit(drafts)
                served += 1

    def _cutoff_s(self, trial: Trial) -> float | None:
        best_s = self._known.progress[trial.task_key].bests.get(trial.instance)
        return self._effort.timing.cutoff_s(best_s)

    def _submit(self, trial: Trial, *, cutoff_s: float | None) -> None:
        self._in_flight[trial.key] = trial
        self._machines.measurer.submit([trial], cutoff_s)

    def _take_records(self) -> list[Record]:
        """Wait a moment for records, keep them, then tell of them. Return those that are new: each
        trial's first answer is the one that counts."""
        settled = []
        for record in self._machines.measurer.collect(_WAIT_S):
            self._in_flight.pop(record.trial.key, None)
            if record.measurement.fault:
                raise LayerFailed(record.measurement.fault)
            if record.measurement.status is Status.UNCHECKED:
                self._known.leave_out(record)
            elif self._is_doubtful(record) and self._remeasured.begin(record):
                cutoff_s = None if record.trial.rung else self._cutoff_s(record.trial)
                self._submit(record.trial, cutoff_s=cutoff_s)
            else:
                settled.append(self._remeasured.settle(record))
        return self._known.keep(settled)

    def _is_doubtful(self, record: Record) -> bool:
        return self._phase.measures and self._known.doubts(record)

    def _take_model(self) -> None:
        learner = self._machines.learner
        learner.offer(self._known.dataset)
        if (fitted := learner.poll()) is not None:
            self._machines.space_pool.use_model(fitted.version, fitted.model)
            self._tell_of(fitted)
        if (process := self._known.process()) is not None:
            self._tell_of(process)

    def _tell_of(self, fitted: FittedModel) -> None:
        if fitted.pairwise_accuracy is not None:
            self._accuracy = fitted.pairwise_accuracy
        for observer in self._observers:
            observer.on_model(fitted)

    # The end.

    def _drain(self) -> None:
        """Wait for the trials in flight, but not for ever."""
        self._phase = Phase.ENDING
        self._account()
        until_s = min(self._clock() + _DRAIN_S, self._time.deadline_s)
        if self._stop.is_set():
            until_s = self._clock() + _DRAIN_S / 3
        while self._in_flight and self._clock() < until_s:
            self._machines.adapt()
            self._take_records()
            self._tell()
        self._known.keep(self._remeasured.left())

    def _rescue(self) -> None:
        """Keep what still comes in, and tell nobody: whoever is told may be what failed."""
        until_s = min(self._clock() + _DRAIN_S / 3, self._time.deadline_s)
        while self._in_flight and self._clock() < until_s:
            for record in self._machines.measurer.collect(_WAIT_S):
                self._in_flight.pop(record.trial.key, None)
                if not record.measurement.fault:
                    self._known.keep_untold(self._remeasured.settle(record))
        self._store.flush()

    def _retime_finalists(self) -> None:
        """Time each task's best candidates again, interleaved, while time is left."""
        self._phase = Phase.FINALISTS
        self._account()
        until_s = min(self._time.deadline_s, self._clock() + self._limits.finalists_s)
        chosen = self._finalists.choose(progress for _, progress in self._known.checked())
        toolchain = self._toolchain(until_s) if chosen else ""
        new = generation_for(self._store.scan(min_rung=1), toolchain)
        known = (r for key in self._searches for r in self._store.scan(key))
        contention = Contention(r for r in known if is_of(r.trial.rung, new))
        for stage in stages(max(1, self._effort.finalists)):
            rounds = partial(rounds_of, stage, shape_rounds=self._effort.shape_rounds)
            self._retime(schedule(chosen, rounds, self._known.has, new), contention, until_s)
            chosen = [contention.keep(of_task) for of_task in chosen]
        # A new time may change the kernel chosen for a shape; a chosen pair must have been timed.
        once = range(1, 2)
        while left := tuple(schedule(self._known.serving(), lambda _: once, self._known.has, new)):
            if self._stop.is_set() or self._clock() >= until_s:
                return
            contention.require(left)
            self._retime(left, contention, until_s)
        copies = self._known.specializations(self._effort.shape_rounds, new)
        self._retime(copies, contention, until_s)

    def _toolchain(self, until_s: float) -> str:
        """The toolchain that compiles finalists now; empty where no machine reported it in time."""
        while (told := self._machines.measurer.toolchain()) is None:
            if self._stop.is_set() or self._clock() >= until_s:
                return ""
            self._machines.adapt()
            self._take_records()
        return told

    def _retime(self, trials: Iterable[Trial], contention: Contention, until_s: float) -> None:
        """Time finalists again in order, except those that fall out of contention meanwhile."""
        queue = deque(trials)
        while (queue or self._in_flight) and not self._stop.is_set() and self._clock() < until_s:
            self._machines.adapt()
            while queue and self._machines.measurer.free() > 0:
                trial = queue.popleft()
                if contention.holds(trial) and trial.task_key not in self._known.left_out:
                    self._submit(trial, cutoff_s=None)
            self._to_retime = len(queue)
            for record in self._take_records():
                contention.observe(record)
            self._account()
            self._tell()
        for record in self._known.keep(self._remeasured.left()):
            contention.observe(record)

    def _budget_left(self) -> int:
        return self._limits.trials - self._known.spent - len(self._in_flight)

    def _trials_left(self) -> int:
        if self._phase is Phase.DONE:
            return 0
        unspent = self._limits.trials - self._known.spent if self._phase.searches else 0
        return max(unspent, len(self._in_flight)) + self._to_retime

    def _account(self) -> None:
        """Say why workers without a job have none."""
        reasons = idle_reasons(
            self._phase,
            in_flight=len(self._in_flight),
            free=self._machines.measurer.free(),
            budget_left=self._budget_left(),
        )
        self._utilisation.idle_because(reasons)

    def _tell(self, *, ended: bool = False) -> None:
        now_s = self._clock()
        if ended or now_s - self._drawn_s >= _SNAPSHOT_S:
            self._drawn_s = now_s
            self._snapshot = self._draw()
        if ended:
            self._snapshot = settle(self._snapshot, self._store)
        if ended or now_s - self._told_s >= _TELL_S:
            self._told_s = now_s
            used = self._snapshot.utilisation
            self._store.put(SessionAlive(self._session_id, self._wall(), used))
            for observer in self._observers:
                (observer.on_end if ended else observer.on_snapshot)(self._snapshot)

    def _draw(self) -> Snapshot:
        elapsed_s, chosen_s = self._clock() - self._time.started_s, self._known.chosen_s
        return Snapshot(
            phase=self._phase,
            elapsed_s=elapsed_s,
            time_budget_s=self._time.deadline_s - self._time.started_s,
            trials_budget=self._limits.trials,
            trials_per_s=self._known.new_records / elapsed_s if elapsed_s > 0 else 0.0,
            tasks=tuple(p.view(chosen_s.get(k)) for k, p in self._known.progress.items()),
            pairwise_accuracy=self._accuracy,
            estimate_accuracy=self._known.estimate_accuracy,
            message=self._time.waits_for or self._known.complaint,
            utilisation=self._utilisation.seconds(),
            trials_left=self._trials_left(),
            modelled=self._known.modelled,
            next_gain=self._known.next_gain,
        )
