"""Machine code of a CUDA library's kernels: made where it is built, handed over where it is loaded.

TVM leaves CUDA source in a library and compiles it when the library is loaded, by a function that
can be replaced.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from spaces.codegen.cubin import check_launch

_COMPILE = "tvm_callback_cuda_compile"


def device_code(library: Any, target: Any) -> bytes | None:
    """A cubin or fatbin of a compiled library's kernels; None where it has no kernels.

    Args:
        library: a `tvm.runtime.Module`.
        target: a `tvm.target.Target`.

    Raises:
        ValueError: a kernel needs more threads, registers or shared memory than its device has.
        Exception: whatever the compiler threw.
    """
    import tvm

    sources = [m.inspect_source("cuda") for m in library.imports if m.kind == "cuda"]
    if not sources:
        return None
    with target:
        code = bytes(tvm.get_global_func(_COMPILE)("".join(sources)))
    check_launch(code, str(target))
    return code


@contextlib.contextmanager
def precompiled(code: bytes | None) -> Iterator[None]:
    """Answer TVM's request to compile CUDA source with the builder's machine code."""
    if code is None:
        yield
        return
    import tvm
    import tvm_ffi

    usual = tvm.get_global_func(_COMPILE)
    tvm_ffi.register_global_func(_COMPILE, lambda _source: code, override=True)
    try:
        yield
    finally:
        tvm_ffi.register_global_func(_COMPILE, usual, override=True)
