"""Compiled CUDA libraries whose kernels run on the emulated device."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

from spaces.emulation.compile import compile_kernels

_KIND = "cuda"
_ONE_LINE = 'extern "C" __global__ void tried(float* a) { a[0] += a[1]; }\n'
_CONFIGURE = "emulation.configure"
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
    return compile_kernels("".join(sources), architecture(str(target.attrs["arch"])))


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
    """
    import tvm

    with tempfile.TemporaryDirectory(prefix="emulated-") as folder:
        path = Path(folder) / "kernels.so"
        path.write_bytes(code)
        kernels = tvm.runtime.load_module(str(path))
    kernels[_CONFIGURE](seed, int(deadline_s * 1e3))
    return kernels


def drop_kernels(library: Any) -> None:
    """Leave out the kernels of a library that was compiled, which its host code is not to find."""
    others = [module for module in library.imports if module.kind != _KIND]
    library.clear_imports()
    for module in others:
        library.import_module(module)


def on_emulated(library: Any, target: Any, *, seed: int = 0) -> Any:
    """A library just compiled, with its kernels on the emulated device in the place of CUDA's."""
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
