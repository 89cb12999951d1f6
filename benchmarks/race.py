"""Programs of one task against each other in one process, in turns, outputs checked.

`run_race` makes a child process for it, so that a kernel that crashes or hangs is a failure of the
race and not of the benchmark. In the child every contestant is made ready, runs once on the
task's seeded inputs, and its output is compared with the unscheduled program's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from benchmarks.figures import ratio, spread
from spaces.targets.cores import thread_variables
from tuner.candidate import Candidate
from tuner.process.ask_once import ask_once
from tuner.process.outcome import Returned
from tuner.task import Task

if TYPE_CHECKING:
    from spaces.check.case import Case

_READY_S = 120.0
_SIDE_LIMIT_S = 30.0
_ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class Ready:
    """A contestant that can start.

    Attributes:
        output: what its last run computed, as the task's program would hold it; None where it
            computes something else.
    """

    run: Callable[[], object]
    output: Callable[[], Any] | None


class Contestant(Protocol):
    """Something to time. It travels to the child as a pickle."""

    @property
    def name(self) -> str:
        """By which its samples are known."""

    def enter(self, known: Case) -> Ready:
        """Make it ready to run on these arguments."""


@dataclass(frozen=True, slots=True)
class Race:
    """What came of it.

    Attributes:
        failure: empty, or why there was no race.
        samples_s: seconds for one run by contestant, one for each round; only of those that
            were ready and right.
        failed: why a contestant did not take part.
    """

    failure: str
    samples_s: dict[str, list[float]]
    failed: dict[str, str]

    def told(self, over: str, under: str) -> dict[str, Any]:
        """As plain data, in milliseconds; `ratio` is that of the times of these two contestants,
        None where one of them did not take part."""
        samples = self.samples_s
        both = over in samples and under in samples
        return {
            "failure": self.failure,
            "failed": self.failed,
            **{f"{name}_ms": spread(s, scale=1e3) for name, s in samples.items()},
            "ratio": ratio(samples[over], samples[under]) if both else None,
        }


@dataclass(frozen=True, slots=True)
class Ours:
    """A candidate, realised and built as a compiled model would have it."""

    task: Task
    candidate: Candidate
    name: str = "ours"

    def enter(self, known: Case) -> Ready:
        """Build and load it."""
        import tvm

        from spaces.codegen.artifact import build_artifact, load_kernel
        from spaces.design_space.realize import realize

        module = realize(self.task, self.candidate).mod
        kernel = load_kernel(build_artifact(module, self.task.target))
        tensors = _tensors(known)
        arguments = kernel.arguments(tensors, tvm.cpu())
        main = kernel.module["main"]
        return Ready(lambda: main(*arguments), tensors[-1].numpy)


@dataclass(frozen=True, slots=True)
class MetaSchedules:
    """The best of a MetaSchedule database, built by TVM as it comes.

    Constant operands that it packs are packed once, as ours are.
    """

    database: Path
    target: str
    name: str = "metaschedule"

    def enter(self, known: Case) -> Ready:
        """Find, build and load it."""
        import tvm

        from spaces.codegen.prepack import split
        from spaces.targets.target import parse_target

        module = self.scheduled()
        parts = split(module)
        library = tvm.compile(
            module if parts is None else parts.module, target=parse_target(self.target)
        )
        tensors = _tensors(known)
        arguments = list(tensors)
        if parts is not None:
            packed = [tvm.runtime.empty(p.shape, p.dtype) for p in parts.packing.packed]
            library["prepack"](*(tensors[i] for i in parts.packing.sources), *packed)
            for operand, tensor in zip(parts.packing.packed, packed, strict=True):
                arguments[operand.position] = tensor
        main = library["main"]
        return Ready(lambda: main(*arguments), tensors[-1].numpy)

    def scheduled(self) -> Any:
        """The module of the fastest program.

        Raises:
            LookupError: there is none.
        """
        from tvm.s_tir import Schedule
        from tvm.s_tir.meta_schedule.database import JSONDatabase

        from benchmarks.intrinsics_import import import_intrinsics

        records = self.database / "database_tuning_record.json"
        if not records.exists():
            raise LookupError("it left no database")
        if "Tensorize" in records.read_text():
            import_intrinsics()
        database = JSONDatabase(work_dir=str(self.database), allow_missing=False)
        workloads = {str(r.workload.mod): r.workload for r in database.get_all_tuning_records()}
        if len(workloads) != 1:
            raise LookupError("no program of it was built and run")
        (workload,) = workloads.values()
        # Programs that failed are in there too, under a time that is no time.
        found = [r for r in database.get_top_k(workload, 1) if float(r.run_secs[0]) < 1e9]
        if not found:
            raise LookupError("no program of it gave a time")
        schedule = Schedule(workload.mod)
        found[0].trace.apply_to_schedule(schedule, remove_postproc=False)
        return schedule.mod


@dataclass(frozen=True, slots=True)
class Library:
    """A function of a library that takes the program's arguments, of these and other shapes."""

    path: Path
    symbol: str
    name: str

    def enter(self, known: Case) -> Ready:
        """Load it."""
        import tvm

        function = tvm.runtime.load_module(str(self.path))[self.symbol]
        tensors = _tensors(known)
        return Ready(lambda: function(*tensors), tensors[-1].numpy)


