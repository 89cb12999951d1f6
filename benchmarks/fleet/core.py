"""A session over a measurer, with all that a run has but workers. Unless something else is asked
for, its search is never dry and free of cost: that is the core alone."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import psutil

from tuner.candidate import Candidate, CandidateKind, Draft
from tuner.cost_models.base import FittedModel
from tuner.cost_models.dataset import Dataset
from tuner.cost_models.learner import Learner
from tuner.dynamic.kernel_set import KernelSet
from tuner.effort import EFFORTS
from tuner.measure import Evaluated, Measurer, SpacePool
from tuner.record import Record, Trial
from tuner.runs.folder import RunFolder
from tuner.search.base import SearchMaker
from tuner.session.limits import Limits
from tuner.session.machines import Machines
from tuner.session.session import Session
from tuner.storage.facts import Defaults, Tasks
from tuner.storage.sqlite_store import SqliteStore
from tuner.task import Task
from tuner.tracking.entries import TrackingPaths
from tuner.tracking.tracker import RunStatus, TrackingObserver
from tuner.utilisation import Utilisation
from tuner.view.progress import Snapshot

_PAYLOAD = "x" * 400
"""About as long as a schedule's trace."""


class Endless:
    """A search that always has another candidate."""

    def __init__(self, task: Task, seed: int) -> None:
        self._task = task
        self._numbers = itertools.count(seed * 10_000_000)

    def drafts(self, n: int) -> list[Draft]:
        """None are needed."""
        return []

    def absorb(self, evaluated: Iterable[Evaluated]) -> None:
        """Nothing comes."""

    def propose(self, n: int) -> list[Trial]:
        """The next ones."""
        return [
            Trial(self._task.key, numbered(number)) for number in itertools.islice(self._numbers, n)
        ]

    def observe(self, records: Iterable[Record]) -> None:
        """Learns nothing."""

    @property
    def exhausted(self) -> bool:
        """Never."""
        return False


class NoPool:
    """A space pool for a search without drafts."""

    def free(self) -> int:
        """None."""
        return 0

    def submit(self, drafts: Sequence[Draft]) -> None:
        """Nothing to take."""

    def collect(self, timeout_s: float) -> list[Evaluated]:
        """Nothing to give."""
        return []

    def use_model(self, version: int, model: bytes) -> None:
        """Scores nothing."""

    def close(self) -> None:
        """Nothing to stop."""


class NoLearner:
    """Never fits."""

    pid = None

    def offer(self, dataset: Dataset) -> None:
        """Not looked at."""

    def poll(self) -> FittedModel | None:
        """Nothing new."""
        return None

    def close(self) -> None:
        """Nothing to stop."""


def numbered(number: int) -> Candidate:
    """A candidate of its own for each number."""
    return Candidate(CandidateKind.TRACE, f'["{number} {_PAYLOAD}"]', "simulated")


@dataclass(frozen=True, slots=True)
class Sought:
    """What a session looks for, and who helps it."""

    tasks: Sequence[Task]
    defaults: Mapping[str, Candidate]
    make_search: SearchMaker
    space_pool: SpacePool
    learner: Learner


def free_of_cost() -> Sought:
    """One task, and a search that only counts."""
    task = Task("t", "simulated", "{}", '{"kind":"llvm"}')
    return Sought([task], {task.key: numbered(-1)}, Endless, NoPool(), NoLearner())


class Timeline:
    """Notes how far a session is, as it tells of it."""

    def __init__(self) -> None:
        self.snapshots: list[Snapshot] = []

    def on_start(self, tasks: Sequence[Task]) -> None:
        """Nothing yet."""

    def on_record(self, record: Record, best_s: float | None) -> None:
        """Not looked at."""

    def on_model(self, fitted: FittedModel) -> None:
        """Not looked at."""

    def on_snapshot(self, snapshot: Snapshot) -> None:
        """Every two seconds."""
        self.snapshots.append(snapshot)

    def on_kernels(self, task_key: str, chosen: KernelSet) -> None:
        """There are none."""

    def on_end(self, snapshot: Snapshot) -> None:
        """The last one."""
        self.snapshots.append(snapshot)


@dataclass(frozen=True, slots=True)
class Went:
    """How a session of the core went.

    Attributes:
        times_s: when each record was made, seconds since the epoch, ascending.
        rss_mb: resident size at its end, of this process.
        snapshots: on the way, about one every two seconds; the last is its end.
    """

    records: int
    wall_s: float
    times_s: tuple[float, ...]
    rss_mb: float
    snapshots: tuple[Snapshot, ...]

    def rate(self, *, skip: float = 0.1) -> float:
        """Records a second, the first and last parts of them left out."""
        cut = int(len(self.times_s) * skip)
        middle = self.times_s[cut : len(self.times_s) - cut]
        return (len(middle) - 1) / (middle[-1] - middle[0])


def run_core(
    measurer: Measurer,
    folder: Path,
    trials: int,
    *,
    sought: Sought | None = None,
    utilisation: Utilisation | None = None,
    limit_s: float = 600.0,
) -> Went:
    """Run a session with store, tracking and observers.

    Args:
        sought: None is what is free of cost.
        limit_s: for all of it.
    """
    sought = sought or free_of_cost()
    run = RunFolder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    timeline = Timeline()
    with closing(SqliteStore(run.store)) as store:
        tracked = TrackingObserver(TrackingPaths(folder), store, name="simulated", params={})
        store.put(Tasks(sought.tasks), Defaults({k: c.key for k, c in sought.defaults.items()}))
        session = Session(
            sought.tasks,
            sought.defaults,
            machines=Machines(measurer, sought.space_pool, sought.learner, utilisation),
            store=store,
            limits=Limits(trials, time.monotonic() + limit_s, 0.0),
            effort=EFFORTS["quick"],
            make_search=sought.make_search,
            seed=0,
            observers=[tracked, timeline],
        )
        started_s = time.monotonic()
        session.run()
        wall_s = time.monotonic() - started_s
        tracked.close(RunStatus.FINISHED)
        times_s = tuple(sorted(r.time_s for r in store.scan() if r.trial.rung == 0))
    rss_mb = psutil.Process().memory_info().rss / 2**20
    return Went(len(times_s), wall_s, times_s, rss_mb, tuple(timeline.snapshots))
