"""The core alone: a session over a measurer, its search never dry and free of cost."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import psutil

from tuner.candidate import Candidate, CandidateKind, Draft
from tuner.dataset import Dataset
from tuner.dynamic.kernel_set import KernelSet
from tuner.effort import EFFORTS
from tuner.measure import Evaluated, Measurer
from tuner.observer import FittedModel
from tuner.progress import Snapshot
from tuner.record import Record, Trial
from tuner.run_folder import RunFolder
from tuner.session import Limits, Machines, Session
from tuner.sqlite_store import SqliteStore
from tuner.task import Task
from tuner.tracking import RunStatus, SpoolObserver
from tuner.utilisation import Utilisation

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
    utilisation: Utilisation | None = None,
    limit_s: float = 600.0,
) -> Went:
    """Run a session with everything that a run has but workers: store, spool, observers."""
    run = RunFolder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    task = Task("t", "simulated", "{}", '{"kind":"llvm"}')
    spool, timeline = SpoolObserver(folder, name="simulated", params={}), Timeline()
    with closing(SqliteStore(run.store)) as store:
        store.put_tasks([task], {})
        session = Session(
            [task],
            {task.key: numbered(-1)},
            machines=Machines(measurer, NoPool(), NoLearner(), utilisation),
            store=store,
            limits=Limits(trials, time.monotonic() + limit_s, 0.0),
            effort=EFFORTS["quick"],
            make_search=Endless,
            seed=0,
            observers=[spool, timeline],
        )
        started_s = time.monotonic()
        session.run()
        wall_s = time.monotonic() - started_s
        spool.close(RunStatus.FINISHED)
        times_s = tuple(sorted(r.time_s for r in store.scan() if r.trial.rung == 0))
    rss_mb = psutil.Process().memory_info().rss / 2**20
    return Went(len(times_s), wall_s, times_s, rss_mb, tuple(timeline.snapshots))
