"""The products of a run: a library, a database, a comparison."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.app.driver.results import Results, results_of
from spaces.ir.lean_tvm import import_tvm_lean
from tuner.candidate import library_name
from tuner.checks import library_file
from tuner.dynamic.shapes import Dims, joint, sample_shapes
from tuner.errors import TunerError
from tuner.process.apart import apart
from tuner.request.model_spec import ModelSpec
from tuner.runs.folder import RunFolder, read_run, refuse_unbegun

if TYPE_CHECKING:
    from spaces.frontends.model import Model
    from tuner.precision import Precision
    from tuner.task import Instance

_BENCHED = 6
"""The number of shapes to bench of a model with symbolic dimensions, where the user names none."""
_BENCH_S, _LEAST_BENCH_S = 60.0, 10.0
"""The time for the samples of all shapes together, and the least for one shape."""


@dataclass(frozen=True, slots=True)
class _Finished:
    """A run's model, lowered again, and the winners of its tasks."""

    folder: RunFolder
    model: Model
    target: str
    lowered: Any
    results: Results
    name: str
    precision: Precision | None

    def convert(self, other: Model) -> Model:
        """Another model with the run's types of products.

        Raises:
            TunerError: these are scaled by the ranges of the run's own model.
        """
        from spaces.precision.convert import in_precision

        ranged = self.precision is not None and self.precision.ranges
        if ranged and other.content_hash != self.model.content_hash:
            raise TunerError(f"{self.name}: its rows are scaled by the ranges of its own model")
        return in_precision(other, self.precision)

    def tuned(self) -> Any:
        """The lowered module with the winners swapped in."""
        return self.applied_to(self.lowered)

    def applied_to(self, lowered: Any) -> Any:
        """Any lowered module with the winners swapped in."""
        from spaces.deploy.apply import apply_best

        best = {task.key: record.trial.candidate for task, record in self.results.winners}
        sets = {task.key: (task, chosen) for task, chosen in self.results.sets}
        tasks = {task.key: task for task, _ in self.results.winners}
        return apply_best(best, self.target, sets, tasks=tasks, source=self.name)(lowered)


class ExternalSymbols(TunerError):
    """A library would call functions that it does not hold."""

    def __init__(self, calls: Mapping[str, tuple[str, str]]) -> None:
        task, (symbol, space) = next(iter(calls.items()))
        more = f", and {len(calls) - 1} more tasks call others" if len(calls) > 1 else ""
        super().__init__(
            f"the best of {task} calls {symbol} of {library_name(space)}{more}: such functions "
            "must be registered wherever the library runs; if that is wanted, say allow_external"
        )


def export_library(run: Path, out: Path, *, allow_external: bool = False) -> dict[str, str]:
    """Compile the model with its best schedules into a library that TVM loads: for a run on the
    emulated device, one for the device that it stands for.

    Args:
        allow_external: whether it may call functions that it does not hold.

    Returns:
        The functions that it calls, with their libraries, which must be registered wherever it
        runs.

    Raises:
        ExternalSymbols: it calls some, and must not.
        TunerError: the run is missing or has no results, or the file cannot be written.
    """
    library_file(out)
    finished = _open(run)
    from spaces.codegen.executable import compile_module
    from spaces.codegen.executable import export_library as write
    from spaces.targets.target import choose_deploy_target

    calls = finished.results.calls
    if calls and not allow_external:
        raise ExternalSymbols(calls)
    write(compile_module(finished.tuned(), choose_deploy_target(finished.target)), out)
    return {symbol: library_name(space) for symbol, space in calls.values()}


