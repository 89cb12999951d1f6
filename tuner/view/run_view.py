"""A whole run at one moment."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from tuner.record import Status
from tuner.utilisation import SlotSeconds
from tuner.view.task_view import TaskView, count_failures


@dataclass(frozen=True, slots=True)
class SpaceView:
    """What a run has had from one design space.

    Attributes:
        space: its name, version included; `default` is that of the default schedules.
        points: the number of its points, over the tasks that it was tried for; None where that is
            not known. Extents of tiles within tiles are taken as in a sample, and where a block is
            computed is not counted.
        explored: the number of its points that the search has looked at, those refused or known as
            another candidate too; with symbolic dimensions each point on each shape.
        trials: search trials of it that count against the budget.
        failed: search trials of it that gave no time.
        won: names of the tasks whose fastest trial in the search is one of it; of tasks with
            symbolic dimensions those whose fastest trial on any shape is.
        best_s: latency of the fastest trial of it in the search, whatever the task; None without
            a time.
    """

    space: str
    points: int | None
    explored: int
    trials: int
    failed: int
    won: tuple[str, ...]
    best_s: float | None

    @property
    def fruitless(self) -> bool:
        """Whether all of its trials failed."""
        return self.best_s is None and 0 < self.failed == self.explored


@dataclass(frozen=True, slots=True)
class ToolchainView:
    """A toolchain that times of a run were taken with.

    Attributes:
        toolchain: versions of TVM, its ffi, LLVM and the passes.
        trials: search trials that gave a time with it.
        won: names of the tasks whose fastest trial in the search was timed with it.
    """

    toolchain: str
    trials: int
    won: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """A run at one moment, from its store or from the session that works on it.

    Attributes:
        tasks: in the order of the model.
        elapsed_s: seconds of work.
        trials_per_s: the pace of that work.
        utilisation: seconds of workers, by kind and category.
        settled: whether the run has ended, so that latencies are of what was timed again; else they
            are of its search.
        modelled: whether latencies are a model's, of the emulated device.
        spaces: the design spaces that were tried, the most tried first; empty where not read.
        toolchains: that times were taken with, the one that was used last at the end; empty where
            not read. Times of several are not comparable.
    """

    tasks: tuple[TaskView, ...] = ()
    elapsed_s: float = 0.0
    trials_per_s: float = 0.0
    utilisation: SlotSeconds = field(default_factory=dict)
    settled: bool = False
    modelled: bool = False
    spaces: tuple[SpaceView, ...] = ()
    toolchains: tuple[ToolchainView, ...] = ()

    @property
    def trials(self) -> int:
        """Trials that count against the budget."""
        return sum(task.trials for task in self.tasks)

    @property
    def statuses(self) -> dict[Status, int]:
        """Number of trials of the search by how they ended."""
        counts: Counter[Status] = Counter()
        for task in self.tasks:
            counts.update(task.statuses)
        return dict(counts)

    @property
    def failures(self) -> dict[Status, int]:
        """Number of trials that failed, by kind; only kinds that occurred."""
        return count_failures(self.statuses)

    @property
    def uncompared(self) -> tuple[str, ...]:
        """Names of the tasks without a latency, or without one of their default schedule."""
        return tuple(task.name for task in self.tasks if not task.compared)

    @property
    def untuned_s(self) -> float | None:
        """Latency of the model's kernels, each as often as it runs, with default schedules; over
        the tasks where both latencies are known. None without any."""
        known = [task.untuned_s or 0.0 for task in self.tasks if task.compared]
        return sum(known) if known else None

    @property
    def tuned_s(self) -> float | None:
        """The same with the best; a default schedule that nothing beats stays in the model."""
        known = [task.tuned_s or 0.0 for task in self.tasks if task.compared]
        return sum(known) if known else None

    @property
    def gain(self) -> float | None:
        """Untuned over tuned latency; None where they are not known."""
        return self.untuned_s / self.tuned_s if self.untuned_s and self.tuned_s else None

    @property
    def latency_s(self) -> float | None:
        """What the model's kernels take, each as often as it runs, over all tasks that have a
        latency; None before any has one."""
        known = [task.tuned_s for task in self.tasks if task.best_s is not None]
        return math.fsum(s for s in known if s is not None) if known else None

    def shares(self, *, untuned: bool = False) -> Mapping[str, float]:
        """Each task's share of the time of all tasks that have a latency, by task key."""
        timed = [task for task in self.tasks if task.best_s is not None]
        parts = {t.key: (t.untuned_s if untuned else t.tuned_s) or 0.0 for t in timed}
        whole = sum(parts.values())
        return {key: part / whole for key, part in parts.items()} if whole else {}

    def by_time(self) -> list[TaskView]:
        """The tasks, those that the model spends most time in first, those without one last."""

        def time_s(task: TaskView) -> float:
            return -1.0 if task.tuned_s is None else task.tuned_s

        return sorted(self.tasks, key=lambda task: (-time_s(task), task.name))
