"""Machine code of a CUDA library's kernels: made where it is built, handed over where it is loaded.

TVM leaves CUDA source in a library where it has no CUDA runtime, and compiles it when the library
is loaded; where it has one, it compiles at once. Either way it asks a function that can be
replaced, and ours takes its place for as long as something of ours is compiled or loaded.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from spaces.codegen.cuda.compile import DeviceCode, compile_cuda
from spaces.codegen.cuda.cubin import check_launch
from tuner.request.target_text import FAST_MATH

KIND = "cuda"
"""TVM's name of modules of CUDA kernels, and of the form of such a module that holds source."""
_ONE_LINE = '#include <cuda_fp16.h>\nextern "C" __global__ void tried(half* a) { a[0] += a[1]; }\n'
_COMPILE = "tvm_callback_cuda_compile"


def device_code(library: Any, target: Any, launch_bytes: Mapping[str, int]) -> DeviceCode | None:
    """The machine code of a compiled library's kernels; None where it has no kernels.

    Args:
        library: a `tvm.runtime.Module`.
        target: a `tvm.target.Target`.
        launch_bytes: shared memory that launches ask for, by kernel.

    Raises:
        ValueError: a kernel needs more threads, registers or shared memory than its device has.
        TunerError: there is no compiler.
        RuntimeError: the compiler refused the source.
    """
    sources = [source_of(module) for module in library.imports if module.kind == KIND]
    if not sources:
        return None
    code = compile_for(target, "".join(sources)).add_launch_bytes(launch_bytes)
    check_launch(code.uses, str(target))
    return code


def try_compiler(target: Any) -> None:
    """Compile a kernel of one line for a `tvm.target.Target`.

    Raises:
        TunerError: there is no compiler.
        RuntimeError: it does not compile for the target.
    """
    compile_for(target, _ONE_LINE)


def source_of(module: Any) -> str:
    """The CUDA source of a module of kernels."""
    return str(module.inspect_source(KIND))


def compile_for(target: Any, source: str) -> DeviceCode:
    """Compile CUDA source as a `tvm.target.Target` says: for its architecture, with fast math or
    without.

    Raises:
        TunerError, RuntimeError: see `compile_cuda`.
    """
    arch, fast_math = str(target.attrs["arch"]), FAST_MATH in target.keys
    return compile_cuda(source, arch, fast_math=fast_math)


@contextlib.contextmanager
def compiling_for(target: Any) -> Iterator[None]:
    """Compile as `device_code` does where TVM compiles CUDA source itself, within a block: for the
    target's architecture, never the local device's.

    Args:
        target: a `tvm.target.Target`, the current one within the block.
    """

    def compile_source(source: str) -> bytes:
        return compile_for(target, source).binary

    with target, _answer(compile_source):
        yield


@contextlib.contextmanager
def hand_over(code: bytes | None) -> Iterator[None]:
    """Answer TVM's request to compile CUDA source with the builder's machine code."""
    with contextlib.nullcontext() if code is None else _answer(lambda _source: code):
        yield


@contextlib.contextmanager
def _answer(compile_source: Callable[[str], bytes]) -> Iterator[None]:
    import tvm
    import tvm_ffi

    usual = tvm.get_global_func(_COMPILE)
    tvm_ffi.register_global_func(_COMPILE, compile_source, override=True)
    try:
        yield
    finally:
        tvm_ffi.register_global_func(_COMPILE, usual, override=True)
