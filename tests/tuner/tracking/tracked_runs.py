"""Whole sessions on recorded spaces, tracked as the search actor tracks its own."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np

from tuner.candidate import Candidate, CandidateKind
from tuner.cost_models.learner import InlineLearner
from tuner.effort import Effort
from tuner.record import Measurement, Status
from tuner.replay.recorded import Recorded
from tuner.replay.replay import ReplayMeasurer, ReplaySpacePool, VirtualClock
from tuner.search.registry import search_maker
from tuner.session.limits import Limits
from tuner.session.machines import Machines
from tuner.session.session import Session
from tuner.storage.facts import Defaults, Tasks
from tuner.storage.sqlite_store import SqliteStore
from tuner.task import Task
from tuner.tracking.entries import TrackingPaths
from tuner.tracking.observer import RunStatus, TrackingObserver

EFFORT = Effort("test", trials_per_task=10, time_budget_s=1e6, finalists=2)
_SIZE = 120
"""Candidates of a task."""
_MODEL = "tuner.cost_models.random_model:RandomModel"


def many_tasks(number: int) -> list[Task]:
    """Tasks of one network, the heavier the higher their number."""
    names = ("conv2d_add_relu", "dense_add", "batch_matmul", "softmax", "layer_norm")
    return [
        Task(
            f"{n:04d}",
            f"{names[n % len(names)]}_{n}",
            "{}",
            "llvm",
            weight=1.0 + n % 3,
            flops=2e6 * (n + 1),
        )
        for n in range(number)
    ]


def _candidate(task: Task, number: int) -> Candidate:
    return Candidate(CandidateKind.TRACE, json.dumps([task.key, number]), f"space-{number % 3}")


def _measured(task: Task, number: int, speed: float) -> Measurement:
    if number % 9 == 4:
        return Measurement(Status.RUN_FAILED, error="crash", build_s=0.4, run_s=0.1)
    if number % 23 == 11:
        return Measurement(Status.BUILD_FAILED, error="no", build_s=0.4)
    latency_s = task.flops / (5e9 * speed) * (1 + abs(number - 70) / 40)
    return Measurement(Status.OK, (latency_s,) * 3, build_s=0.6, run_s=0.5)


def replayed_run(
    run_dir: Path,
    tasks: Sequence[Task],
    *,
    trials: int,
    seed: int = 7,
    speed: float = 1.0,
    strategy: str = "evolutionary",
    tags: Mapping[str, str] | None = None,
    began_s: float = 1.7e9,
    status: RunStatus = RunStatus.FINISHED,
) -> None:
    """Tune tasks whose candidates lie on a line, the nearer to number 70 the faster, and leave what
    a tracker is to send.

    Args:
        speed: of the device that is replayed.
        began_s: seconds since the epoch.
    """
    clock = VirtualClock(began_s)
    spaces = {
        task.key: [
            Recorded(
                _candidate(task, n),
                np.array([n, 1.0], dtype=np.float32),
                _measured(task, n, speed),
            )
            for n in range(_SIZE)
        ]
        for task in tasks
    }
    defaults = {task.key: _candidate(task, 0) for task in tasks}
    params = {"model": "network", "trials": trials, "seed": seed, "strategy": strategy}
    paths = TrackingPaths(run_dir)
    with closing(SqliteStore(paths.store)) as store:
        store.put(Tasks(tasks), Defaults({key: c.key for key, c in defaults.items()}))
        observer = TrackingObserver(
            paths, store, name=run_dir.name, params=params, tags=tags, clock=clock
        )
        session = Session(
            tasks,
            defaults,
            machines=Machines(
                ReplayMeasurer(spaces, slots=4, clock=clock),
                ReplaySpacePool(spaces),
                InlineLearner(model=_MODEL, clock=clock),
            ),
            store=store,
            limits=Limits(trials, began_s + 1e6, 1e5),
            effort=EFFORT,
            make_search=search_maker(strategy),
            seed=seed,
            observers=[observer],
            clock=clock,
            wall=clock,
        )
        session.run()
        observer.close(status)
