"""Compiled CUDA libraries whose kernels run on the emulated device."""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spaces.emulation.compile import compile_kernels

_KIND = "cuda"
_ONE_LINE = 'extern "C" __global__ void tried(float* a) { a[0] += a[1]; }\n'
_CONFIGURE, _LAUNCHES = "emulation.configure", "emulation.launches"
_TARGET = "emulation.target"
_WATCH, _WATCHED = "emulation.watch", "emulation.watched"
DEADLINE_S = 60.0
"""How long a launch may take where nothing else is said."""


def build_kernels(library: Any, target: Any) -> bytes | None:
    """The kernels of a library compiled for the emulated device; None where it has none.

    Args:
        library: a `tvm.runtime.Module`, compiled with `spaces.emulation.host_code`'s pipeline.
        target: a `tvm.target.Target`.

    Raises:
        TunerError: there is no C++ compiler.
        ValueError: the kernels have what the emulated device does not know; the text names it.
    """
    sources = [m.inspect_source(_KIND) for m in library.imports if m.kind == _KIND]
    if not sources:
        return None
    arch = architecture(str(target.attrs["arch"]))
    return compile_kernels("".join(sources), arch, str(target))


def architecture(name: str) -> int:
    """The digits of a CUDA architecture's name, such as `sm_90a`."""
    found = re.search(r"\d+", name)
    if found is None:
        raise ValueError(f"{name} is no CUDA architecture")
    return int(found[0])


def load_kernels(code: bytes, *, seed: int = 0, deadline_s: float = DEADLINE_S) -> Any:
    """Load what `build_kernels` compiled: a `tvm.runtime.Module` for host code to import.

    Args:
        seed: the order in which blocks and threads run.
        deadline_s: how long a launch may take.

    A launch raises TimeoutError where it would never end, RuntimeError for what else a kernel does
    wrong, and ValueError for what no device would start; the text names the place.
    """
    import tvm
    from tvm_ffi.error import register_error

    register_error(TimeoutError)  # TVM would make it a RuntimeError
    with tempfile.TemporaryDirectory(prefix="emulated-") as folder:
        path = Path(folder) / "kernels.so"
        path.write_bytes(code)
        kernels = tvm.runtime.load_module(str(path))
    kernels[_CONFIGURE](seed, int(deadline_s * 1e3))
    return kernels


@dataclass(frozen=True, slots=True)
class Launch:
    """A launch that was made, and the work of all its threads.

    Attributes:
        threads: of a block.
        block_shared_bytes: shared memory of a block.
        operations: on floats; `tensor_operations` on tensor cores, a multiply-add of halves being
            two, and others as much as they take longer.
        global_bytes: read from and written to global memory; `shared_bytes` to shared memory.
        barriers: that all threads of a block passed.
    """

    kernel: str
    blocks: int
    threads: int
    block_shared_bytes: int
    operations: int
    global_bytes: int
    shared_bytes: int
    tensor_operations: int
    barriers: int


def launches_of(module: Any) -> list[Launch]:
    """The launches of a module's kernels since the last call; none if it has no kernels."""
    if not module.implements_function(_LAUNCHES, query_imports=True):
        return []
    lines = str(module.get_function(_LAUNCHES, query_imports=True)()).splitlines()
    return [Launch(name, *map(int, numbers)) for name, *numbers in map(str.split, lines)]


@dataclass(frozen=True, slots=True)
class SharedUse:
    """What a place of a kernel's program did with shared memory, in all warps.

    Attributes:
        what: `ldmatrix`, `stmatrix`, `cp.async`, `vector` or `element`.
        line: of the program.
        item_bytes: of a lane; of matrices, of a row.
        accesses: how often a warp did it.
        wavefronts: how often its banks were gone to; `least` how often without conflicts.
    """

    what: str
    line: int
    item_bytes: int
    accesses: int
    wavefronts: int
    least: int


def watch_shared(module: Any) -> None:
    """From now on, keep what a module's kernels, compiled to be watched, do with shared memory."""
    module.get_function(_WATCH, query_imports=True)(True)


def list_shared_uses(module: Any) -> list[SharedUse]:
    """What a watched module's kernels did with shared memory since the last call."""
    lines = str(module.get_function(_WATCHED, query_imports=True)()).splitlines()
    return [SharedUse(what, *map(int, numbers)) for what, *numbers in map(str.split, lines)]


def target_of(module: Any) -> str:
    """The target that a module's kernels were compiled for, as JSON; empty if it has none."""
    if not module.implements_function(_TARGET, query_imports=True):
        return ""
    return str(module.get_function(_TARGET, query_imports=True)())


def drop_kernels(library: Any) -> None:
    """Leave out the kernels of a library that was compiled, which its host code is not to find."""
    others = [module for module in library.imports if module.kind != _KIND]
    library.clear_imports()
    for module in others:
        library.import_module(module)


def on_emulated(library: Any, target: Any, *, seed: int = 0) -> Any:
    """A library just compiled, with its kernels on the emulated device in the place of CUDA's, and
    with those of the modules that it imports."""
    for module in library.imports:
        on_emulated(module, target, seed=seed)
    code = build_kernels(library, target)
    if code is not None:
        drop_kernels(library)
        library.import_module(load_kernels(code, seed=seed))
    return library


def try_compiler(target: Any) -> None:
    """Compile a kernel of one line for a `tvm.target.Target`.

    Raises:
        TunerError: there is no compiler.
        ValueError: it does not compile.
    """
    compile_kernels(_ONE_LINE, architecture(str(target.attrs["arch"])))
