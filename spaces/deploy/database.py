"""Results as a MetaSchedule database, which stock TVM applies."""

from __future__ import annotations

import errno
import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from spaces.design_space.realize import realize
from spaces.intrinsics.registration import stub_intrinsics
from spaces.ir import tvm_compat
from spaces.ir.schedules import InvalidCandidate, task_module
from spaces.lowering.extract_tasks import is_scheduled, key_of
from spaces.targets.target import parse_target
from tuner.candidate import Candidate
from tuner.errors import TunerError
from tuner.files.atomic import name_unwritable, put_file
from tuner.task import Task

WORKLOADS = "database_workload.json"
RECORDS = "database_tuning_record.json"

Entry = tuple[Task, Candidate, Sequence[float]]
"""A task, a schedule of it, and its samples in seconds."""


def export_database(
    directory: Path, entries: Sequence[Entry], *, lowered: Any | None = None
) -> None:
    """Write TVM's two database files, replacing any that exist.

    After `tuner.lower`, TVM's own `relax.transform.MetaScheduleApplyDatabase(directory)` applies
    them under the same target. Traces are full: post-processing is part of them.

    Args:
        entries: tasks with schedules, each with at least one sample.
        lowered: the module that the tasks came from. TVM tells functions of different global
            symbols apart, tasks do not; with it, each function of a task is written under its
            own symbol. Needed for tensor programs that are no part of a graph.

    Raises:
        TunerError: the directory cannot be written, or a schedule does not apply any more.
    """
    stub_intrinsics()
    from tvm.s_tir.meta_schedule.database import JSONDatabase

    with name_unwritable(f"the database to {directory}"):
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory) as scratch:
            database = JSONDatabase(work_dir=scratch)
            count = 0
            for entry in entries:
                trace = _trace(entry)
                for workload in _workloads(entry[0], lowered):
                    _commit(database, workload, entry, trace)
                    count += 1
            _check_written(Path(scratch), count)
            for name in (WORKLOADS, RECORDS):
                put_file(Path(scratch) / name, directory / name)


def _check_written(folder: Path, records: int) -> None:
    """Check that everything was written: on a full disk TVM goes on without an error.

    Raises:
        OSError: something is missing.
    """
    try:
        found = {
            name: [json.loads(line) for line in (folder / name).read_text().splitlines()]
            for name in (WORKLOADS, RECORDS)
        }
        whole = len(found[RECORDS]) == records
        whole &= all(record[0] < len(found[WORKLOADS]) for record in found[RECORDS])
    except ValueError:
        whole = False
    if not whole:
        raise OSError(errno.ENOSPC, "the disk did not take all of it; free some space")


def _workloads(task: Task, lowered: Any | None) -> Iterator[Any]:
    """The modules by which TVM would look up a task's functions, each once."""
    seen = set()
    for module in (task_module(task.module), *_own_symbols(task, lowered)):
        digest = tvm_compat.structural_hash_hex(module)
        if digest not in seen:
            seen.add(digest)
            yield module


def _own_symbols(task: Task, lowered: Any | None) -> Iterator[Any]:
    if lowered is None:
        return
    for _, function in tvm_compat.prim_funcs(lowered):
        if not is_scheduled(function) and key_of(function, task.target) == task.key:
            yield tvm_compat.normalize(function, symbol=None)


def _trace(entry: Entry) -> Any:
    """The trace of a schedule, without questions that change nothing: TVM's own anchor schedules
    refuse them."""
    task, candidate, _ = entry
    try:
        return realize(task, candidate).trace.simplified(remove_postproc=False)
    except InvalidCandidate as error:
        raise TunerError(f"the stored schedule of {task.name} does not apply: {error}") from error


def _commit(database: Any, module: Any, entry: Entry, trace: Any) -> None:
    from tvm.s_tir.meta_schedule.arg_info import ArgInfo
    from tvm.s_tir.meta_schedule.database import TuningRecord

    task, _, samples_s = entry
    record = TuningRecord(
        trace,
        database.commit_workload(module),
        [float(s) for s in samples_s],
        parse_target(task.target),
        ArgInfo.from_prim_func(module["main"]),
    )
    database.commit_tuning_record(record)