def apply_to(run: Path, module: Any = None) -> Any:
    """Lower a model, and swap in the best schedules of a run.

    Args:
        module: a model that `spaces.frontends.memory_model` takes, lowered or not, that shares
            programs and shapes with the run's model. None is the run's model.

    Returns:
        An IRModule, to be compiled as `tuner.lower` describes.

    Raises:
        TunerError: the run is missing or has no results, or none for this module.
    """
    finished = _open(run)
    if module is None:
        return finished.tuned()
    from tvm.ir import IRModule

    from spaces.frontends.memory_model import model_in_memory
    from spaces.lowering.lower import lower

    if isinstance(module, IRModule) and _is_scheduled(applied := finished.applied_to(module)):
        return applied  # it was lowered already
    given = model_in_memory(module, _shape_as(finished.model))
    applied = finished.applied_to(lower(finished.convert(given).module, finished.target))
    if not _is_scheduled(applied):
        raise TunerError(f"{run} has no schedule for any program of this module")
    return applied


def _is_scheduled(module: Any) -> bool:
    from spaces.ir.tvm_compat import prim_funcs
    from spaces.lowering.extract_tasks import is_scheduled

    return any(is_scheduled(function) for _, function in prim_funcs(module))


def _shape_as(model: Model) -> ModelSpec:
    """The shapes of this model, for another model with the same inputs."""
    from spaces.ir.tvm_compat import has_relax

    sizes: dict[str, set[int]] = {}
    for instance, _ in model.shapes:
        for name, size in instance:
            sizes.setdefault(name, set()).add(size)
    dims = tuple((name, tuple(sorted(found))) for name, found in sizes.items())
    shapes = tuple((i.name, i.shape) for i in model.inputs if i.shape and not i.dims)
    return ModelSpec(model.name, shapes=shapes if has_relax(model.module) else (), dims=dims)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Names of tasks that a database, which holds one schedule for each, lacks the fastest code of.

    Attributes:
        symbolic: those with symbolic dimensions, which have a set of kernels.
        faster: those that are fastest with a library's function, or with a program that is no
            schedule: it has their best schedule.
    """

    symbolic: tuple[str, ...]
    faster: tuple[str, ...]


def export_database(run: Path, out_dir: Path) -> LeftOut:
    """Write the best schedules as a MetaSchedule database; return what is left out.

    Raises:
        TunerError: the run is missing or has no results that a database can hold, or the folder
            cannot be written.
    """
    finished = _open(run)
    from spaces.deploy.database import export_database as write

    kernels = finished.results.kernels
    if not kernels:
        raise TunerError(
            "--database: it holds one schedule for each program, and none of these has one: with "
            "symbolic dimensions it is a set of kernels, and of others no schedule was timed; "
            "write a library with --lib"
        )
    entries = [
        (task, record.trial.candidate, record.measurement.samples_s) for task, record in kernels
    ]
    write(out_dir, entries, lowered=finished.lowered)
    symbolic = tuple(task.name for task, _ in finished.results.sets)
    faster = tuple(
        task.name
        for task, record in finished.results.winners
        if not record.trial.candidate.is_schedule
    )
    return LeftOut(symbolic, faster)


def bench(
    run: Path, *, rounds: int = 0, dims: Dims = (), libraries: Sequence[str] = ()
) -> dict[str, Any]:
    """Time the untuned and the tuned model, and onnxruntime where it can run it; in a process of
    its own, which kernels may crash.

    Args:
        rounds: number of rounds, unless the minimum of `spaces.deploy.bench` is larger.
        dims: sizes of symbolic dimensions to bench; empty is some of those the run is tuned for.
        libraries: as `--library` names them, whose functions the best kernels call.

    Returns:
        The keys of `spaces.deploy.bench.BenchResult`, and `shape`, the sizes of symbolic
        dimensions. For a model that has such dimensions, `shapes` is a list of such reports, and
        the other keys are those of the last report.

    Raises:
        TunerError: the run is missing or has no results, the model has no such dimension, or this
            CPU lacks what the run's kernels use, or the process crashed.
    """
    folder, _ = read_run(run)
    refuse_unbegun(folder, run)
    report: dict[str, Any] = apart(
        "cluster.app.driver.export:bench_here",
        run,
        rounds=rounds,
        dims=dims,
        libraries=tuple(libraries),
        what=f"runs the kernels of {run}",
    )
    return report


def bench_here(
    run: Path, *, rounds: int = 0, dims: Dims = (), libraries: Sequence[str] = ()
) -> dict[str, Any]:
    """Like `bench`, in this process."""
    import_tvm_lean()
    folder, manifest = read_run(run)
    from spaces.targets.config import target_cores
    from spaces.targets.cores import thread_variables
    from spaces.targets.target import refuse_other_features

    # TVM reads them when its thread pool starts, which has not happened yet in this process.
    os.environ.update(thread_variables(target_cores(manifest.target)))
    refuse_other_features(manifest.target)
    from spaces.codegen.executable import compile_module, compile_plainly
    from spaces.deploy.bench import BUDGET_S
    from spaces.deploy.bench import bench as measure
    from spaces.deploy.divisors import find_divisors
    from spaces.frontends.inputs import make_inputs
    from spaces.frontends.model_copy import load_input_values
    from spaces.ir.left_out import own_layout
    from spaces.ir.tvm_compat import prim_funcs

    finished = _open(run)
    for name, function in prim_funcs(finished.lowered):
        if layout := own_layout(function):
            raise TunerError(f"{name} cannot be timed: {layout}, and tensors here lie in one piece")
    _register(libraries, finished.results)
    model, values = finished.model, load_input_values(folder.model_dir)
    untuned = compile_plainly(finished.lowered, finished.target)
    tuned = compile_module(finished.tuned(), finished.target)
    reports, instances = [], _choose_shapes(model, dims)
    divisors = find_divisors(finished.lowered)
    budget_s = min(BUDGET_S, max(_LEAST_BENCH_S, _BENCH_S / len(instances)))
    for instance in instances:
        specs = [spec.at(dict(instance)) for spec in model.inputs]
        inputs = make_inputs(specs, values, seed=0, divisors=divisors)
        result = measure(model, untuned, tuned, inputs, rounds=rounds, budget_s=budget_s)
        reports.append({**result.to_json(), "shape": dict(instance)})
    return {**reports[-1], "shapes": reports if model.shapes else []}


def _register(libraries: Sequence[str], results: Results) -> None:
    """Register the functions that a run's best kernels call.

    Raises:
        TunerError: a library is not named, or cannot be used.
    """
    from spaces.libraries.registration import register_source, space_of
    from tuner.user_code.find import find_layer

    sources = [find_layer(said, "libraries") for said in libraries]
    for source in sources:
        register_source(source)
    known = {space_of(source) for source in sources}
    for task, (symbol, space) in results.calls.items():
        if space not in known:
            library = library_name(space)
            raise TunerError(
                f"the best of {task} calls {symbol} of {library}: name its file with --library, "
                "with the text that it was tuned with"
            )


def _choose_shapes(model: Model, dims: Dims) -> list[Instance]:
    """The shapes to bench a model on."""
    if not model.shapes:
        if dims:
            raise TunerError(f"--dim {dims[0][0]}: the model has no symbolic dimension")
        return [()]
    if not dims:
        return [instance for instance, _ in sample_shapes(model.shapes, _BENCHED)]
    wanted, known = {name for name, _ in dims}, {name for name, _ in model.shapes[0][0]}
    if wanted != known:
        raise TunerError(f"--dim: give sizes of {', '.join(sorted(known))}, each once")
    return [instance for instance, _ in joint(dims)]


def _open(run: Path) -> _Finished:
    folder, manifest = read_run(run)
    results = results_of(folder, manifest, run)
    from spaces.frontends.model_copy import load_model_copy
    from spaces.lowering.lower import lower
    from spaces.precision.convert import in_precision

    model = load_model_copy(folder.model_dir, manifest.model_hash)
    module = in_precision(model, manifest.precision).module
    lowered = lower(module, manifest.target)
    precision = manifest.precision
    return _Finished(folder, model, manifest.target, lowered, results, str(run), precision)
