"""The kernel set of a task, chosen from the records in a run's store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tuner.storage.base import RecordStore
from tuner.task import Task

if TYPE_CHECKING:
    from tuner.dynamic.kernel_set import KernelSet


def kernel_set(store: RecordStore, task: Task, most: int) -> KernelSet | None:
    """At most `most` kernels for a task's shapes; None for a static task, or without results.

    It needs records only, so it can be computed at any moment of a run, and again with another
    number.
    """
    if not task.shapes:
        return None
    from spaces.design_space.task_space import TaskSpace
    from tuner.search.dynamic.kernel_selection import choose_kernels

    return choose_kernels(task, tuple(store.scan(task.key)), TaskSpace(task).kernel, most)


def kernel_sets(store: RecordStore, most: int) -> dict[str, KernelSet]:
    """The kernel set of each task with symbolic dimensions that has results, by task key."""
    sets = ((task.key, kernel_set(store, task, most)) for task in store.tasks())
    return {key: chosen for key, chosen in sets if chosen is not None}


def read_latencies_s(store: RecordStore, most: int) -> dict[str, float]:
    """The latency of each of `kernel_sets`, weighted over its shapes."""
    return {key: chosen.latency_s for key, chosen in kernel_sets(store, most).items()}


def describe_set(task: Task, chosen: KernelSet) -> dict[str, Any]:
    """A kernel set as plain data.

    Returns:
        The keys of `KernelSet.to_json`, and `traces`: Python text of each kernel.
    """
    from spaces.design_space.realize import trace_text

    told = chosen.to_json()
    traces = [trace_text(task, candidate) for candidate in chosen.kernels]
    return {"kernels": told.pop("kernels"), "traces": traces, **told}
