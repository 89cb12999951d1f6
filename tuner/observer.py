"""Those who watch a session: tracking, logs, reports. They never hold it up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tuner.dynamic.kernel_set import KernelSet
from tuner.progress import Snapshot
from tuner.record import Record
from tuner.task import Task


@dataclass(frozen=True, slots=True)
class FittedModel:
    """A cost model that was just fitted.

    Attributes:
        version: counts up from 1 within a run.
        model: the model as bytes.
        records: how many records it was fitted on.
        pairwise_accuracy: share of pairs that the previous model ordered rightly among the
            candidates it had not seen; None where there were too few.
        fit_s: seconds the fit took.
    """

    version: int
    model: bytes
    records: int
    pairwise_accuracy: float | None
    fit_s: float


class Observer(Protocol):
    """Told of everything after it is durable. Must return at once and must not raise."""

    def on_start(self, tasks: Sequence[Task]) -> None:
        """The session begins (or goes on) with these tasks."""

    def on_record(self, record: Record, best_s: float | None) -> None:
        """A record was stored; `best_s` is its task's best latency now."""

    def on_model(self, fitted: FittedModel) -> None:
        """A new cost model is in use."""

    def on_snapshot(self, snapshot: Snapshot) -> None:
        """Every few seconds."""

    def on_kernels(self, task_key: str, chosen: KernelSet) -> None:
        """The kernels of a task with symbolic dimensions were chosen, from all its records; right
        before the end."""

    def on_end(self, snapshot: Snapshot) -> None:
        """The session is over."""
