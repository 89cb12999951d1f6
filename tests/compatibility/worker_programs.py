"""Programs, good and bad, and stock MetaSchedule's workers for them."""

from __future__ import annotations

import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from tuner.source import Source
from tuner.task import Task

TARGET = '{"kind":"llvm","num-cores":1}'
ROWS = 8
PER_TASK = 12
LATENCY_S = 1e-3
INPUT = np.linspace(-1.0, 1.0, ROWS * ROWS, dtype=np.float32).reshape(ROWS, ROWS)

FORMULAS: dict[str, Callable[..., Any]] = {
    "doubled": lambda x: x + x,
    "squared": lambda x: x * x,
    "shifted": lambda x: x + np.float32(1),
}
"""What right kernels compute; any other name is of one that adds a number."""

_EXTERNS = {"crashing": "abort", "unending": "pause"}
"""Kernels that call a function of C's library which does not return."""


def function(name: str, rows: int = ROWS) -> Any:
    """A PrimFunc: one of `FORMULAS`, or `crashing`, `unending` or `raising`."""
    from tvm import te, tirx

    x = te.placeholder((rows, rows), name="x")

    def element(i: Any, j: Any) -> Any:
        if name in _EXTERNS:
            return x[i, j] + tirx.call_extern("int32", _EXTERNS[name]).astype("float32")
        if name == "raising":
            return x[i, j] + tirx.call_packed("no.such.function").astype("float32")
        if name in FORMULAS:
            return FORMULAS[name](x[i, j])
        return x[i, j] + np.float32(crc32(name.encode()) % 1000)  # no two are the same task

    return te.create_prim_func([x, te.compute((rows, rows), element, name=name)])


def module(name: str, rows: int = ROWS) -> Any:
    """A program as a module with one function, "main"."""
    import tvm

    return tvm.IRModule({"main": function(name, rows)})


def task(name: str, rows: int = ROWS) -> Task:
    """A program as a task of ours."""
    from spaces.lowering.extract_tasks import task_of

    return task_of(function(name, rows), TARGET, name=name)


def target() -> Any:
    """The target of all programs, as TVM's object."""
    from spaces.targets.target import parse_target

    return parse_target(TARGET)


def output_of(loaded: Any) -> Any:
    """What "main" of a loaded library makes of `INPUT`."""
    import tvm

    tensors = [tvm.runtime.tensor(array) for array in (INPUT, np.zeros_like(INPUT))]
    loaded["main"](*tensors)
    return tensors[1].numpy()


def quick_build() -> Callable[..., Any]:
    """Stock's own build function, without the intrinsics of all targets: in each new process these
    take stock a quarter of a minute to parse."""

    def build(module: Any, target: Any, params: Any) -> Any:
        from tvm.s_tir.meta_schedule.builder.local_builder import default_build

        from spaces.intrinsics.registration import stub_intrinsics

        stub_intrinsics()
        return default_build(module, target, params)

    return build


def build_by(source: Source) -> Callable[..., Any]:
    """A builder of ours as a build function of stock's."""

    def build(module: Any, target: Any, _params: Any) -> Any:
        from tuner.user_code.load import load

        return load(source)().build(module, target)

    return build


def time_by(source: Source) -> Callable[..., Any]:
    """A runner of ours as a timing function of stock's."""

    def evaluate(module: Any, device: Any, _config: Any, argument_sets: Sequence[Any]) -> Any:
        from tuner.user_code.load import load

        theirs = load(source)()
        return [s for args in argument_sets for s in theirs.time(module, args, device, None, None)]

    return evaluate


def stock_artifact(name: str) -> str:
    """The path of a program's library as stock's builder exports it, built in this process."""
    from tvm.s_tir.meta_schedule.builder.local_builder import default_export

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # stock calls what TVM deprecates
        return str(default_export(quick_build()(module(name), target(), None)))


def our_artifact(name: str, rows: int = ROWS) -> bytes:
    """A program's library as our builder makes it."""
    from spaces.codegen.artifact import build_artifact

    return build_artifact(module(name, rows), TARGET)


def runner_input(path: str, shape: Sequence[int] = (ROWS, ROWS)) -> Any:
    """What stock's runner is given for a program."""
    from tvm.s_tir.meta_schedule.arg_info import TensorInfo
    from tvm.s_tir.meta_schedule.runner import RunnerInput

    return RunnerInput(path, "cpu", [TensorInfo("float32", shape) for _ in range(2)])


