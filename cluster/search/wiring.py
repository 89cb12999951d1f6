"""Makes a session from its job, with its machines, its learner and its search."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from actors.chunked_args import in_pieces
from actors.quiet_lock import PLACE, Quiet
from actors.ray_actors import WorkerPlace, actor_class
from cluster.ray_workers.elastic import ElasticPools
from cluster.ray_workers.metrics import RunMetrics
from cluster.ray_workers.nodes import NodeWatch, one_of
from cluster.ray_workers.ray_measurer import RayMeasurer, Starters
from cluster.ray_workers.ray_space_pool import RaySpacePool
from cluster.scaling.pool_policy import PoolCounts
from cluster.scaling.scaling_policy import LEAST_BUILDERS, Cluster, Demand, amount
from cluster.search.beginning import Beginning
from cluster.search.job import SearchJob
from cluster.search.looks import runs_beside
from cluster.search.naming import run_name, searches, share_of_cpus, share_of_devices
from cluster.search.theirs import make_object, strategy
from spaces.targets.backends import Backend
from tuner.cost_models.learner import ProcessLearner
from tuner.cost_models.named import XGB_MODEL
from tuner.cost_models.prior import load_priors
from tuner.files.own_folder import own_folder
from tuner.measure import MeasuredPrograms, Measurer
from tuner.runs.folder import RunFolder
from tuner.search.registry import search_maker
from tuner.search.transfer import Seeds
from tuner.session.limits import Limits
from tuner.session.machines import Machines
from tuner.session.observer import Observer
from tuner.session.session import Session
from tuner.storage.base import RecordStore
from tuner.utilisation import SPACE, Utilisation


@contextlib.contextmanager
def machines(
    job: SearchJob,
    run: RunFolder,
    trials_left: Callable[[], int],
    metrics: RunMetrics,
    programs: MeasuredPrograms,
) -> Iterator[Machines]:
    """Workers on the cluster and a learner beside the session, for the length of a block.

    Args:
        trials_left: gives the number of trials that the run has still to measure.
        metrics: is told of the workers about once a second.
        programs: those that have a time already.
    """
    watch = NodeWatch()
    starters, start_space_worker = _starters(job, run, watch)
    utilisation = Utilisation()
    with contextlib.ExitStack() as stack:
        learner = stack.enter_context(contextlib.closing(_learner(job, run)))
        builders_and_runners: RayMeasurer | None = None
        if (theirs := job.layers.measurer) is not None:
            measurer: Measurer = make_object(theirs, "measurer", job.tasks)
        else:
            builders_and_runners = RayMeasurer(
                starters,
                effort=job.options.effort,
                device=job.device,
                device_wait_s=job.device_wait_s,
                utilisation=utilisation,
                programs=programs,
            )
            measurer = builders_and_runners
        stack.callback(measurer.close)
        space_pool = RaySpacePool(
            start_space_worker,
            device_wait_s=job.device_wait_s,
            suspect=watch.suspect,
            utilisation=utilisation,
        )
        stack.callback(space_pool.close)
        pools = ElasticPools(
            builders_and_runners,
            space_pool,
            look=watch.look,
            demand=lambda: _demand(job, trials_left(), builders_and_runners),
            each_look=lambda: _show(metrics, builders_and_runners, space_pool),
        )
        pools.adapt()  # workers start while the session reads its store
        waits = None
        if builders_and_runners is not None and job.started_s is None:
            counts = partial(_counts, builders_and_runners, space_pool)
            waits = Beginning(counts, partial(runs_beside, job.name)).waits
        yield Machines(measurer, space_pool, learner, utilisation, pools.adapt, waits)


def _show(
    metrics: RunMetrics, builders_and_runners: RayMeasurer | None, space_pool: RaySpacePool
) -> None:
    """Tell of the workers."""
    metrics.on_pools(_counts(builders_and_runners, space_pool))


def _counts(
    builders_and_runners: RayMeasurer | None, space_pool: RaySpacePool
) -> Mapping[str, PoolCounts]:
    """The numbers of workers, by kind."""
    others = {} if builders_and_runners is None else builders_and_runners.counts
    return {**others, SPACE: space_pool.counts}


def new_session(
    job: SearchJob,
    store: RecordStore,
    machines: Machines,
    observers: Sequence[Observer],
    on_begin: Callable[[float], None],
) -> Session:
    """The session that carries out the job; `on_begin` as in `Session`."""
    options, seeds = job.options, job.warm_start.seeds
    allocator = job.layers.allocator
    return Session(
        job.tasks,
        job.defaults,
        libraries=job.libraries,
        machines=machines,
        store=store,
        limits=Limits(
            job.trials, job.deadline_s(time.monotonic()), options.finalists_s, options.until
        ),
        on_begin=on_begin,
        effort=options.effort,
        make_search=search_maker(
            strategy(job.layers.strategy, str(options.strategy)),
            lambda task: seeds.get(task.key, Seeds()),
            max_kernels=options.max_kernels,
            priors=load_priors(job.warm_start.priors),
        ),
        allocator=None if allocator is None else make_object(allocator, "allocator"),
        seed=options.seed,
        observers=observers,
    )


def quiet_lock(job: SearchJob) -> Quiet | None:
    """The lock that keeps this machine quiet while a kernel is timed; None where not needed."""
    return Quiet(own_folder() / PLACE) if job.backend.quiet else None


def _starters(
    job: SearchJob, run: RunFolder, watch: NodeWatch
) -> tuple[Starters, Callable[[str], Any]]:
    """The functions that start builders and runners, and the one that starts space workers."""
    place, tasks = _worker_place(job, run), in_pieces(job.tasks)
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
    return starters, lambda name: start("space", name)


def _worker_place(job: SearchJob, run: RunFolder) -> WorkerPlace:
    quiet = PLACE if job.backend.quiet else None
    away = Path("runs") / run_name(job.location)
    return WorkerPlace(quiet, run.logs, run.scratch, away, job.layers)


def _runner_needs(backend: Backend, cluster: Cluster) -> dict[str, Any]:
    """The resources that a runner requests: a GPU, or the right to time kernels on a CPU.

    Where a cluster of fixed size declares no such right, a runner on a CPU requests nothing.
    """
    declared = cluster.grows or amount(cluster.nodes, backend.resource) >= 1
    return one_of(backend.resource) if declared or not backend.everywhere else {}


def _demand(job: SearchJob, trials_left: int, workers: RayMeasurer | None) -> Demand:
    """The resources that the run would use now."""
    names = searches()
    return Demand(
        job.backend.resource,
        trials_left,
        job.options.devices,
        LEAST_BUILDERS if workers is None else workers.builders_per_runner,
        of_devices=share_of_devices(job.name, names),
        of_cpus=share_of_cpus(job.name, names),
    )


def _learner(job: SearchJob, run: RunFolder) -> ProcessLearner:
    start = partial(
        ProcessLearner,
        job.options.seed,
        model=job.layers.cost_model or XGB_MODEL,
        base=job.warm_start.model,
        log=run.logs / "learner.log",
    )
    if (quiet := quiet_lock(job)) is None:
        return start()
    return start(frozen_s=quiet.watch(), on_start=quiet.register)
