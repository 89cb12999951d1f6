"""What is done to tensor programs for a CPU right before they are compiled.

Tasks, schedules and records know nothing of it: what is tuned, stored and checked against is the
program as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from spaces.ir import tvm_compat
from spaces.passes.fast_math import vectorised_math
from spaces.passes.narrow_indices import with_narrow_indices
from spaces.passes.nonempty import for_positive_sizes
from spaces.passes.prefetch import with_prefetches
from spaces.passes.reciprocals import with_reciprocals
from spaces.passes.tile_accumulators import with_tile_sums
from spaces.passes.tile_guards import with_whole_tiles
from spaces.passes.transposes import with_transposes
from spaces.passes.vector_tails import with_ragged_ends

VERSION = 1
"""Of the passes: goes up when a program may become other code than before, by another list of
passes or by what one of them does. It is part of the toolchain that records name."""


def without_aliases(function: Any) -> Any:
    """A PrimFunc of one tensor, which promises that no other shares its memory.

    TVM makes such to compute symbolic shapes. One that promises nothing has LLVM doubt the promises
    of all others of its module: matrix products become four times slower.
    """
    tensors = [param for param in function.params if tvm_compat.param_dims(param) is not None]
    return function.with_attr(tvm_compat.NO_ALIAS, True) if len(tensors) <= 1 else function


CPU_PASSES: tuple[Callable[[Any], Any], ...] = (
    without_aliases,
    for_positive_sizes,
    with_prefetches,
    with_tile_sums,
    with_whole_tiles,
    with_transposes,
    with_ragged_ends,
    # Indices become 32-bit integers: TVM 0.27 forgets the hints to split off the ragged end of a
    # loop when it narrows a loop's variable itself, and then tests for the end in every lane.
    with_narrow_indices,
    # Divisions by what all lanes share become products, and exponentials arithmetic.
    with_reciprocals,
    vectorised_math,
)
"""From a PrimFunc to one that computes the same, in order. After those of TVM that follow comes
`spaces.passes.stack_alloc.on_stack`, and `VERSION` is of that one, too."""


def before_compile(module: Any) -> Any:
    """A module that computes the same, in code that LLVM makes more of.

    Args:
        module: for an llvm target; scheduled or not. Functions that are no tensor programs stay.
    """
    from tvm.ir import IRModule

    return IRModule(
        {
            gv: _prepared(function) if tvm_compat.is_prim_func(function) else function
            for gv, function in module.functions.items()
        },
        attrs=module.attrs,
    )


def _prepared(function: Any) -> Any:
    for prepare in CPU_PASSES:
        function = prepare(function)
    return function
