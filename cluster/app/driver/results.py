"""The results of a run: the winners of its tasks, and the kernel sets of symbolic ones."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cluster.app.driver.kernel_sets import kernel_set
from tuner.candidate import CandidateKind
from tuner.errors import TunerError
from tuner.runs.folder import Manifest, RunFolder, refuse_unbegun
from tuner.runs.import_check import refuse_wrong_import
from tuner.storage.sqlite_store import SqliteStore
from tuner.view.winners import choose_best

if TYPE_CHECKING:
    from tuner.dynamic.kernel_set import KernelSet
    from tuner.record import Record
    from tuner.task import Task


@dataclass(frozen=True, slots=True)
class Results:
    """What a run has found, in the order of its tasks.

    Attributes:
        kernels: as `winners`, with the best schedule where something else won.
    """

    winners: tuple[tuple[Task, Record], ...]
    sets: tuple[tuple[Task, KernelSet], ...]
    kernels: tuple[tuple[Task, Record], ...] = ()

    @property
    def calls(self) -> dict[str, tuple[str, str]]:
        """The function that the winner of a task calls, and the space of its library, by the task's
        name; only where it is no kernel."""
        return {
            task.name: (won.payload, won.space)
            for task, record in self.winners
            if (won := record.trial.candidate).kind is CandidateKind.LIBRARY
        }


def results_of(folder: RunFolder, manifest: Manifest, name: object) -> Results:
    """The results of a run.

    Args:
        name: the user's name of the run.

    Raises:
        TunerError: there are none.
    """
    refuse_unbegun(folder, name)
    refuse_wrong_import(folder)
    with closing(SqliteStore(folder.store, read_only=True)) as store:
        tasks = store.tasks()
        winners = tuple(
            (task, record)
            for task in tasks
            if not task.shapes and (record := choose_best(store, task.key)) is not None
        )
        kernels = tuple(
            (task, kernel)
            for task, record in winners
            if (kernel := _kernel(store, task, record)) is not None
        )
        sets = tuple(
            (task, chosen)
            for task in tasks
            if (chosen := kernel_set(store, task, manifest.max_kernels)) is not None
        )
    if not (winners or sets):
        raise TunerError(f"{name} has no results yet: nothing was measured")
    return Results(winners, sets, kernels)


def _kernel(store: SqliteStore, task: Task, winner: Record) -> Record | None:
    """The best schedule of a task, which is its winner unless that is something else."""
    if winner.trial.candidate.is_schedule:
        return winner
    return choose_best(store, task.key, schedules_only=True)
