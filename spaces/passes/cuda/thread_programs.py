"""Programs for a GPU that say themselves what each thread does (TIRx), beside scheduled ones.

TVM lowers them by a pipeline of its own, and no pass of ours changes them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_ENTRY = "tirx.device_entry"
_PIPELINE = "tirx"


def lower_apart(module: Any, lower: Callable[[Any], Any]) -> Any:
    """A module whose programs for threads went through TVM's passes for such, all else through
    `lower`."""
    from tvm.ir import IRModule
    from tvm.tirx import get_tir_pipeline

    own = {gv: f for gv, f in module.functions.items() if says_threads(f)}
    if not own:
        return lower(module)
    passes, _, _ = get_tir_pipeline(_PIPELINE)
    lowered = passes(IRModule(own, attrs=module.attrs))
    rest = {gv: f for gv, f in module.functions.items() if gv not in own}
    if rest:
        lowered.update(lower(IRModule(rest, attrs=module.attrs)))
    return lowered


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
