"""Compiled modules: built from lowered ones, run, and exported as libraries."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from spaces.codegen.cuda.packing import packing_of
from spaces.codegen.library_threads import bring_along, pipeline_with_threads, runs_in_parallel
from spaces.codegen.library_weights import LibraryWeights
from spaces.codegen.prepack import pack_weights
from spaces.emulation.host_code import register_host_pipeline
from spaces.emulation.library import Launch, launches_of, on_emulated
from spaces.ir import tvm_compat
from spaces.passes.cuda.guarded_sums import guard_sums
from spaces.passes.dlight import gpu_rules
from spaces.passes.pipeline import tir_pipeline
from spaces.targets.backends import backend_of, compiling
from spaces.targets.config import target_cores
from spaces.targets.target import device_of, parse_target
from tuner.checks import library_file
from tuner.errors import TunerError, first_line
from tuner.files.atomic import put_file

Array = np.ndarray[Any, Any]

_STOCK = "default"
"""TVM's own passes."""


@dataclass(frozen=True, slots=True)
class Executable:
    """A compiled module.

    Attributes:
        library: the result of `tvm.compile`.
        target: canonical JSON of the target it was compiled for.
        programs: symbol and number of parameters of each tensor program, in order, where the
            module holds no graph; else empty.
    """

    library: Any
    target: str
    programs: tuple[tuple[str, int], ...] = ()


def compile_module(lowered: Any, target_json: str) -> Executable:
    """Compile a lowered module as it is, schedules applied or not.

    Constant weights are packed here where schedules ask for it (`spaces.codegen.prepack`): the
    library holds them packed, and does not pack them when it runs.
    On a GPU, programs without a schedule get TVM's default ones, since they could not run
    otherwise. Nothing is fused or changed again. On a CPU the library includes the code that gives
    its kernels the target's threads (`spaces.codegen.library_threads`), and large constants as data
    that is used where it lies (`spaces.codegen.library_weights`).

    Raises:
        TunerError: the compiler refused it.
    """
    passes = tir_pipeline(target_json)
    if not backend_of(target_json).on_host:
        return _compile(lowered, target_json, passes)
    return _compile(lowered, target_json, passes, target_cores(target_json), LibraryWeights())


def compile_plainly(lowered: Any, target_json: str) -> Executable:
    """Compile a lowered module without schedules by TVM's own passes alone: a reference must not go
    through the passes that are judged by it.

    Raises:
        TunerError: the compiler refused it.
    """
    passes = register_host_pipeline(_STOCK) if backend_of(target_json).emulated else _STOCK
    return _compile(lowered, target_json, passes)


def _compile(
    lowered: Any,
    target_json: str,
    passes: str,
    threads: int = 0,
    weights: LibraryWeights | None = None,
) -> Executable:
    import tvm

    target = parse_target(target_json)
    programs: tuple[tuple[str, int], ...] = ()
    if not tvm_compat.has_relax(lowered):
        programs = tuple(
            (str(tvm_compat.attribute(f, tvm_compat.GLOBAL_SYMBOL) or name), len(f.params))
            for name, f in tvm_compat.prim_funcs(lowered)
            if tvm_compat.attribute(f, tvm_compat.PART_OF) is None
        )
    try:
        lowered = pack_weights(lowered)
        if not backend_of(target_json).runs_unscheduled:
            lowered = _default_scheduled(lowered, target)
        asks = threads > 0 and runs_in_parallel(lowered)
        if asks:
            passes = pipeline_with_threads(passes, threads)
        with compiling(target):
            library = tvm.compile(
                lowered,
                target=target,
                relax_pipeline=_graph_pipeline(lowered, weights),
                tir_pipeline=passes,
            )
        if asks:
            bring_along(library)
        if weights is not None:
            weights.bring_along(library)
        if backend_of(target_json).emulated:
            on_emulated(getattr(library, "mod", library), target)
    except (RuntimeError, ValueError, TypeError, OSError) as error:
        raise TunerError(f"the module does not compile: {first_line(error)}") from error
    return Executable(library, target_json, programs)


def _graph_pipeline(lowered: Any, weights: LibraryWeights | None) -> Any:
    """TVM's passes that build a graph, without the programs that they leave behind uncalled: they
    make one of each reshape before they see that it costs nothing, and on a GPU it has no schedule.

    Args:
        weights: takes the graph's large constants, where there is one.
    """
    from tvm import relax
    from tvm.ir.transform import Sequential, module_pass

    known = {gv.name_hint for gv in lowered.functions}

    def tidy(module: Any, _context: Any) -> Any:
        graphs = filter(tvm_compat.is_relax_function, module.functions.values())
        called = {v.name_hint for f in graphs for v in relax.analysis.all_global_vars(f)}
        for gv, function in [*module.functions.items()]:
            if tvm_compat.is_prim_func(function) and gv.name_hint not in known | called:
                del module[gv]
        return module if weights is None else weights.take_from(module)

    # Tuples of constants that nothing reads would hold these, and be made at each run.
    first = [relax.transform.CanonicalizeBindings(), relax.transform.DeadCodeElimination()]
    last = module_pass(tidy, opt_level=0, name="TidyBuilt")
    passes = [relax.get_pipeline(tvm_compat.BUILD_PIPELINE), last]
    return Sequential(passes if weights is None else [*first, *passes])


