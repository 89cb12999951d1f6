"""The best schedule of each task of a run, for people and programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tuner.storage.base import RecordStore
    from tuner.view.task_view import TaskView


@dataclass(frozen=True, slots=True)
class BestSchedule:
    """The best schedule of a task.

    Attributes:
        trace: of the winner, as Python; None for a task with symbolic dimensions, and where nothing
            was measured yet.
        kernel_set: see `cluster.app.driver.kernel_sets.describe_set`; None for a static task, or
            where nothing was measured yet.
    """

    task: TaskView
    trace: str | None
    kernel_set: dict[str, Any] | None

    def to_json(self) -> dict[str, Any]:
        """The keys of a task in `tuner best --json`."""
        from tuner.view.as_json import best_json

        return {**best_json(self.task), "trace": self.trace, "kernel_set": self.kernel_set}


def best_schedules(store: RecordStore, task: str | None, max_kernels: int) -> list[BestSchedule]:
    """The best schedule of each task, or of the task of that name or key.

    Raises:
        TunerError: there is no such task.
    """
    from cluster.app.driver.kernel_sets import describe_set, kernel_set
    from tuner.view.folds import find_winners

    sets = {
        t.key: chosen
        for t in store.tasks()
        if task in (None, t.name, t.key)
        and (chosen := kernel_set(store, t, max_kernels)) is not None
    }
    schedules = []
    for won in find_winners(store, {key: chosen.latency_s for key, chosen in sets.items()}, task):
        trace = None
        if won.choice is not None:
            from spaces.design_space.realize import trace_text

            trace = trace_text(won.task, won.choice.record.trial.candidate)
        told = describe_set(won.task, sets[won.task.key]) if won.task.key in sets else None
        schedules.append(BestSchedule(won.view, trace, told))
    return schedules


@dataclass(frozen=True, slots=True)
class Explained:
    """What to say of the best schedules of a run.

    Attributes:
        rows: of each static task whose best schedule can be explained.
        symbolic: names of the tasks with symbolic dimensions.
        unmeasured: names of the static tasks of which no schedule has a time.
        without_loops: names of those whose best schedule has no block with loops.
    """

    rows: tuple[dict[str, Any], ...]
    symbolic: tuple[str, ...] = ()
    unmeasured: tuple[str, ...] = ()
    without_loops: tuple[str, ...] = ()


def best_explained(store: RecordStore, task: str | None) -> Explained:
    """What to say of the best schedule of each task, or of the task of that name or key.

    Raises:
        TunerError: there is no such task.
    """
    from tuner.view.as_json import best_json
    from tuner.view.folds import find_winners

    rows: list[dict[str, Any]] = []
    left_out: dict[str, list[str]] = {"symbolic": [], "unmeasured": [], "without_loops": []}
    for won in find_winners(store, task=task):
        if won.choice is None:
            left_out["symbolic" if won.task.shapes else "unmeasured"].append(won.task.name)
            continue
        from spaces.deploy.explain import explain

        said = explain(won.task, won.choice.record.trial.candidate)
        if said is None:
            left_out["without_loops"].append(won.task.name)
            continue
        names = ("name", "weight", "default_ms", "latency_ms", "gflops", "space")
        best = best_json(won.view)
        rows.append({**{name: best[name] for name in names}, **said.to_json()})
    return Explained(tuple(rows), **{why: tuple(names) for why, names in left_out.items()})
