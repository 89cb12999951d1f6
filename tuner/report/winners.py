"""The records that a run is for: the best of each task, and of each shape of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from tuner.candidate import Candidate
from tuner.generations import of_newest
from tuner.kernel_set import KernelSet
from tuner.record import Record
from tuner.record_lines import record_line
from tuner.report.report import choose_best
from tuner.storage.base import RecordStore
from tuner.task import Instance

NO_SETS: Mapping[str, KernelSet] = MappingProxyType({})
"""Nothing was chosen for any task."""


def winning_records(store: RecordStore, sets: Mapping[str, KernelSet] = NO_SETS) -> list[Record]:
    """The winner of each task, see `choose_best`; of one with symbolic dimensions, for each shape,
    the fastest record, and the one that counts of each of its kernels. Tasks come in the order of
    the model; one without results is left out.

    Args:
        sets: kernels of tasks with symbolic dimensions, by task key.
    """
    found: list[Record] = []
    for task in store.tasks():
        if task.shapes:
            kernels = sets[task.key].kernels if task.key in sets else ()
            found += _best_of_shapes(store, task.key, kernels)
        elif (winner := choose_best(store, task.key)) is not None:
            found.append(winner)
    return found


def winning_lines(store: RecordStore, sets: Mapping[str, KernelSet] = NO_SETS) -> bytes:
    """The same as lines of JSON, which `tuner.record.record_from_json` reads."""
    return "".join(record_line(record) + "\n" for record in winning_records(store, sets)).encode()


def _best_of_shapes(
    store: RecordStore, task_key: str, kernels: Sequence[Candidate]
) -> list[Record]:
    fastest: dict[Instance, Record] = {}
    counting: dict[tuple[Instance, Candidate], Record] = {}
    for record in of_newest(list(store.scan(task_key))):
        if record.latency_s is None:
            continue
        instance, candidate = record.trial.instance, record.trial.candidate
        fastest[instance] = min(fastest.get(instance, record), record, key=_seconds)
        if candidate in kernels:
            pair = (instance, candidate)
            counting[pair] = min(counting.get(pair, record), record, key=_retimed_first)
    found: list[Record] = []
    for instance in sorted(fastest):
        mine = [counting[pair] for kernel in kernels if (pair := (instance, kernel)) in counting]
        found += dict.fromkeys((fastest[instance], *mine))
    return found


def _seconds(record: Record) -> float:
    return record.latency_s or math.inf


def _retimed_first(record: Record) -> tuple[bool, float]:
    """A time of a finalist counts more than one of the search, and of several the least."""
    return record.trial.rung == 0, _seconds(record)
