"""The records that a run is for: the best of each task, and of each shape of it."""

from __future__ import annotations

from tuner.record import Record
from tuner.report import choose_best, record_line
from tuner.store import RecordStore
from tuner.task import Instance


def winning_records(store: RecordStore) -> list[Record]:
    """The winner of each task, see `choose_best`; of one with symbolic dimensions the fastest
    record of each shape. Tasks come in the order of the model; one without results is left out.
    """
    found: list[Record] = []
    for task in store.tasks():
        if task.shapes:
            found += _fastest_of_shapes(store, task.key)
        elif (winner := choose_best(store, task.key)) is not None:
            found.append(winner)
    return found


def winning_lines(store: RecordStore) -> bytes:
    """The same as lines of JSON, which `tuner.record.record_from_json` reads."""
    return "".join(record_line(record) + "\n" for record in winning_records(store)).encode()


def _fastest_of_shapes(store: RecordStore, task_key: str) -> list[Record]:
    fastest: dict[Instance, tuple[float, Record]] = {}
    for record in store.scan(task_key):
        latency_s, instance = record.latency_s, record.trial.instance
        if latency_s is not None and (instance not in fastest or latency_s < fastest[instance][0]):
            fastest[instance] = (latency_s, record)
    return [fastest[instance][1] for instance in sorted(fastest)]
