"""Brings back records into a store from lines of JSON: exported, or kept as MLflow's artifacts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.errors import TunerError, first_line
from tuner.record import Record, record_from_json
from tuner.storage.base import RecordStore

_AT_ONCE = 256


@dataclass(frozen=True, slots=True)
class Restored:
    """Numbers of the records in the files, by their fate.

    Attributes:
        added: records that were added to the store.
        known: records whose trial had a record already, which stays.
        strange: records of tasks that the run does not have, left out.
    """

    added: int
    known: int
    strange: int


def restore(files: Sequence[Path], store: RecordStore) -> Restored:
    """Add to a run's store the records that it lacks, in the order of the files.

    Such lines hold no features: the cost model learns nothing from these records, but the search,
    the budget and the reports count them.

    Args:
        files: files of lines as `tuner export --records` and the tracker write them. A last line
            that was cut short is left out. A folder stands for the `.jsonl` files in it.
        store: store of a run that knows its tasks.

    Raises:
        TunerError: a file cannot be read or has a line that is not a record (the records before it
            are added), or the run does not know its tasks yet.
    """
    tasks = {task.key for task in store.tasks()}
    if not tasks:
        raise TunerError("the run does not know its tasks yet: begin it with `tuner tune` first")
    added = known = strange = 0
    records = (record for file in _each(files) for record in _records(file))
    while batch := list(itertools.islice(records, _AT_ONCE)):
        ours = [(record, None) for record in batch if record.trial.task_key in tasks]
        new = sum(store.append_many(ours))
        added, known = added + new, known + len(ours) - new
        strange += len(batch) - len(ours)
    return Restored(added, known, strange)


def _each(files: Sequence[Path]) -> Iterator[Path]:
    for file in files:
        if not file.is_dir():
            yield file
            continue
        found = sorted(file.glob("*.jsonl"))
        if not found:
            raise TunerError(f"{file} holds no .jsonl files")
        yield from found


def _records(file: Path) -> Iterator[Record]:
    try:
        with file.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                try:
                    yield record_from_json(line.decode())
                except ValueError as error:
                    if not line.endswith(b"\n"):
                        return
                    raise TunerError(f"{file}, line {number}: {first_line(error)}") from error
    except OSError as error:
        raise TunerError(f"cannot read {file}: {error.strerror or error}") from error
