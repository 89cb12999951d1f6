"""The observers of a session: tracking, logs, reports. They never hold it up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tuner.cost_models.base import FittedModel
from tuner.dynamic.kernel_set import KernelSet
from tuner.record import Record
from tuner.task import Task
from tuner.view.progress import Snapshot


class Observer(Protocol):
    """Is told of everything after the store has it; a store may make records durable a little
    later. Each method must return at once and must not raise."""

    def on_start(self, tasks: Sequence[Task]) -> None:
        """The session begins (or goes on) with these tasks."""

    def on_record(self, record: Record, best_s: float | None) -> None:
        """A record was stored; `best_s` is the best latency of its task now."""

    def on_model(self, fitted: FittedModel) -> None:
        """A new cost model is in use."""

    def on_snapshot(self, snapshot: Snapshot) -> None:
        """A new snapshot is there; told every few seconds."""

    def on_kernels(self, task_key: str, chosen: KernelSet) -> None:
        """The kernels of a task with symbolic dimensions were chosen, from all its records; right
        before the end."""

    def on_end(self, snapshot: Snapshot) -> None:
        """The session is over, and all that the store was given is durable."""


class Silent:
    """An observer that does nothing, for others to inherit."""

    def on_start(self, tasks: Sequence[Task]) -> None:
        """See `Observer`."""

    def on_record(self, record: Record, best_s: float | None) -> None:
        """See `Observer`."""

    def on_model(self, fitted: FittedModel) -> None:
        """See `Observer`."""

    def on_snapshot(self, snapshot: Snapshot) -> None:
        """See `Observer`."""

    def on_kernels(self, task_key: str, chosen: KernelSet) -> None:
        """See `Observer`."""

    def on_end(self, snapshot: Snapshot) -> None:
        """See `Observer`."""