def stock() -> Any:
    """MetaSchedule, without the intrinsics that take it long to parse."""
    from spaces.intrinsics.registration import stub_intrinsics

    stub_intrinsics()
    from tvm.s_tir import meta_schedule

    return meta_schedule


def drawn(schedule: Any) -> None:
    """A schedule function."""
    (block,) = schedule.get_child_blocks(schedule.get_sblock("root"))
    for loop in schedule.get_loops(block):
        schedule.split(loop, schedule.sample_perfect_tile(loop, 2, 8))


def context(name: str, strategy: Any = None) -> Any:
    ms = stock()
    return ms.TuneContext(
        module(name),
        target=target(),
        space_generator=ms.space_generator.ScheduleFn(drawn, sch_rules=[], postprocs=[]),
        search_strategy=strategy or ms.search_strategy.ReplayTrace(),
        task_name=name,
        num_threads=1,
        rand_state=7,
    )


@dataclass
class Machines:
    """Stock's builder and runner without machines.

    Attributes:
        broken: programs whose builds all fail.
        seconds: of every run; None is that every run fails.
    """

    broken: Sequence[str] = ()
    seconds: float | None = LATENCY_S
    folder: Path | None = None
    devices: list[str] = field(default_factory=list)

    def builder(self) -> Any:
        from tvm.ir.utils import derived_object

        ms, mine = stock(), self

        @derived_object
        class Builder(ms.builder.PyBuilder):  # type: ignore[misc, name-defined]
            def build(self, build_inputs: Any) -> list[Any]:
                return [mine.built(str(given.mod)) for given in build_inputs]

        return Builder()

    def built(self, text: str) -> Any:
        result = stock().builder.BuilderResult
        if any(name in text for name in self.broken):
            return result(None, "no compiler")
        if self.folder is None:
            return result("nowhere", None)
        path = Path(tempfile.mkdtemp(dir=self.folder)) / "library.tar"
        path.touch()
        return result(str(path), None)

    def runner(self) -> Any:
        from tvm.ir.utils import derived_object

        ms, mine = stock(), self

        @derived_object
        class Future(ms.runner.PyRunnerFuture):  # type: ignore[misc, name-defined]
            def done(self) -> bool:
                return True

            def result(self) -> Any:
                failed = mine.seconds is None
                return ms.runner.RunnerResult(
                    None if failed else [mine.seconds], "no device" if failed else None
                )

        @derived_object
        class Runner(ms.runner.PyRunner):  # type: ignore[misc, name-defined]
            def run(self, runner_inputs: Any) -> list[Any]:
                mine.devices += [str(given.device_type) for given in runner_inputs]
                return [Future() for _ in runner_inputs]

        return Runner()


def tuned_by_stock(
    contexts: Sequence[Any],
    *,
    scheduler: Any = None,
    trials: int = 1000,
    weights: Sequence[float] | None = None,
    machines: Machines | None = None,
    callbacks: Sequence[Any] = (),
    database: Any = None,
    cost_model: Any = None,
) -> Counter[str]:
    """The number of trials of each task."""
    from tvm.ir.utils import derived_object

    ms, told = stock(), Counter[str]()
    machines = machines or Machines()

    @derived_object
    class Counts(ms.measure_callback.PyMeasureCallback):  # type: ignore[misc, name-defined]
        def apply(self, scheduler: Any, task_id: int, tried: Any, built: Any, ran: Any) -> None:
            told[str(contexts[task_id].task_name)] += len(ran)

    (scheduler or ms.task_scheduler.RoundRobin()).tune(
        contexts,
        weights or [1.0] * len(contexts),
        max_trials_global=trials,
        max_trials_per_task=PER_TASK,
        num_trials_per_iter=4,
        builder=machines.builder(),
        runner=machines.runner(),
        measure_callbacks=[*callbacks, Counts()],
        database=ms.database.MemoryDatabase() if database is None else database,
        cost_model=cost_model,
    )
    return told


def stocks_callback(apply: Callable[..., None]) -> Any:
    """A measure callback that hands on what it is told, but for its scheduler."""
    from tvm.ir.utils import derived_object

    ms = stock()

    @derived_object
    class Callback(ms.measure_callback.PyMeasureCallback):  # type: ignore[misc, name-defined]
        def apply(self, scheduler: Any, task_id: int, tried: Any, built: Any, ran: Any) -> None:
            apply(task_id, tried, built, ran)

    return Callback()
