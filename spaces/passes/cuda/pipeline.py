"""TVM's passes for CUDA devices, with things of ours.

Copies that a schedule makes ahead are the device's own instructions (cp.async), which TVM does only
where it is told to. And no kernel is launched on an empty grid, which the driver refuses: a size of
zero is a valid size, for which there is nothing to do. Pointers into shared memory have its types
(`spaces.passes.cuda.typed_pointers`). Vectors are read, written and copied only where a device can
(`spaces.passes.cuda.alignment`). Sums of several threads are written only where there is room
(`spaces.passes.cuda.guarded_sums`). Infinities are written as compilers know them
(`spaces.passes.cuda.infinities`). Common expressions get no names where TVM would stumble over
these. And what the host would run of a program is refused
(`spaces.passes.cuda.host_loops`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from spaces.ir import rewrite, tvm_compat
from spaces.passes.cuda.alignment import (
    CopyWatch,
    narrow_stores,
    without_copies_ahead,
    without_odd_vectors,
)
from spaces.passes.cuda.guarded_sums import guard_sums
from spaces.passes.cuda.host_loops import refuse_host_loops
from spaces.passes.cuda.infinities import widen_infinities
from spaces.passes.cuda.launches import LOWERED, launch_parameters
from spaces.passes.cuda.thread_programs import lower_apart
from spaces.passes.cuda.typed_pointers import retype_pointers
from spaces.targets.backends import compiling
from spaces.targets.nvidia.numbers import architecture_of
from spaces.targets.target import parse_target

_NAME = "tuner-cuda"
_STOCK = "default"
_ASYNC = "tirx.use_async_copy"
"""TVM's setting for copies made ahead. Without it they are loads and stores, and their waits stay.
"""
_FIRST_ASYNC = 80
"""The first architecture that has them (PTX ISA, "cp.async")."""
_OF_OTHERS = "s_tir.LowerAsyncDMA"
"""A pass that comes with that setting and makes of a row that one thread copies ahead what Hexagon
has: code for CUDA cannot say it."""
_BLOCKS = "blockIdx."
_UNNAMED, _NO_BOUNDS = "tirx.disable_cse_tir", "Check failed: (eval_vec_)"
"""TVM's setting without which common expressions get names, and what it says where it finds no
bounds of a vector with a name."""


def pass_config(target: Any) -> dict[str, bool]:
    """The settings of TVM's passes with which its own pipeline makes the kernels that ours makes.

    Args:
        target: a TVM target of any kind, or canonical JSON of one.
    """
    if isinstance(target, str):
        arch = json.loads(target).get("arch", "")
    else:
        arch = target.attrs.get("arch", "")
    return {_ASYNC: True} if architecture_of(str(arch)) >= _FIRST_ASYNC else {}


def is_tvms_own(module: Any, target: Any) -> bool:
    """Whether TVM's own passes, with `pass_config`, make the kernels of a scheduled module that
    ours make.

    Args:
        target: canonical JSON of a CUDA target.
    """
    import tvm

    def sources(pipeline: str, config: Mapping[str, bool]) -> list[str]:
        with compiling(parsed), tvm.transform.PassContext(config=dict(config)):
            library = tvm.compile(module, target=parsed, tir_pipeline=pipeline).mod
        return [str(part.inspect_source("cuda")) for part in library.imports]

    parsed = parse_target(target)
    ours = sources(cuda_pipeline(), {})
    try:
        return sources(_STOCK, pass_config(target)) == ours
    except Exception:  # TVM raises whatever its C++ side threw
        return False


@cache
def cuda_pipeline() -> str:
    """Register our pipeline for CUDA devices, once, and return its name."""
    from tvm.ir.transform import Sequential, module_pass
    from tvm.tirx import get_tir_pipeline, register_tir_pipeline
    from tvm.tirx.transform import prim_func_pass

    def made() -> tuple[Any, Any, Any]:
        passes, host, device = get_tir_pipeline(_STOCK)

        def lower(module: Any, _context: Any) -> Any:
            refuse_host_loops(module)
            module = without_odd_vectors(guard_sums(module))
            watch, config = CopyWatch(), _config_of(module)
            lowered = _run(passes, module, config, watch.instrument())
            if watch.uneven:
                lowered = _run(passes, without_copies_ahead(module, watch.uneven), config)
            return lowered

        def retype(function: Any, _module: Any, _context: Any) -> Any:
            return retype_pointers(function)

        def write(function: Any, _module: Any, _context: Any) -> Any:
            return widen_infinities(narrow_stores(function))

        def lower_all(module: Any, context: Any) -> Any:
            lowered = lower_apart(module, lambda scheduled: lower(scheduled, context))
            return without_empty_grids(lowered)

        first = module_pass(lower_all, opt_level=0, name=LOWERED)
        typed = prim_func_pass(retype, opt_level=0, name="RetypePointers")
        writable = prim_func_pass(write, opt_level=0, name="WritableCode")
        return first, host, lambda: Sequential([typed, device(), writable])

    register_tir_pipeline(_NAME, made)
    return _NAME


def without_empty_grids(module: Any) -> Any:
    """A module of host functions and kernels, as TVM's passes leave it, whose host functions launch
    no kernel on a grid without blocks."""
    import tvm
    from tvm_ffi import structural_mutate

    def launch(node: Any, mutator: Any) -> Any:
        conditions = _blocks_there(node.value)
        if not conditions:
            return mutator.default_mutate(node)
        return tvm.tirx.IfThenElse(rewrite.conjunction(conditions), node, None)

    looks = [(tvm.tirx.Evaluate, launch)]
    return rewrite.with_prim_funcs(module, lambda f: f.with_body(structural_mutate(f.body, looks)))


def _blocks_there(call: Any) -> list[Any]:
    """What holds where a launch has blocks; empty of any other call, and of known numbers."""
    return [
        value > rewrite.constant(0, value)
        for tag, value in launch_parameters(call).items()
        if tag.startswith(_BLOCKS) and tvm_compat.as_int(value) is None
    ]


def _config_of(module: Any) -> dict[str, bool]:
    """The settings for the target that the functions of a module are for."""
    for function in module.functions.values():
        if (target := function.attrs.get("target")) is not None:
            return pass_config(target)
    return {}


def _run(passes: Any, module: Any, config: Mapping[str, bool], *instruments: Any) -> Any:
    """What TVM's passes make of a module: without names for common expressions where one of these
    is a vector that tells places in shared memory, of which `ThreadSync` finds no bounds."""
    try:
        with _with_config(config, *instruments):
            return passes(module)
    except Exception as error:  # TVM raises whatever its C++ side threw
        if _NO_BOUNDS not in str(error):
            raise
    with _with_config({**config, _UNNAMED: True}, *instruments):
        return passes(module)


def _with_config(config: Mapping[str, bool], *instruments: Any) -> Any:
    """The current context of passes with more settings, and with more that looks on."""
    from tvm.ir.transform import PassContext

    now = PassContext.current()
    return PassContext(
        opt_level=now.opt_level,
        required_pass=list(now.required_pass),
        disabled_pass=[*now.disabled_pass, _OF_OTHERS],
        instruments=[*now.instruments, *instruments],
        config={**dict(now.config), **config},
    )
