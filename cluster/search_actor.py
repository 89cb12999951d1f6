"""The search actor: hosts a run's session, and is the only writer of its store.

The session's loop has a thread of its own, so that the actor still answers. Everything it knows
comes from the run folder: it can be started again at any time.
"""

from __future__ import annotations

import contextlib
import logging
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import ray

from actors.quiet import Quiet
from actors.ray_actors import MEASURE, WorkerPlace, actor_class
from cluster.ray_measurer import RayMeasurer, Starters
from cluster.ray_space import RaySpacePool
from tuner.after_durable import AfterDurable
from tuner.candidate import Candidate
from tuner.effort import Effort
from tuner.errors import TunerError
from tuner.learner import ProcessLearner
from tuner.observer import Observer
from tuner.options import MAX_KERNELS
from tuner.progress import Snapshot
from tuner.run_folder import RunFolder
from tuner.run_lock import RunLock
from tuner.run_place import open_store, run_place, run_uuid
from tuner.segment_store import SegmentStore
from tuner.session import Limits, Machines, Session
from tuner.similar import Seeds
from tuner.store import RecordStore
from tuner.strategies import search_maker
from tuner.task import Task
from tuner.tracking import RunStatus, SpoolObserver, TrackerProcess
from tuner.utilisation import Utilisation

_STATUS = {"signal": RunStatus.KILLED}
_TRACKING_S = 15.0
_TRACKING_WHEN_CUT_SHORT_S = 8.0


@dataclass(frozen=True, slots=True)
class SearchOrder:
    """What a search actor is to do.

    Attributes:
        run: the run folder.
        driver_pid: the process on this machine that wants it; the search ends with it.
        tasks: all of one target.
        defaults: the default candidate of each task.
        trials: total of the run.
        deadline_s: on this machine's monotonic clock.
        builders: how many builder actors to run; `space_workers` likewise.
        facts: parameters of the run as the tracker shows them.
        tracking_uri: of MLflow; empty is a database inside the run folder.
        base_model: what the cost model begins with; None is nothing.
        seeds: what searches may begin with, by task key.
        max_kernels: that may serve all shapes of a task with symbolic dimensions.
        url: of the run, where it lives away from this machine; `run` is then its working folder.
    """

    run: Path
    driver_pid: int
    tasks: tuple[Task, ...]
    defaults: Mapping[str, Candidate]
    effort: Effort
    trials: int
    deadline_s: float
    finalists_s: float
    seed: int
    strategy: str
    builders: int
    space_workers: int
    cpu_target: bool
    facts: Mapping[str, object]
    tracking_uri: str = ""
    base_model: bytes | None = None
    seeds: Mapping[str, Seeds] = field(default_factory=dict)
    max_kernels: int = MAX_KERNELS
    url: str = ""


@dataclass(frozen=True, slots=True)
class SearchState:
    """What a driver sees of a search.

    Attributes:
        snapshot: None before the session has begun.
        ended: why it ended; empty while it goes on.
        error: one line, where it failed; `trace` is for `--debug`.
    """

    snapshot: Snapshot | None
    ended: str = ""
    error: str = ""
    trace: str = ""
    warnings: tuple[str, ...] = ()


class SearchHost:
    """Runs one session on a thread. A plain class: `SearchActor` is it on Ray."""

    def __init__(self, order: SearchOrder) -> None:
        self._order = order
        self._session: Session | None = None
        self._stop = threading.Event()
        self._ended = self._error = self._trace = ""
        self._warnings: list[str] = []
        self._thread = threading.Thread(target=self._work, name="session", daemon=True)
        self._thread.start()

    def state(self) -> SearchState:
        """Where the search is."""
        session = self._session
        return SearchState(
            session.snapshot() if session is not None else None,
            self._ended,
            self._error,
            self._trace,
            tuple(self._warnings),
        )

    def stop(self) -> None:
        """End the session in order."""
        self._stop.set()
        if self._session is not None:
            self._session.stop()

    def _work(self) -> None:
        try:
            ended = self._run()
        except TunerError as error:
            self._error, self._trace = str(error), traceback.format_exc()
            ended = "failed"
        except Exception as error:  # the thread's border: a bug must reach the driver
            self._error = f"{type(error).__name__}: {error}"
            self._trace = traceback.format_exc()
            ended = "failed"
        self._ended = ended

    def _run(self) -> str:
        order, run = self._order, RunFolder(self._order.run)
        lock = RunLock(run.lock, serves=order.driver_pid)
        with lock, contextlib.closing(open_store(run, order.url)) as store:
            _log_to(run.log)
            store.put_tasks(order.tasks, {k: c.key for k, c in order.defaults.items()})
            with self._tracked(run, store) as observer, _machines(order, run) as machines:
                self._session = Session(
                    order.tasks,
                    order.defaults,
                    machines=machines,
                    store=store,
                    limits=Limits(order.trials, order.deadline_s, order.finalists_s),
                    effort=order.effort,
                    make_search=search_maker(
                        order.strategy,
                        lambda task: order.seeds.get(task.key, Seeds()),
                        max_kernels=order.max_kernels,
                    ),
                    seed=order.seed,
                    observers=[observer],
                )
                if self._stop.is_set():
                    self._session.stop()
                return self._session.run()

    @contextlib.contextmanager
    def _tracked(self, run: RunFolder, store: RecordStore) -> Iterator[Observer]:
        """Tracking around a session: whatever becomes of it, MLflow hears how it ended."""
        order = self._order
        try:
            spool = SpoolObserver(
                run.root, name=run.root.name, params=order.facts, new_uuid=_new_uuid(order, run)
            )
        except OSError as error:
            raise TunerError(f"cannot write to {run.root}: {error.strerror}") from error
        tracker = TrackerProcess.start(run.root, order.tracking_uri)
        quiet = _quiet(order)
        if quiet is not None and tracker.pid is not None:
            quiet.register(tracker.pid)
        status = RunStatus.FAILED
        try:
            told = _CatchingUp(spool, store)
            yield AfterDurable(told, store) if isinstance(store, SegmentStore) else told
            status = RunStatus.KILLED if self._stop.is_set() else RunStatus.FINISHED
        finally:
            spool.close(status)
            patience_s = _TRACKING_S if status is RunStatus.FINISHED else _TRACKING_WHEN_CUT_SHORT_S
            outcome = tracker.finish(patience_s)
            if outcome.warning:
                self._warnings.append(outcome.warning)


