"""What runs and databases know of programs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from cluster.app.driver.results import results_of
from spaces.deploy.apply import origin_of
from spaces.deploy.database import RECORDS
from spaces.deploy.provenance import Origin
from spaces.design_space.realize import realize
from spaces.intrinsics.registration import register_named, stub_intrinsics
from spaces.ir import tvm_compat
from spaces.ir.guard import note
from spaces.ir.schedules import task_module, whole_payload
from spaces.lowering.extract_tasks import program_hash, task_of
from spaces.targets.backends import backend_of
from spaces.targets.target import parse_target, takes_the_same
from tuner.candidate import Candidate, CandidateKind
from tuner.dynamic.kernel_set import KernelSet
from tuner.run_location import RunLocation
from tuner.runs.folder import read_run
from tuner.runs.remote import local
from tuner.task import Task

_STOCK = "stock"
"""The name of the space of what a database has."""


@dataclass(frozen=True, slots=True)
class Found:
    """A schedule of a program.

    Attributes:
        function: the scheduled PrimFunc.
    """

    function: Any
    origin: Origin


class Schedules(Protocol):
    """A source of schedules."""

    name: str

    def exact(self, task: Task) -> Found | None:
        """A schedule of this very program, for a target that takes it."""

    def kernel_set(self, task: Task) -> tuple[Task, KernelSet] | None:
        """The kernels that serve the shapes of a program with symbolic dimensions."""

    def others(self, target: str) -> list[tuple[Task, Candidate]]:
        """Tasks whose schedules may be tried on others of the target, the newest source first."""


class RunSchedules:
    """The winners of a run.

    Args:
        where: its folder or URL.

    Raises:
        TunerError: it is missing, or has no results.
    """

    def __init__(self, where: Path | str) -> None:
        self.name = str(where)
        folder, manifest = read_run(local(RunLocation.of(where)))
        results = results_of(folder, manifest, where)
        self._won, self._kernels = results.winners, results.kernels
        self._by_program = {program_hash(task): (task, record) for task, record in self._won}
        self._sets = {program_hash(task): (task, chosen) for task, chosen in results.sets}

    def exact(self, task: Task) -> Found | None:
        """See `Schedules`."""
        known = self._by_program.get(program_hash(task))
        if known is None or not takes_the_same(known[0].target, task.target):
            return None
        candidate = known[1].trial.candidate
        # On another machine of the kind it would take another time.
        latency_s = known[1].latency_s if known[0].target == task.target else None
        function = realize(known[0], candidate).mod["main"]  # a trace knows blocks by their names
        return Found(function, origin_of(candidate, self.name, latency_s))

    def kernel_set(self, task: Task) -> tuple[Task, KernelSet] | None:
        """See `Schedules`."""
        known = self._sets.get(program_hash(task))
        return known if known and takes_the_same(known[0].target, task.target) else None

    def others(self, target: str) -> list[tuple[Task, Candidate]]:
        """See `Schedules`."""
        return [
            (task, record.trial.candidate)
            for task, record in self._kernels
            if takes_the_same(task.target, target)
        ]


class DatabaseSchedules:
    """A database of MetaSchedule's.

    Args:
        database: an object, or the folder of a `JSONDatabase`.
    """

    def __init__(self, database: Any) -> None:
        stub_intrinsics()
        self.name = str(database) if isinstance(database, Path | str) else "a database"
        if isinstance(database, Path | str):
            from tvm.s_tir.meta_schedule.database import JSONDatabase

            register_named((Path(database) / RECORDS).read_text())
            database = JSONDatabase(work_dir=str(database), allow_missing=False)
        self._database = database

    def exact(self, task: Task) -> Found | None:
        """See `Schedules`."""
        target, function = parse_target(task.target), task_module(task.module)["main"]
        for symbol in ("main", task.name):  # TVM tells functions of different symbols apart
            module = tvm_compat.normalize(function, symbol=symbol)
            record = self._database.query_tuning_record(module, target, task.name)
            if record is None or not _is_of(record, module, task.target):
                continue
            scheduled = self._database.query_ir_module(module, target, task.name)
            seconds = sorted(float(s) for s in record.run_secs or ())
            latency_s = seconds[len(seconds) // 2] if seconds else None
            origin = Origin("tuned", self.name, "the fastest that it has of it", latency_s)
            return Found(scheduled["main"], origin)
        return None

    def kernel_set(self, task: Task) -> tuple[Task, KernelSet] | None:
        """See `Schedules`; a database has none."""
        return None

    def others(self, target: str) -> list[tuple[Task, Candidate]]:
        """See `Schedules`; a database that runs a function for each program has none."""
        found = []
        for record in self._all_records():
            if _kind_of(record) in (None, backend_of(target).kind) and record.trace.insts:
                task = task_of(_bare(record.workload.mod)["main"], target, name="a program of it")
                payload = whole_payload(record.trace)
                found.append((task, Candidate(CandidateKind.TRACE, payload, _STOCK)))
        return found

    def _all_records(self) -> list[Any]:
        """Its records of programs with one function, the fastest first."""
        try:
            records = list(self._database.get_all_tuning_records())
        except Exception as error:  # not every database can list what it has
            note(error, f"{self.name} lists no records")
            return []
        timed = [r for r in records if len(r.workload.mod.functions) == 1 and r.run_secs]
        return sorted(timed, key=lambda r: sum(map(float, r.run_secs)) / len(r.run_secs))


def _is_of(record: Any, module: Any, target: str) -> bool:
    """Whether a record is of this very program, on a target of this kind: a database may compare
    programs by their largest block alone, and looks at no target."""
    import tvm_ffi

    same = tvm_ffi.structural_equal(_bare(record.workload.mod), _bare(module))
    return bool(same) and _kind_of(record) in (None, backend_of(target).kind)


def _bare(module: Any) -> Any:
    """The one function of a module, whatever it is called."""
    (function,) = module.functions.values()
    return tvm_compat.normalize(function)


def _kind_of(record: Any) -> str | None:
    """The kind of a record's target; None where it has none."""
    return None if record.target is None else str(record.target.kind)


def schedules_of(where: Any) -> Schedules:
    """What a folder, a URL, or a database object holds.

    Raises:
        TunerError: it holds no schedules.
    """
    if not isinstance(where, Path | str):
        named = getattr(where, "run", None)  # a `TuneResult`
        return RunSchedules(named) if named is not None else DatabaseSchedules(where)
    if "://" not in str(where) and (Path(where) / RECORDS).exists():
        return DatabaseSchedules(where)
    return RunSchedules(where)
