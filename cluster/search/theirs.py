"""Objects of a user's code that work in the process of the search."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from cluster.search.job import SearchJob
from spaces.targets.target import device_fingerprint
from tuner.contracts.contracts import CONTRACTS
from tuner.record import Record
from tuner.search.base import SearchMaker
from tuner.session.observer import Observer, Silent
from tuner.source import Source
from tuner.storage.base import RecordStore
from tuner.storage.facts import Defaults, Tasks
from tuner.task import Task
from tuner.user_code.guarded import guard
from tuner.user_code.load import load

_log = logging.getLogger(__name__)


def make_object(source: Source, layer: str, *given: Any) -> Any:
    """An object of the class that a source names, each of its calls with a deadline.

    Args:
        layer: its name, as in `tuner.layers.Layers`.
        given: what the class is called with.

    Raises:
        LayerFailed: it could not be made.
    """
    return guard(lambda: load(source)(*given), source, CONTRACTS[layer].what)


def strategy(source: Source | None, ours: str) -> SearchMaker | str:
    """The maker of a user's strategy; the name of ours where there is none."""
    if source is None:
        return ours
    return lambda task, seed: make_object(source, "strategy", task, seed)


class Archive(Silent):
    """A user's store beside the run's own: what it has of a run's tasks is taken over at the start,
    and it is given each record once the run's own store has it. An `Observer`.

    Args:
        theirs: a `tuner.contracts.seams.KeepsRecords`.
        ours: the run's own store, from which commands read.
    """

    def __init__(self, theirs: Any, ours: RecordStore) -> None:
        self._theirs, self._ours = theirs, ours

    def take_over(self, tasks: Sequence[Task], is_for: Callable[[Record], bool]) -> int:
        """Copy the records of tasks that the run's own store lacks; return their number.

        Args:
            is_for: whether a record was measured on a device like this run's.
        """
        self._theirs.put(Tasks(tuple(tasks)), self._ours.get(Defaults))
        wanted = {task.key for task in tasks}
        known = [r for r in self._theirs.scan() if r.trial.task_key in wanted and is_for(r)]
        return sum(self._ours.append_many([(record, None) for record in known]))

    def on_record(self, record: Record, best_s: float | None) -> None:
        """Give it a record."""
        self._theirs.append_many([(record, None)])


@contextlib.contextmanager
def observers_of(job: SearchJob, store: RecordStore) -> Iterator[list[Observer]]:
    """A user's observers, and the store beside the run's own, for the length of a block.

    Args:
        store: the run's own.
    """
    layers = job.layers
    found: list[Observer] = [make_object(each, "observers", job.run) for each in layers.observers]
    if layers.store is None:
        yield found
        return
    # Without a name of a device the search measures on this machine.
    device = job.device or device_fingerprint(job.options.target)
    with contextlib.closing(make_object(layers.store, "store", job.run)) as theirs:
        archive = Archive(theirs, store)
        taken = archive.take_over(job.tasks, lambda r: r.provenance.device == device)
        _log.info("%d records are those of %s", taken, layers.store.file)
        yield [*found, archive]