class _CatchingUp:
    """A spool observer that first says what an earlier session stored but did not say."""

    def __init__(self, spool: SpoolObserver, store: RecordStore) -> None:
        self._spool = spool
        self._store = store
        self.on_record = spool.on_record
        self.on_model = spool.on_model
        self.on_snapshot = spool.on_snapshot
        self.on_end = spool.on_end

    def on_start(self, tasks: Sequence[Task]) -> None:
        """Announce the tasks, then catch up."""
        self._spool.on_start(tasks)
        self._spool.catch_up(self._store.scan())


SearchActor = ray.remote(num_cpus=0, max_restarts=0)(SearchHost)


def _new_uuid(order: SearchOrder, run: RunFolder) -> Callable[[], str]:
    """What the tracker is to know a new run by: of one with a URL the same on each machine."""
    if not order.url:
        return lambda: uuid4().hex
    return lambda: run_uuid(run_place(order.url), run.read_manifest())


def node_folder() -> Path:
    """What all runs of this user share on a node."""
    import getpass

    return Path(tempfile.gettempdir()) / f"elastic-tuner-{getpass.getuser()}"


def _quiet(order: SearchOrder) -> Quiet | None:
    return Quiet(node_folder() / "quiet") if order.cpu_target else None


@contextlib.contextmanager
def _machines(order: SearchOrder, run: RunFolder) -> Iterator[Machines]:
    """Workers on the cluster and a learner beside the session, for the length of a block."""
    place = WorkerPlace(
        quiet=node_folder() / "quiet" if order.cpu_target else None,
        logs=run.logs,
        scratch=run.scratch,
    )
    tasks_ref = ray.put(order.tasks)
    needs = _runner_needs(order.cpu_target)
    starters = Starters(
        builder=lambda name: _start("builder", name, place, tasks_ref),
        runner=lambda name: _start("runner", name, place, tasks_ref, **needs),
    )
    utilisation = Utilisation()
    with contextlib.ExitStack() as stack:
        learner = stack.enter_context(contextlib.closing(_learner(order, run)))
        measurer = RayMeasurer(
            starters,
            builders=order.builders,
            runners=1,
            effort=order.effort,
            utilisation=utilisation,
        )
        stack.callback(measurer.close)
        space_pool = RaySpacePool(
            order.space_workers,
            lambda name, version, model: _start("space", name, place, tasks_ref, version, model),
            utilisation=utilisation,
        )
        stack.callback(space_pool.close)
        yield Machines(measurer, space_pool, learner, utilisation)


def _runner_needs(cpu_target: bool) -> dict[str, Any]:
    """What a runner asks of a node: a GPU, or the right to time kernels on its CPU.

    A cluster that declares no such right has one runner all the same: ours is the only one.
    """
    if not cpu_target:
        return {"num_gpus": 1}
    return {"resources": {MEASURE: 1}} if MEASURE in ray.cluster_resources() else {}


def _learner(order: SearchOrder, run: RunFolder) -> ProcessLearner:
    quiet = _quiet(order)
    log = run.logs / "learner.log"
    if quiet is None:
        return ProcessLearner(seed=order.seed, base=order.base_model, log=log)
    return ProcessLearner(
        seed=order.seed,
        base=order.base_model,
        log=log,
        frozen_s=quiet.frozen_s,
        on_start=quiet.register,
    )


def _start(kind: str, name: str, place: WorkerPlace, *args: Any, **needs: Any) -> Any:
    return actor_class(kind).options(**needs).remote(name, place, *args)


def _log_to(path: Path) -> None:
    """Keep this process's log lines in the run folder."""
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
    handler.formatter.converter = time.gmtime  # type: ignore[union-attr]
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.INFO)
