"""The passes that tensor programs are compiled with, under a name that TVM knows them by.

Everything that compiles a scheduled program names them: the builders, whose kernels are timed,
`export --lib`, and users who apply a database and call `tvm.compile`. All of them get the same
code. The reference that results are judged by is compiled with TVM's own passes alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from spaces.emulation.host_code import hosted_pipeline
from spaces.passes.cpu_passes import before_compile
from spaces.passes.stack_alloc import on_stack
from spaces.passes.typed_pointers import retype_pointers
from spaces.targets.backends import backend_of, load
from spaces.targets.nvidia.numbers import architecture_of

_CPU, _CUDA = "tuner-cpu", "tuner-cuda"
_STOCK = "default"
_ASYNC = "tirx.use_async_copy"
"""TVM's setting that turns copies made ahead into cp.async. Without it they are loads and stores,
and their waits stay."""
_FIRST_ASYNC = 80
"""The first architecture that has them (PTX ISA, "cp.async")."""


def tir_pipeline(target: Any) -> str:
    """The `tir_pipeline` to pass to `tvm.compile`. Public: `tuner.tir_pipeline`.

    For a CPU, the passes of `spaces.passes.cpu_passes`, those of TVM, and
    `spaces.passes.stack_alloc.on_stack`. For a CUDA device, those of TVM, with the copies that a
    schedule makes ahead done by the device's own instructions (cp.async), where it has them, and
    `spaces.passes.typed_pointers`. They are registered with TVM here.

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


def pass_config(target: Any) -> dict[str, bool]:
    """The settings of TVM's passes with which its own pipeline makes the code that `tir_pipeline`
    makes for a CUDA device.

    Args:
        target: a TVM target, or canonical JSON of one.
    """
    arch = json.loads(target).get("arch", "") if isinstance(target, str) else _arch(target)
    return {_ASYNC: True} if architecture_of(str(arch)) >= _FIRST_ASYNC else {}


@cache
def cuda_pipeline() -> str:
    """Register our pipeline for CUDA devices, once, and return its name."""
    from tvm.ir.transform import Sequential, module_pass
    from tvm.tirx import get_tir_pipeline, register_tir_pipeline
    from tvm.tirx.transform import prim_func_pass

    def made() -> tuple[Any, Any, Any]:
        passes, host, device = get_tir_pipeline(_STOCK)

        def lower(module: Any, _context: Any) -> Any:
            with _with_config(_config_of(module)):
                return passes(module)

        def retype(function: Any, _module: Any, _context: Any) -> Any:
            return retype_pointers(function)

        first = module_pass(lower, opt_level=0, name="LowerForCuda")
        ours = prim_func_pass(retype, opt_level=0, name="RetypePointers")
        return first, host, lambda: Sequential([ours, device()])

    register_tir_pipeline(_CUDA, made)
    return _CUDA


def emulated_pipeline() -> str:
    """The name of the pipeline for CUDA with host code for the emulated device, see
    `spaces.emulation.host_code`."""
    return hosted_pipeline(cuda_pipeline())


def _config_of(module: Any) -> dict[str, bool]:
    """The settings for the target that the functions of a module are for."""
    for function in module.functions.values():
        if (target := function.attrs.get("target")) is not None:
            return pass_config(target)
    return {}


def _arch(target: Any) -> str:
    return str(target.attrs.get("arch", ""))


def _with_config(config: Mapping[str, bool]) -> Any:
    """The current context of passes with more settings."""
    from tvm.ir.transform import PassContext

    now = PassContext.current()
    return PassContext(
        opt_level=now.opt_level,
        required_pass=list(now.required_pass),
        disabled_pass=list(now.disabled_pass),
        instruments=list(now.instruments),
        config={**dict(now.config), **config},
    )


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
