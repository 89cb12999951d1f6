"""A user's builder, in the place of TVM's compiler."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from spaces.ir import tvm_compat
from tuner.source import Source
from tuner.user_code.faults import LayerFailed, blame
from tuner.user_code.load import load

Compiler = Callable[[Any, Any], Any]
"""From an IRModule and a target to a `tvm.runtime.Module` with the same functions."""


@lru_cache(maxsize=4)
def compiler_of(source: Source | None) -> Compiler | None:
    """What a user's builder does; None where there is none.

    It raises `LayerFailed` where a line of the user's file raises; what the compiler that it calls
    raises is passed on.
    """
    if source is None:
        return None
    with blame(source, "builder"):
        theirs = load(source)()

    def compiled(module: Any, target: Any) -> Any:
        with blame(source, "builder, build", always=False):
            built = theirs.build(module, target)
        if not tvm_compat.is_compiled(built):
            given = type(built).__name__
            raise LayerFailed(f"{source.file}: build gave {given}, no tvm.runtime.Module (builder)")
        return built

    return compiled
