"""The kernel set of a task, from what a run's store holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tuner.store import RecordStore
from tuner.task import Task

if TYPE_CHECKING:
    from tuner.dynamic.choice import KernelSet


def kernel_set(store: RecordStore, task: Task, most: int) -> KernelSet | None:
    """At most `most` kernels for a task's shapes; None for a static task, or without results.

    Nothing but records is needed, so it can be asked for at any moment of a run, and again with
    another number.
    """
    if not task.shapes:
        return None
    from spaces.task_space import TaskSpace
    from tuner.dynamic.choice import choose_kernels

    return choose_kernels(task, tuple(store.scan(task.key)), TaskSpace(task).kernel, most)


def chosen_s(store: RecordStore, most: int) -> dict[str, float]:
    """What the kernels of each task with symbolic dimensions take, weighted over its shapes, by
    task key."""
    sets = ((task.key, kernel_set(store, task, most)) for task in store.tasks())
    return {key: chosen.latency_s for key, chosen in sets if chosen is not None}


def described(task: Task, chosen: KernelSet) -> dict[str, Any]:
    """A kernel set as plain data.

    Returns:
        `kernels` (their candidates' keys), `traces` (Python text of each), `tree` (text),
        `shapes` (for each its sizes, weight, kernel, `latency_ms`, `best_ms` of the best kernel
        of all, whether it was `measured`, and `padding_ms`: how much of the latency goes into
        padding, None where its template knows of none), `losses` (of the best set of one kernel,
        two, and so on), `loss` (of the tree), `prediction_error` and `predictions_judged`.
    """
    from spaces.realize import trace_text
    from tuner.dynamic.tree import tree_text

    return {
        "kernels": [candidate.key for candidate in chosen.kernels],
        "traces": [trace_text(task, candidate) for candidate in chosen.kernels],
        "tree": tree_text(chosen.tree),
        "shapes": [
            {
                "shape": dict(s.instance),
                "weight": s.weight,
                "kernel": s.kernel,
                "latency_ms": s.latency_s * 1e3,
                "best_ms": s.best_s * 1e3,
                "measured": s.measured,
                "padding_ms": None if s.padding is None else s.latency_s * s.padding * 1e3,
            }
            for s in chosen.shapes
        ],
        "losses": list(chosen.losses),
        "loss": chosen.loss,
        "prediction_error": chosen.error,
        "predictions_judged": chosen.judged,
    }
