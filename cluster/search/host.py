"""The search actor: hosts a run's session, and is the only writer of its store.

The session's loop has a thread of its own, so that the actor still answers. Everything it knows
comes from its job and the run folder: Ray may start it again at any time. On a cluster that
others share it does not depend on the driver that ordered it, which may come and go; it ends by
itself soon after its session has.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import ray

from actors.chunked_args import in_pieces
from actors.quiet_lock import Quiet
from actors.ray_actors import WorkerPlace, actor_class
from cluster.ray_workers.elastic import ElasticMeasurer
from cluster.ray_workers.metrics import RunMetrics
from cluster.ray_workers.nodes import NodeWatch, one_of
from cluster.ray_workers.ray_measurer import RayMeasurer, Starters
from cluster.ray_workers.ray_space_pool import RaySpacePool
from cluster.scaling.scaling_policy import Cluster, Demand, amount
from cluster.search.job import SearchJob, SearchState, load
from cluster.search.naming import run_name, searches, share_of_cpus, share_of_devices
from spaces.targets.backends import Backend
from tuner.cost_models.learner import ProcessLearner
from tuner.errors import TunerError
from tuner.files.own_folder import own_folder
from tuner.kernel_set import KernelSet
from tuner.report.winners import winning_lines
from tuner.runs.folder import RunFolder
from tuner.runs.lock import RunLock
from tuner.runs.remote import open_store, remote_run, run_uuid
from tuner.search.registry import search_maker
from tuner.search.transfer import Seeds
from tuner.session.observer import Observer
from tuner.session.progress import Snapshot
from tuner.session.session import Limits, Machines, Session
from tuner.storage.base import RecordStore
from tuner.task import Task
from tuner.tracking.tracker import RunStatus, SpoolObserver, TrackerProcess
from tuner.utilisation import SPACE, Utilisation

_TRACKING_S = 15.0
_TRACKING_LOCAL_S = 60.0
"""MLflow makes its database before the first entry, which takes tens of seconds on a busy
machine; a server may be gone, a database on this machine is only slow."""
_TRACKING_WHEN_CUT_SHORT_S = 8.0
_GOODBYE_S = 3.0
"""How long it answers after somebody was told of its end: others may watch it too."""
_LINGER_S = 60.0
"""How long one that outlives its driver waits for somebody to ask how it ended."""
_QUIET = Path("quiet")
"""In what all runs of this user share on a node."""
_FRUITLESS = 5
"""Deaths in a row without a single record in between, after which it is not started again."""


class SearchHost:
    """Runs one session on a thread. A plain class: `SearchActor` is it on Ray.

    Args:
        saved_job: the file that `cluster.search.job.save` wrote.
    """

    def __init__(self, saved_job: Path) -> None:
        self._job = job = load(saved_job)
        self._session: Session | None = None
        self._stop = threading.Event()
        self._ended = self._error = self._trace = ""
        self._warnings: list[str] = []
        self._told = threading.Event()
        self._metrics = RunMetrics(job.run.name)
        self._thread = threading.Thread(target=self._work, name="session", daemon=True)
        self._thread.start()

    def state(self) -> SearchState:
        """Where the search is."""
        session = self._session
        if self._ended:
            self._told.set()
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
        if self._job.driver_pid is None:
            self._told.wait(_LINGER_S)
            time.sleep(_GOODBYE_S)
            ray.kill(ray.get_runtime_context().current_actor)

    def _run(self) -> str:
        job, run = self._job, RunFolder(self._job.run)
        lock = RunLock(run.lock, serves=job.driver_pid)
        with lock, contextlib.closing(open_store(run, job.url)) as store:
            _log_to(run.log)
            _refuse_to_die_again(store)
            store.put_tasks(job.tasks, {k: c.key for k, c in job.defaults.items()})
            with self._tracked(run, store) as observer, self._machines(run) as machines:
                self._session = Session(
                    job.tasks,
                    job.defaults,
                    machines=machines,
                    store=store,
                    limits=Limits(job.trials, job.deadline_s, job.finalists_s),
                    effort=job.effort,
                    make_search=search_maker(
                        job.strategy,
                        lambda task: job.seeds.get(task.key, Seeds()),
                        max_kernels=job.max_kernels,
                    ),
                    seed=job.seed,
                    observers=[observer, self._metrics],
                )
                if self._stop.is_set():
                    self._session.stop()
                ended = self._session.run()
                self._warnings += self._session.left_out
                return ended

    @contextlib.contextmanager
    def _tracked(self, run: RunFolder, store: RecordStore) -> Iterator[Observer]:
        """Tracking around a session: whatever becomes of it, MLflow hears how it ended."""
        job = self._job
        try:
            spool = SpoolObserver(
                run.root, name=run.root.name, params=job.facts, new_uuid=_new_uuid(job, run)
            )
        except OSError as error:
            raise TunerError(f"cannot write to {run.root}: {error.strerror}") from error
        quiet = _quiet(job)
        tracker = TrackerProcess.start(run.root, job.tracking_uri)
        status = RunStatus.FAILED
        try:
            if quiet is not None and tracker.pid is not None:
                quiet.register(tracker.pid)
            yield _WithStore(spool, store)
            status = RunStatus.KILLED if self._stop.is_set() else RunStatus.FINISHED
        finally:
            spool.close(status)
            outcome = tracker.finish(self._patience_s(status))
            if outcome.warning:
                self._warnings.append(outcome.warning)

    def _patience_s(self, status: RunStatus) -> float:
        """How long the end waits for MLflow."""
        if status is not RunStatus.FINISHED:
            return _TRACKING_WHEN_CUT_SHORT_S
        uri = self._job.tracking_uri
        return _TRACKING_LOCAL_S if not uri or uri.startswith("sqlite:") else _TRACKING_S

    @contextlib.contextmanager
    def _machines(self, run: RunFolder) -> Iterator[Machines]:
        """Workers on the cluster and a learner beside the session, for the length of a block."""
        job, place = self._job, _place(self._job, run)
        tasks = in_pieces(job.tasks)
        watch = NodeWatch()
        needs = _runner_needs(job.backend, watch.look())

        def start(kind: str, name: str, **needs: Any) -> Any:
            options = {**needs, **watch.avoid(unlike=kind == "runner")}
            return actor_class(kind).options(**options).remote(name, place, *tasks)

        starters = Starters(
            builder=lambda name: start("builder", name),
            runner=lambda name: start("runner", name, **needs),
            suspect=watch.suspect,
            unlike=watch.unlike,
        )
        utilisation = Utilisation()
        with contextlib.ExitStack() as stack:
            learner = stack.enter_context(contextlib.closing(_learner(job, run)))
            builders_and_runners = RayMeasurer(
                starters,
                effort=job.effort,
                device=job.device,
                device_wait_s=job.device_wait_s,
                utilisation=utilisation,
            )
            stack.callback(builders_and_runners.close)
            space_pool = RaySpacePool(
                lambda name: start("space", name),
                device_wait_s=job.device_wait_s,
                suspect=watch.suspect,
                utilisation=utilisation,
            )
            stack.callback(space_pool.close)
            measurer = ElasticMeasurer(
                builders_and_runners,
                space_pool,
                look=watch.look,
                demand=self._demand,
                each_look=lambda: self._metrics.on_pools(
                    {**builders_and_runners.ready, SPACE: space_pool.ready},
                    builders_and_runners.queues,
                ),
            )
            yield Machines(measurer, space_pool, learner, utilisation)

    def _demand(self) -> Demand:
        """What the run would use now."""
        job, session = self._job, self._session
        left = session.snapshot().trials_left if session is not None else job.trials
        names = searches()
        return Demand(
            job.backend.resource,
            left,
            job.devices,
            of_devices=share_of_devices(job.name, names),
            of_cpus=share_of_cpus(job.name, names),
        )


class _WithStore:
    """A spool observer that announces every task of which there may be records, and at the end, be
    it the budget's or a stop, keeps the winners where a dashboard shows them."""

    def __init__(self, spool: SpoolObserver, store: RecordStore) -> None:
        self._spool = spool
        self._store = store
        self._sets: dict[str, KernelSet] = {}
        self.on_record = spool.on_record
        self.on_model = spool.on_model
        self.on_snapshot = spool.on_snapshot

    def on_start(self, tasks: Sequence[Task]) -> None:
        """Announce the run's tasks: some may not be this session's."""
        self._spool.on_start(self._store.tasks())

    def on_kernels(self, task_key: str, chosen: KernelSet) -> None:
        """Their records are among the best."""
        self._sets[task_key] = chosen
        self._spool.on_kernels(task_key, chosen)

    def on_end(self, snapshot: Snapshot) -> None:
        """Last values, and the best of each task."""
        self._spool.keep("best.jsonl", winning_lines(self._store, self._sets))
        self._spool.on_end(snapshot)


