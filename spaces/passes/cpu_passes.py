"""The passes over tensor programs for a CPU, right before these are compiled.

Tasks, schedules and records know nothing of them: the program that is tuned, stored and checked
against is the one before these passes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from spaces.ir import rewrite, tvm_compat
from spaces.ir.byte_floats import with_exact_conversions
from spaces.passes.arithmetic.code_tables import with_code_tables
from spaces.passes.arithmetic.fast_math import vectorised_math
from spaces.passes.arithmetic.reciprocals import with_reciprocals
from spaces.passes.arithmetic.roundings import with_rounding_casts
from spaces.passes.bf16.arithmetic import with_wide_arithmetic
from spaces.passes.dots.group_dots import with_group_dots
from spaces.passes.dots.mixed_copies import with_mixed_copies
from spaces.passes.idle_steps import without_idle_steps
from spaces.passes.narrow_indices import with_narrow_indices
from spaces.passes.nonempty import for_positive_sizes
from spaces.passes.padded_weights import without_padding_tests
from spaces.passes.prefetch import with_prefetches
from spaces.passes.tile_accumulators import with_tile_sums
from spaces.passes.tile_guards import with_whole_tiles
from spaces.passes.transposes import with_transposes
from spaces.passes.vector_tails import with_ragged_ends

VERSION = 6
"""The version of the passes: it goes up when a program may become other code than before, because
the list or one of the passes changed. It is part of the toolchain that records name."""


def without_aliases(function: Any) -> Any:
    """Have a PrimFunc of at most one tensor promise that no other tensor shares its memory.

    TVM makes such functions to compute symbolic shapes. One that promises nothing has LLVM doubt
    the promises of all others in its module: matrix products become four times slower.
    """
    tensors = [param for param in function.params if tvm_compat.param_dims(param) is not None]
    return function.with_attr(tvm_compat.NO_ALIAS, True) if len(tensors) <= 1 else function


CPU_PASSES: tuple[Callable[[Any], Any], ...] = (
    without_aliases,
    without_padding_tests,
    with_exact_conversions,
    for_positive_sizes,
    with_prefetches,
    with_tile_sums,
    with_whole_tiles,
    # Marked sums of products become instructions; those of bfloat16 round and treat the smallest
    # numbers in a way of their own.
    with_group_dots,
    with_mixed_copies,
    with_transposes,
    with_ragged_ends,
    without_idle_steps,
    # Indices become 32-bit integers: TVM 0.27 forgets the hints to split off the ragged end of a
    # loop when it narrows a loop's variable itself, and then tests for the end in every lane.
    with_narrow_indices,
    # Divisions by a value that all lanes share become products, and exponentials arithmetic.
    with_reciprocals,
    # Whether a quotient is rounded is seen no more after this.
    with_rounding_casts,
    vectorised_math,
    # TVM's own arithmetic of bfloat16 does not reach into what these bind.
    with_wide_arithmetic,
    with_code_tables,
)
"""The passes in order, each from a PrimFunc to one that computes the same. TVM's passes follow, and
then `spaces.passes.stack_alloc.on_stack`, which `VERSION` covers too."""


def before_compile(module: Any) -> Any:
    """A module that computes the same, in a form that LLVM compiles to faster code.

    Args:
        module: a module for an llvm target, scheduled or not. Functions that are not tensor
            programs stay as they are.
    """
    return rewrite.with_prim_funcs(module, _prepare)


def _prepare(function: Any) -> Any:
    for prepare in CPU_PASSES:
        function = prepare(function)
    return function
