"""Programs for a GPU that say themselves what each thread does (TIRx), beside scheduled ones.

TVM lowers them by a pipeline of its own, and no pass of ours changes them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_ENTRY = "tirx.device_entry"
_PIPELINE = "tirx"
_ROOT = "root"


def lower_apart(module: Any, lower: Callable[[Any], Any]) -> Any:
    """A module whose programs for threads went through TVM's passes for such, all else through
    `lower`."""
    from tvm.ir import IRModule
    from tvm.tirx import get_tir_pipeline

    own = {gv: f for gv, f in module.functions.items() if says_threads(f)}
    if not own:
        return lower(module)
    passes, _, _ = get_tir_pipeline(_PIPELINE)
    bare = {gv: _without_block(f) for gv, f in own.items()}
    lowered = passes(IRModule(bare, attrs=module.attrs))
    rest = {gv: f for gv, f in module.functions.items() if gv not in own}
    if rest:
        lowered.update(lower(IRModule(rest, attrs=module.attrs)))
    return lowered


def in_block(function: Any) -> Any:
    """A program for threads in a block, which TVM's passes over graphs take for granted of a
    function with one input, as it might be a reshape; `lower_apart` takes it away again."""
    from tvm.s_tir import SBlock, SBlockRealize

    block = SBlock([], [], [], _ROOT, function.body)
    return _with_body(function, SBlockRealize([], True, block))


def _without_block(function: Any) -> Any:
    from tvm.s_tir import SBlockRealize

    body = function.body
    return _with_body(function, body.block.body) if isinstance(body, SBlockRealize) else function


def _with_body(function: Any, body: Any) -> Any:
    from tvm.tirx import PrimFunc

    return PrimFunc(function.params, body, function.ret_type, function.attrs)


def says_threads(function: Any) -> bool:
    """Whether a function is a program for the threads of a device."""
    import tvm
    import tvm_ffi

    found: list[Any] = []

    def look(node: Any, mutator: Any) -> Any:
        if str(node.attr_key) == _ENTRY:
            found.append(node)
            return node
        return mutator.default_mutate(node)

    if isinstance(function, tvm.tirx.PrimFunc):
        tvm_ffi.structural_mutate(function.body, [(tvm.tirx.AttrStmt, look)])
    return bool(found)
