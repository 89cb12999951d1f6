"""What is done to tensor programs for a CPU right before they are compiled.

Tasks, schedules and records know nothing of it: what is tuned, stored and checked against is the
program as it was.
"""

from __future__ import annotations

import math
from typing import Any

from spaces import names
from spaces.fast_math import vectorised_math
from spaces.positive_sizes import for_positive_sizes
from spaces.prefetches import with_prefetches
from spaces.ragged_ends import with_ragged_ends
from spaces.reciprocals import with_reciprocals
from spaces.tile_sums import with_tile_sums
from spaces.transposes import with_transposes
from spaces.whole_tiles import with_whole_tiles

_MOST = 2**31 - 1


def before_compile(module: Any) -> Any:
    """A module that computes the same, in code that LLVM makes more of.

    Indices become 32-bit integers: TVM 0.27 forgets the hints to split off the ragged end of a
    loop when it narrows a loop's variable itself, and then tests for the end in every lane.
    Divisions by what all lanes share become products, and exponentials arithmetic.

    Args:
        module: for an llvm target; scheduled or not. Functions that are no tensor programs stay.
    """
    from tvm.ir import IRModule

    return IRModule(
        {
            gv: _prepared(function) if names.is_prim_func(function) else function
            for gv, function in module.functions.items()
        },
        attrs=module.attrs,
    )


def _prepared(function: Any) -> Any:
    function = with_tile_sums(with_prefetches(for_positive_sizes(function)))
    function = with_whole_tiles(function)
    function = with_ragged_ends(with_transposes(function))
    return vectorised_math(with_reciprocals(_narrowed(function)))


def _narrowed(function: Any) -> Any:
    from tvm.ir import IRModule
    from tvm.tirx.transform import ForceNarrowIndexToInt32

    if not _narrows(function):
        return function
    try:
        return ForceNarrowIndexToInt32()(IRModule({"main": function}))["main"]
    except Exception:  # TVM raises whatever its C++ side threw; wide indices are slower, not wrong
        return function


def _narrows(function: Any) -> bool:
    """Whether only indices are wide, and all of them can be narrowed.

    The pass would narrow tensors of wide integers as well, and it leaves the offsets of buffers
    that an intrinsic matches as they are, which then meet narrow ones.
    """
    import tvm
    import tvm_ffi

    found: list[Any] = list(function.params)
    matched: list[Any] = []

    def look(block: Any) -> None:
        found.extend(block.alloc_buffers)
        matched.extend(block.match_buffers)

    tvm_ffi.structural_walk(
        function.body,
        [
            (tvm.s_tir.SBlock, look),
            (tvm.ir.TensorLoad, lambda load: found.append(load.source)),
            (tvm.tirx.BufferStore, lambda store: found.append(store.buffer)),
        ],
    )
    if matched:
        return False
    for tensor in found:
        shape = names.param_shape(tensor)
        if shape is None or names.param_dtype(tensor) in ("int64", "uint64"):
            return False
        sizes = [n for n in shape if isinstance(n, int)]
        if len(sizes) < len(shape) or math.prod(sizes) > _MOST:
            return False
    return True