def _default_scheduled(lowered: Any, target: Any) -> Any:
    from tvm import ir, relax
    from tvm.ir.transform import Sequential
    from tvm.s_tir import dlight

    passes: list[Any] = []
    if tvm_compat.has_relax(lowered):
        # Operators that the build pipeline would turn into programs must be programs already, and
        # reshapes that cost nothing must be recognised before a schedule hides what they are.
        passes = [relax.transform.LegalizeOps(), relax.transform.RewriteDataflowReshape()]
    passes.append(dlight.ApplyDefaultSchedule(*gpu_rules()))
    # TVM's pass changes the module that it is given.
    own = ir.IRModule(lowered.functions, attrs=lowered.attrs, global_infos=lowered.global_infos)
    with target:
        return guard_sums(Sequential(passes)(own))


def export_library(executable: Executable, path: Path) -> None:
    """Write a library that `tvm.runtime.load_module` loads.

    It holds each tensor program under its own name; where there is a graph, it runs in
    `relax.VirtualMachine`. The file appears whole or not at all.

    Raises:
        TunerError: the name's ending is not a library's, or it cannot be written or linked.
    """
    library_file(path)
    scratch = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch.touch()  # the linker's own words for a folder that refuses are many and vague
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        executable.library.export_library(str(scratch), **_packing(executable))
        put_file(scratch, path)
    except OSError as error:
        raise TunerError(f"cannot write {path}: {error.strerror or error}") from error
    except (RuntimeError, ValueError) as error:
        said = RuntimeError(str(error).removeprefix("Compilation error:"))  # the linker's own words
        raise TunerError(f"cannot write {path}: {first_line(said)}") from error
    finally:
        with suppress(OSError):
            scratch.unlink(missing_ok=True)


def _packing(executable: Executable) -> dict[str, Any]:
    """How TVM is to pack what a library imports, where that has to be said."""
    library = getattr(executable.library, "mod", executable.library)
    pack = packing_of(library, parse_target(executable.target))
    return {} if pack is None else {"fpack_imports": pack}


class LoadedModel:
    """An executable on its device, with its inputs in place."""

    def __init__(self, executable: Executable, inputs: Sequence[Array]) -> None:
        """Put inputs on the device.

        Raises:
            TunerError: this machine has no such device.
        """
        self._inputs = inputs
        self._library = getattr(executable.library, "mod", executable.library)
        self._device = device_of(executable.target)
        self._calls = self._bound(executable)
        self._arguments = self._fresh()

    def run(self) -> None:
        """Run once, and wait until the device is done."""
        _call(self._calls, self._arguments)
        self._device.sync()

    def launches(self) -> list[Launch]:
        """Run once on the emulated device; the launches that it made."""
        launches_of(self._library)  # those from before
        self.run()
        return launches_of(self._library)

    def outputs(self) -> list[Array]:
        """Run once on fresh inputs.

        Returns:
            A graph's results, tuples flattened. For tensor programs, which write into their
            parameters, all parameters after the run.
        """
        arguments = self._fresh()
        results = _call(self._calls, arguments)
        self._device.sync()
        return [a.numpy() for a in (arguments if results is None else flat(results))]

    def _fresh(self) -> list[Any]:
        import tvm

        return [tvm.runtime.tensor(a, self._device) for a in self._inputs]

    def _bound(self, executable: Executable) -> list[tuple[Callable[..., Any], int]]:
        """The functions to call, each with its number of arguments."""
        if executable.programs:
            return [(executable.library[name], n) for name, n in executable.programs]
        from tvm import relax

        machine = relax.VirtualMachine(executable.library, self._device)
        return [(machine["main"], len(self._inputs))]


def run_once(executable: Executable, inputs: Sequence[Array]) -> list[Array]:
    """Outputs of one run, see `LoadedModel.outputs`."""
    return LoadedModel(executable, inputs).outputs()


def _call(calls: Sequence[tuple[Callable[..., Any], int]], arguments: Sequence[Any]) -> Any:
    """Make the calls in order; return the last one's result."""
    result = None
    start = 0
    for function, count in calls:
        result = function(*arguments[start : start + count])
        start += count
    return result


def flat(results: Any) -> list[Any]:
    """Tensors of a result that may be a tuple of tuples."""
    if hasattr(results, "numpy"):
        return [results]
    return [tensor for part in results for tensor in flat(part)]