SearchActor = ray.remote(num_cpus=0, max_restarts=-1)(SearchHost)
"""Started again by Ray wherever it dies; its calls are not repeated."""


def _new_uuid(job: SearchJob, run: RunFolder) -> Callable[[], str]:
    """What the tracker is to know a new run by: of one with a URL the same on each machine."""
    if not job.url:
        return lambda: uuid4().hex
    return lambda: run_uuid(remote_run(job.url), run.read_manifest())


def _place(job: SearchJob, run: RunFolder) -> WorkerPlace:
    quiet = _QUIET if job.backend.quiet else None
    away = Path("runs") / run_name(job.called)
    return WorkerPlace(quiet=quiet, logs=run.logs, scratch=run.scratch, away=away)


def _refuse_to_die_again(store: RecordStore) -> None:
    """Stop a search that Ray starts again and again only to see it die.

    Raises:
        TunerError: its latest sessions were all cut off before they gave a record.
    """
    latest = store.sessions()[-_FRUITLESS:]
    if len(latest) < _FRUITLESS or any(span.ended_s is not None for span in latest):
        return
    if not any(record.time_s >= latest[0].started_s for record in store.scan()):
        raise TunerError(
            f"the search process died {_FRUITLESS} times without a single result: "
            f"tuner.log in the run folder says what it did last"
        )


def _quiet(job: SearchJob) -> Quiet | None:
    return Quiet(own_folder() / _QUIET) if job.backend.quiet else None


def _runner_needs(backend: Backend, cluster: Cluster) -> dict[str, Any]:
    """What a runner asks of a node: a GPU, or the right to time kernels on its CPU.

    A cluster of fixed size that declares no such right has one runner all the same.
    """
    declared = cluster.grows or amount(cluster.nodes, backend.resource) >= 1
    return one_of(backend.resource) if declared or not backend.everywhere else {}


def _learner(job: SearchJob, run: RunFolder) -> ProcessLearner:
    quiet = _quiet(job)
    log = run.logs / "learner.log"
    if quiet is None:
        return ProcessLearner(seed=job.seed, base=job.base_model, log=log)
    return ProcessLearner(
        seed=job.seed,
        base=job.base_model,
        log=log,
        frozen_s=quiet.watch(),
        on_start=quiet.register,
    )


def _log_to(path: Path) -> None:
    """Keep this process's log lines in the run folder."""
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
    handler.formatter.converter = time.gmtime  # type: ignore[union-attr]
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.INFO)
