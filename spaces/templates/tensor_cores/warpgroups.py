"""What products of a warpgroup need around them (PTX ISA, "Asynchronous Warpgroup Level Matrix
Instructions")."""

from __future__ import annotations

from typing import Any

from spaces.templates.products.layout import UNIT
from spaces.templates.tensor_cores.operand import Operand
from spaces.templates.tensor_cores.tensor_map import SWIZZLES
from spaces.templates.tensor_cores.tile import LINE_BYTES, PATTERN_BYTES

WARPGROUP, ROWS = 128, 64
"""Threads of a warpgroup; rows of one instruction."""
_KEEP = {"float32": ("keep_below_wait", "f"), "uint32": ("keep_whole_below_wait", "r")}
_KEEP_CODE = """
template <class... Sums> static __device__ __forceinline__ void {}(Sums&... sums) {{
  ([&] {{ asm volatile("" : "+{}"(sums) :: "memory"); }}(), ...);
}}
"""
"""Code that nvcc cannot read sums above: else it moves reads above the wait for the last products,
and an H100 then lacked these. TVM's own `noop_barrier` takes a copy of a sum."""
_SWIZZLE = SWIZZLES[LINE_BYTES]
"""Of an operand's lines; matrix descriptors number it as tensor maps do, and count in units."""
_PATTERN = PATTERN_BYTES // UNIT


def describe_matrix(T: Any, side: Operand, word: Any, stage: Any, first: Any) -> None:
    """Write the matrix descriptor of an operand's tile, from an element of a stage on.

    Args:
        T: TVM's script.
        word: a buffer of one `uint64`.
    """
    leading = side.depth * LINE_BYTES // UNIT if side.source.turned else 1
    where = side.stages.ptr_to([stage, first])
    T.evaluate(
        T.cuda.wgmma.encode_matrix_descriptor(word.ptr_to([0]), where, leading, _PATTERN, _SWIZZLE)
    )


def wait_for_sums(T: Any, sums: Any) -> None:
    """Wait for all products of a warpgroup, before sums in registers are read."""
    T.evaluate(T.ptx.wgmma.wait_group.sync.aligned(0))
    kept = [sums[i] for i in range(int(sums.shape[0]))]
    name, letter = _KEEP[str(sums.dtype)]
    T.evaluate(T.cuda.func_call(name, *kept, source_code=_KEEP_CODE.format(name, letter)))
