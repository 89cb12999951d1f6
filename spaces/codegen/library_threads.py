"""Libraries that run with the threads they were tuned for, wherever they are loaded.

TVM's runtime by default takes half of the logical CPUs, so that on a machine with one thread a
core, as most in clouds are, a tuned library would run at half its speed. `library_threads.c` tells
it the number of threads: it is linked into each library that has a parallel loop, and called by
each kernel that has one.
"""

from __future__ import annotations

import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from spaces.ir import tvm_compat

SOURCE = Path(__file__).with_name("library_threads.c")
_ENTRY = "tuner_use_threads"
_PARALLEL = 1
"""TVM's number of the kind of a parallel loop."""
_COMPILE_LIMIT_S = 60.0


def runs_in_parallel(module: Any) -> bool:
    """Whether a tensor program of a module has a parallel loop."""
    return any(_is_parallel(function) for _, function in tvm_compat.prim_funcs(module))


@cache
def pipeline_with_threads(name: str, threads: int) -> str:
    """The name of a TIR pipeline that does the same as pipeline `name`, and has each kernel with a
    parallel loop ask TVM for `threads` threads. Its libraries need `bring_along`."""
    from tvm.ir.transform import Sequential
    from tvm.tirx import get_tir_pipeline, register_tir_pipeline

    def made() -> tuple[Any, Any, Any]:
        passes, host, device = get_tir_pipeline(name)
        return passes, lambda: Sequential([_asking_pass(threads), host()]), device

    longer = f"{name}-threads-{threads}"
    register_tir_pipeline(longer, made)
    return longer


def bring_along(library: Any) -> None:
    """Add the code that kernels call for threads to the result of `tvm.compile`.

    Raises:
        RuntimeError: there is no C compiler, or it fails.
    """
    code_of(library.mod).import_module(_object())


def code_of(module: Any) -> Any:
    """The module with the programs' code: a module itself, or, for a graph, one that it imports."""
    code = _find_code(module)
    assert code is not None
    return code


def _find_code(module: Any) -> Any:
    if module.kind == "llvm":
        return module
    found = (_find_code(part) for part in module.imports)
    return next((code for code in found if code is not None), None)


def _asking_pass(threads: int) -> Any:
    import tvm
    from tvm.tirx.transform import prim_func_pass

    ask = tvm.tirx.Evaluate(tvm.tirx.call_extern("int32", _ENTRY, threads))

    def changed(function: Any, _module: Any, _context: Any) -> Any:
        if not _is_parallel(function):
            return function
        return function.with_body(tvm.tirx.SeqStmt([ask, function.body]))

    return prim_func_pass(changed, opt_level=0, name="AskForThreads")


def _is_parallel(function: Any) -> bool:
    import tvm
    import tvm_ffi

    def look(loop: Any) -> Any:
        return tvm_ffi.VisitInterrupt(loop) if int(loop.kind) == _PARALLEL else None

    return tvm_ffi.structural_walk(function.body, (tvm.tirx.For, look)) is not None


@cache
def _object() -> Any:
    """The compiled source as a module to import, made once in a process."""
    import tvm

    with tempfile.TemporaryDirectory(prefix="threads-") as folder:
        made = Path(folder) / "threads.o"
        compile_c(SOURCE, made, "-c")
        return tvm.runtime.load_static_library(str(made), [])


def compile_c(
    source: Path,
    output: Path,
    *options: str,
    folder: Path | None = None,
    limit_s: float = _COMPILE_LIMIT_S,
) -> None:
    """Compile C that calls TVM, for this machine.

    Args:
        folder: where the compiler runs.

    Raises:
        RuntimeError: there is no C compiler, or it fails, with its message, or it takes too long.
    """
    import tvm_ffi.libinfo
    from tvm.support import cc

    compiler = cc.get_cc()
    if compiler is None:
        raise RuntimeError("no C compiler found; install gcc or clang, or set CC")
    headers = {tvm_ffi.libinfo.find_include_path(), tvm_ffi.libinfo.find_dlpack_include_path()}
    command = [*compiler.split(), "-x", "c", "-std=gnu11", "-O2", "-fPIC", *options]
    command += [*(f"-I{header}" for header in sorted(headers)), "-o", str(output), str(source)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=limit_s, cwd=folder
        )
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"{compiler} took longer than {limit_s:g} s") from error
    if done.returncode != 0:
        raise RuntimeError(f"{compiler}: {done.stderr.strip() or 'failed'}")