@dataclass(frozen=True, slots=True)
class NumpyMatmul:
    """NumPy's product of the first two arguments, into the third's place."""

    transpose_a: bool = False
    transpose_b: bool = False
    name: str = "blas"

    def enter(self, known: Case) -> Ready:
        """Have the operands aligned as TVM's are, and transposed views where needed."""
        import numpy as np

        a, b, out = (aligned(known.fresh(i)) for i in range(3))
        a = a.swapaxes(-1, -2) if self.transpose_a else a
        b = b.swapaxes(-1, -2) if self.transpose_b else b
        return Ready(lambda: np.matmul(a, b, out=out), lambda: out)


@dataclass(frozen=True, slots=True)
class OtherProgram:
    """A candidate of a task that is not the race's, on inputs of its own."""

    ours: Ours
    name: str

    def enter(self, known: Case) -> Ready:
        """Compare with its own reference here, since the race knows another.

        Raises:
            ArithmeticError: its output is wrong.
        """
        import tvm

        from spaces.check.reference import reference

        task = self.ours.task
        mine = reference(tvm.ir.load_json(task.module), task.key).cases[-1]
        ready = self.ours.enter(mine)
        ready.run()
        assert ready.output is not None
        last = len(mine.arguments) - 1
        if wrong := mine.wrong(last, ready.output()):
            raise ArithmeticError(wrong)
        return Ready(ready.run, None)


class Racer:
    """What the child serves."""

    def __init__(self) -> None:
        import tvm  # noqa: F401

        import spaces.check.reference
        import spaces.deploy.bench  # noqa: F401

    def race(
        self,
        task: Task,
        contestants: Sequence[Contestant],
        rounds: int,
        cache: Path | None,
    ) -> tuple[dict[str, list[float]], dict[str, str]]:
        """Samples, and why some take no part."""
        import tvm

        from spaces.check.reference import reference
        from spaces.deploy.bench import Side, take_rounds

        known = reference(tvm.ir.load_json(task.module), task.key, cache).cases[-1]
        sides, failed = [], {}
        for contestant in contestants:
            try:
                ready = contestant.enter(known)
                wrong = _wrong(ready, known)
            except Exception as error:  # compilers and kernels raise what they like
                wrong = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
                failed[contestant.name] = wrong
                continue
            if wrong:
                failed[contestant.name] = f"wrong output: {wrong}"
            else:
                sides.append(Side(contestant.name, ready.run, _SIDE_LIMIT_S))
        if sides:
            take_rounds(sides, rounds)
        return {side.name: side.samples_s for side in sides}, failed


def run_race(
    task: Task,
    contestants: Sequence[Contestant],
    *,
    cores: int,
    rounds: int,
    log: Path,
    limit_s: float,
    cache: Path | None = None,
) -> Race:
    """Race in a child process.

    Args:
        cores: threads of every contestant.
        rounds: one sample of each contestant in each.
        limit_s: for all of it; after that it is a failure.
        cache: folder of references that are known already.
    """
    others = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    env = {**thread_variables(cores), **dict.fromkeys(others, str(cores))}
    arguments = (task, tuple(contestants), rounds, cache)
    outcome = ask_once(
        "benchmarks.race:Racer",
        (),
        "race",
        *arguments,
        ready_s=_READY_S,
        deadline_s=limit_s,
        env=env,
        log=log,
    )
    if not isinstance(outcome, Returned):
        return Race(str(outcome), {}, {})
    samples_s, failed = outcome.value
    return Race("", samples_s, failed)


def _tensors(known: Case) -> list[Any]:
    import tvm

    return [tvm.runtime.tensor(known.fresh(i)) for i in range(len(known.arguments))]


def aligned(array: Any) -> Any:
    """A copy that begins at a multiple of 64 bytes."""
    import numpy as np

    room = np.empty(array.nbytes + _ALIGNMENT, np.uint8)
    start = -room.ctypes.data % _ALIGNMENT
    copy = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def _wrong(ready: Ready, known: Case) -> str | None:
    ready.run()
    if ready.output is None:
        return None
    last = len(known.arguments) - 1
    return known.wrong(last, ready.output())
