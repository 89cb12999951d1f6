"""Holds an observer back until what it is told of is durable."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from tuner.cost_models.base import FittedModel
from tuner.kernel_set import KernelSet
from tuner.record import Record, TrialKey
from tuner.session.observer import Observer
from tuner.session.progress import Snapshot
from tuner.task import Task


class Buffered(Protocol):
    """A store whose records become durable a little after they were appended."""

    def is_durable(self, key: TrialKey) -> bool:
        """Whether the record of this trial is durable."""

    def flush(self) -> None:
        """Wait until all are."""


class AfterDurable:
    """An `Observer` that tells another of each record, in order, once it is durable.

    It looks whenever it is told anything, which a session does every few seconds. Snapshots pass
    as they are: their counts may be ahead of the records by as much as the store's buffer. At the
    end it waits for the store, whose `TunerError` then ends the session.
    """

    def __init__(self, observer: Observer, store: Buffered) -> None:
        self._observer = observer
        self._store = store
        self._waiting: deque[tuple[Record, float | None]] = deque()

    def on_start(self, tasks: Sequence[Task]) -> None:
        """See `Observer.on_start`."""
        self._observer.on_start(tasks)

    def on_record(self, record: Record, best_s: float | None) -> None:
        """See `Observer.on_record`; passed on later."""
        self._waiting.append((record, best_s))

    def on_model(self, fitted: FittedModel) -> None:
        """See `Observer.on_model`."""
        self._tell()
        self._observer.on_model(fitted)

    def on_snapshot(self, snapshot: Snapshot) -> None:
        """See `Observer.on_snapshot`."""
        self._tell()
        self._observer.on_snapshot(snapshot)

    def on_kernels(self, task_key: str, chosen: KernelSet) -> None:
        """See `Observer.on_kernels`; every record was passed on before.

        Raises:
            TunerError: not all records could be made durable.
        """
        self._store.flush()
        self._tell()
        self._observer.on_kernels(task_key, chosen)

    def on_end(self, snapshot: Snapshot) -> None:
        """See `Observer.on_end`; every record was passed on before.

        Raises:
            TunerError: not all records could be made durable.
        """
        self._store.flush()
        self._tell()
        self._observer.on_end(snapshot)

    def _tell(self) -> None:
        while self._waiting and self._store.is_durable(self._waiting[0][0].trial.key):
            self._observer.on_record(*self._waiting.popleft())
