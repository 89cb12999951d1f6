"""Indices of 32 bits, where nothing that a program computes with integers needs more.

TVM narrows by itself what fits, one variable at a time, but right before it splits off the ragged
ends of loops, whose hints it forgets by that. Done here, the hints stay. TVM's pass for a whole
program narrows whatever it finds, values and conditions as well as indices, and asks of none
whether it fits: so a program is asked first. One that is refused stays as it is, and TVM narrows
what it can of it later.
"""

from __future__ import annotations

import math
from typing import Any

from spaces import names

_WIDE = "int64"
_MOST = 2**31 - 1
_LEAST = -(2**31)


def with_narrow_indices(function: Any) -> Any:
    """A PrimFunc that computes the same with integers of 32 bits; itself where one needs more."""
    from tvm.ir import IRModule
    from tvm.tirx.transform import ForceNarrowIndexToInt32

    if not (_has_small_tensors(function) and _computes_within_32_bits(function)):
        return function
    try:
        return ForceNarrowIndexToInt32()(IRModule({"main": function}))["main"]
    except Exception:  # TVM raises whatever its C++ side threw; wide indices are slower, not wrong
        return function


def _has_small_tensors(function: Any) -> bool:
    """Whether all tensors are of known size, none holds wide integers, and each element of each
    has an offset of 32 bits.

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


def _computes_within_32_bits(function: Any) -> bool:
    """Whether every wide integer, intermediate ones too, surely fits into 32 bits, and meets
    nothing that would see how many it has."""
    import tvm
    import tvm_ffi
    from tvm import tirx
    from tvm.sym import Analyzer

    analyzer = Analyzer()

    def bind(variable: Any, low: Any, extent: Any) -> None:
        analyzer.bind(variable, tvm.ir.Range.from_min_extent(low, extent))

    def block(node: Any) -> None:
        for axis in node.iter_vars:
            bind(axis.var, axis.dom.min, axis.dom.extent)

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
    refused = tvm_ffi.structural_walk(
        function.body,
        [
            (tirx.For, lambda loop: bind(loop.loop_var, loop.min, loop.extent)),
            (tvm.s_tir.SBlock, block),
            (tvm.ir.Call, call),
            ((*growing, tvm.ir.Var, tirx.IntImm), value),
        ],
        order="pre",
    )
    return refused is None


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
"""Calls that give the same for the same numbers, however many bits these have."""


def _is_wide(expression: Any) -> bool:
    return str(getattr(getattr(expression, "ty", None), "dtype", "")).startswith(_WIDE)
