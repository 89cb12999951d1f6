"""The passes that tensor programs are compiled with, under a name that TVM knows them by.

Everything that compiles a scheduled program names them: the builders, whose kernels are timed,
`export --lib`, and users who apply a database and call `tvm.compile`. All of them get the same
code. The reference that results are judged by is compiled with TVM's own passes alone.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from spaces.emulation.host_code import register_host_pipeline
from spaces.passes.cpu_passes import before_compile
from spaces.passes.cuda.pipeline import cuda_pipeline
from spaces.passes.stack_alloc import on_stack
from spaces.targets.backends import backend_of, load

_CPU = "tuner-cpu"
_STOCK = "default"


def tir_pipeline(target: Any) -> str:
    """The `tir_pipeline` to pass to `tvm.compile`. Public: `tuner.tir_pipeline`.

    For a CPU, the passes of `spaces.passes.cpu_passes`, those of TVM, and
    `spaces.passes.stack_alloc.on_stack`. For a CUDA device, those of TVM as
    `spaces.passes.cuda.pipeline` has them run. They are registered with TVM here.

    Args:
        target: a TVM target, canonical JSON of one, or a kind.

    Raises:
        UsageError: the target is of an unknown kind.
    """
    return str(load(backend_of(target).pipeline)())


def ahead_of_tvm(module: Any, target: Any) -> Any:
    """A scheduled module after those passes of `tir_pipeline` that precede TVM's own."""
    return before_compile(module) if keeps_on_stack(target) else module


def keeps_on_stack(target: Any) -> bool:
    """Whether `tir_pipeline` has `ahead_of_tvm` before TVM's own passes, and `on_stack` after."""
    return tir_pipeline(target) == _CPU


def name_emulation_pipeline() -> str:
    """The name of the pipeline for CUDA with host code for the emulated device, see
    `spaces.emulation.host_code`."""
    return register_host_pipeline(cuda_pipeline())


@cache
def cpu_pipeline() -> str:
    """Register our pipeline for CPUs, once, and return its name."""
    from tvm.ir.transform import Sequential, module_pass
    from tvm.tirx import get_tir_pipeline, register_tir_pipeline
    from tvm.tirx.transform import prim_func_pass

    def first(module: Any, _context: Any) -> Any:
        return before_compile(module)

    def flat(function: Any, _module: Any, _context: Any) -> Any:
        return on_stack(function)

    def made() -> tuple[Any, Any, Any]:
        passes, host, device = get_tir_pipeline(_STOCK)
        ours = module_pass(first, opt_level=0, name="BeforeCompile")
        last = prim_func_pass(flat, opt_level=0, name="OnStack")
        return Sequential([ours, passes]), lambda: Sequential([last, host()]), device

    register_tir_pipeline(_CPU, made)
    return _CPU
