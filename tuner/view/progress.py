"""The progress of each task: a fold over records, the same live and after a restart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from tuner.record import Record, Status
from tuner.task import Instance, Shapes, Task
from tuner.view.phase import Phase
from tuner.view.run_view import RunView
from tuner.view.task_view import TaskView


@dataclass(slots=True)
class TaskProgress:
    """The progress of one task so far.

    Attributes:
        spent: trials that count against the budget.
        statuses: number of rung-0 trials by status.
        bests: best latency so far, by shape; a static task has one shape, `()`.
        defaults: latency of the default schedule, by shape.
        history: `so_far_s` after each counted trial.
        retimed: samples of each candidate's re-timings, by candidate key.
    """

    task: Task
    spent: int = 0
    statuses: dict[Status, int] = field(default_factory=dict)
    default_key: str = ""
    bests: dict[Instance, float] = field(default_factory=dict)
    defaults: dict[Instance, float] = field(default_factory=dict)
    history: list[float | None] = field(default_factory=list)
    retimed: dict[str, list[float]] = field(default_factory=dict)
    _measured: Shapes = field(init=False)

    def __post_init__(self) -> None:
        self._measured = _find_measured(self.task)

    def observe(self, record: Record) -> None:
        """Take one record of this task in."""
        key, latency_s = record.trial.candidate.key, record.latency_s
        if record.trial.rung > 0:
            if latency_s is not None:
                self.retimed.setdefault(key, []).append(latency_s)
                if record.trial.instance:  # only finalists are timed on every shape
                    self._improve(record.trial.instance, latency_s)
            return
        status = record.measurement.status
        self.statuses[status] = self.statuses.get(status, 0) + 1
        self.spent += status.spends_budget
        if latency_s is not None:
            instance = record.trial.instance
            if key == self.default_key:
                self.defaults[instance] = latency_s
            self._improve(instance, latency_s)
        if status.spends_budget:
            self.history.append(self.so_far_s)

    def _improve(self, instance: Instance, latency_s: float) -> None:
        self.bests[instance] = min(latency_s, self.bests.get(instance, latency_s))

    @property
    def best_s(self) -> float | None:
        """Best latency; with several shapes, the weighted mean over each shape's own best kernel.

        No set of few kernels is faster. None until all shapes that are measured have a time: means
        over different shapes cannot be compared.
        """
        known = all(instance in self.bests for instance, _ in self._measured)
        return self.so_far_s if known else None

    @property
    def so_far_s(self) -> float | None:
        """`best_s` over the shapes that have a time so far; it rises when a heavy shape gets its
        first time. None before any has one."""
        return self._mean(self.bests)

    @property
    def default_s(self) -> float | None:
        """Latency of the default schedule, as far as it can be compared with `best_s`.

        It is timed on a few of many shapes; on the others it is taken to be slower than the best
        by the same factor.
        """
        best_s = self.best_s
        if not self.defaults or best_s is None:
            return None
        both = {i: self.bests[i] for i in self.defaults if i in self.bests}
        theirs, ours = self._mean(self.defaults), self._mean(both)
        return theirs if theirs is None or not ours else best_s * theirs / ours

    def _mean(self, latencies_s: Mapping[Instance, float]) -> float | None:
        known = [(weight, latencies_s[i]) for i, weight in self._measured if i in latencies_s]
        total = sum(weight for weight, _ in known)
        return sum(weight * s for weight, s in known) / total if total else None

    def view(self, chosen_s: float | None = None) -> TaskView:
        """What is shown of it.

        Args:
            chosen_s: latency of the kernel set chosen for many shapes; it stands in for `best_s`.
        """
        task = self.task
        return TaskView(
            task.key,
            task.name,
            task.weight,
            task.flops,
            dict(self.statuses),
            self.default_s,
            self.best_s if chosen_s is None else chosen_s,
        )


def _find_measured(task: Task) -> Shapes:
    if not task.shapes:
        return (((), 1.0),)
    from tuner.dynamic.shapes import choose_measured  # NumPy is too much for `tuner --help`

    return choose_measured(task.shapes)


def fold(
    tasks: Iterable[Task], defaults: Mapping[str, str], records: Iterable[Record]
) -> dict[str, TaskProgress]:
    """Progress of every task, by task key.

    Args:
        tasks: the run's tasks.
        defaults: key of the default candidate of each task.
        records: in the order they were stored; those of other tasks are ignored.
    """
    progress = {t.key: TaskProgress(t, default_key=defaults.get(t.key, "")) for t in tasks}
    for record in records:
        if record.trial.task_key in progress:
            progress[record.trial.task_key].observe(record)
    return progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot(RunView):
    """A session at one moment, for a terminal, a log line or another process.

    `elapsed_s`, `trials_per_s` and `utilisation` are of this session.

    Attributes:
        pairwise_accuracy: of the cost model on candidates it had not seen; None before a model.
        estimate_accuracy: the same of the analytic estimates; None before any pair.
        trials_left: trials still to be measured, re-timings included, as an estimate.
        next_gain: the share of the model's time that the next doubling of the trials is predicted
            to save; None where it cannot be told.
    """

    phase: Phase
    time_budget_s: float = 0.0
    trials_budget: int = 0
    pairwise_accuracy: float | None = None
    estimate_accuracy: float | None = None
    message: str = ""
    trials_left: int = 0
    next_gain: float | None = None


def side_by_side(parts: Mapping[str, Snapshot]) -> Snapshot:
    """Merge the snapshots of several searches; each task's name begins with its search's.

    The phase is that of the search furthest behind. Untuned and tuned times are added up.
    """
    snapshots = list(parts.values())
    tasks = tuple(
        replace(task, key=f"{name}/{task.key}", name=f"{name}/{task.name}")
        for name, snapshot in parts.items()
        for task in snapshot.tasks
    )
    said = dict.fromkeys(f"{name}: {s.message}" for name, s in parts.items() if s.message)
    return Snapshot(
        phase=Phase.least([s.phase for s in snapshots]),
        elapsed_s=max(s.elapsed_s for s in snapshots),
        time_budget_s=max(s.time_budget_s for s in snapshots),
        trials_budget=sum(s.trials_budget for s in snapshots),
        trials_per_s=sum(s.trials_per_s for s in snapshots),
        tasks=tasks,
        message="; ".join(said),
        trials_left=sum(s.trials_left for s in snapshots),
        modelled=any(s.modelled for s in snapshots),
    )
