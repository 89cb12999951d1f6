"""The kernel set of a task, from what a run's store holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
