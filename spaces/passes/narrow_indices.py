"""Narrow 64-bit indices to 32 bits, where nothing that a program computes with integers needs more.

TVM narrows variables that fit by itself, one at a time, but right before it splits off the ragged
ends of loops, and it forgets the hints for these in doing so. Narrowing here keeps the hints. TVM's
pass for a whole program narrows whatever it finds, values and conditions as well as indices, and
does not check that they fit. So that is checked here first. A program where something does not fit
stays as it is, and TVM later narrows those of its variables that fit.
"""

from __future__ import annotations

import math
from typing import Any

from spaces.ir import tvm_compat
from spaces.passes.arithmetic.float_ranges import float_range

_WIDE = "int64"
_MOST = 2**31 - 1
_LEAST = -(2**31)


def with_narrow_indices(function: Any) -> Any:
    """A PrimFunc that computes the same with 32-bit integers; unchanged where one needs more."""
    from tvm.ir import IRModule
    from tvm.tirx.transform import ForceNarrowIndexToInt32

    if not (_has_small_tensors(function) and _computes_within_32_bits(function)):
        return function
    try:
        return ForceNarrowIndexToInt32()(IRModule({"main": function}))["main"]
    except Exception:  # TVM raises whatever its C++ side threw; wide indices are slower, not wrong
        return function


def _has_small_tensors(function: Any) -> bool:
    """Whether all tensors are of known size, none holds wide integers, and all offsets of elements
    fit into 32 bits.

    TVM's pass would narrow tensors of wide integers as well, and it leaves the offsets of buffers
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
        shape = tvm_compat.param_shape(tensor)
        if shape is None or tvm_compat.param_dtype(tensor) in ("int64", "uint64"):
            return False
        sizes = [n for n in shape if isinstance(n, int)]
        if len(sizes) < len(shape) or math.prod(sizes) > _MOST:
            return False
    return True


def _computes_within_32_bits(function: Any) -> bool:
    """Whether every wide integer, intermediate ones too, surely fits into 32 bits, and is not an
    operand of anything that depends on its width."""
    import tvm
    import tvm_ffi
    from tvm import tirx
    from tvm.sym import Analyzer

    analyzer = Analyzer()
    rounds = _bind_all(function, analyzer)
    body = _with_bounded_casts(function.body, analyzer) if rounds else function.body

    def value(node: Any) -> Any:
        if not _is_wide(node):
            return None
        bound = analyzer.const_int_bound(node)
        fits = bound.min_value >= _LEAST and bound.max_value <= _MOST
        return None if fits else tvm_ffi.VisitInterrupt(node)

    def call(node: Any) -> Any:
        if str(getattr(node.op, "name", "")) in _BLIND:
            return value(node)
        seen = _is_wide(node) or any(_is_wide(argument) for argument in node.args)
        return tvm_ffi.VisitInterrupt(node) if seen else None

    growing = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.FloorDiv, tirx.Cast, tirx.Ramp)
    kinds = [(tvm.ir.Call, call), ((*growing, tvm.ir.Var, tirx.IntImm), value)]
    return tvm_ffi.structural_walk(body, kinds) is None


def _bind_all(function: Any, analyzer: Any) -> bool:
    """Bind the ranges of loops and axes in an analyzer, outer before inner; return whether the
    program casts floats to wide integers."""
    import tvm
    import tvm_ffi
    from tvm import tirx

    rounds: list[Any] = []

    def bind(variable: Any, low: Any, extent: Any) -> None:
        analyzer.bind(variable, tvm.ir.Range.from_min_extent(low, extent))

    def block(node: Any) -> None:
        for axis in node.iter_vars:
            bind(axis.var, axis.dom.min, axis.dom.extent)

    def cast(node: Any) -> None:
        if _is_of_float(node):
            rounds.append(node)

    kinds = [
        (tirx.For, lambda loop: bind(loop.loop_var, loop.min, loop.extent)),
        (tvm.s_tir.SBlock, block),
        (tirx.Cast, cast),
    ]
    tvm_ffi.structural_walk(function.body, kinds, order="pre")
    return bool(rounds)


def _with_bounded_casts(body: Any, analyzer: Any) -> Any:
    """A copy of a program for analysis, where casts to integers of floats that are computed from
    indices, as a resize does it, are variables of known bounds."""
    import tvm
    from tvm import tirx
    from tvm_ffi import structural_mutate

    def bounds(node: Any) -> tuple[float, float]:
        known = analyzer.const_int_bound(node)
        exact = known.min_value > -(2**62) and known.max_value < 2**62
        return (known.min_value, known.max_value) if exact else (-math.inf, math.inf)

    def cast(node: Any, mutator: Any) -> Any:
        found = float_range(node.value, bounds) if _is_of_float(node) else None
        if found is None:
            return mutator.default_mutate(node)
        low, high = math.floor(found[0]), math.ceil(found[1])
        if low < _LEAST or high > _MOST:
            return node
        variable = tirx.Var("rounded", node.ty)
        least, count = (tirx.const(n, _WIDE) for n in (low, high - low + 1))
        analyzer.bind(variable, tvm.ir.Range.from_min_extent(least, count))
        return variable

    return structural_mutate(body, [(tirx.Cast, cast)])


_BLIND = frozenset(
    f"tirx.{name}"
    for name in (
        "if_then_else",
        "likely",
        "shift_left",
        "shift_right",
        "bitwise_and",
        "bitwise_or",
        "bitwise_xor",
    )
)
"""Calls whose result does not depend on the width of their operands."""


def _is_of_float(cast: Any) -> bool:
    return _is_wide(cast) and "float" in str(cast.value.ty.dtype)


def _is_wide(expression: Any) -> bool:
    from tvm.ir import PrimType

    kind = getattr(expression, "ty", None)
    return isinstance(kind, PrimType) and str(kind.dtype).startswith(_WIDE)
