"""How many elements a device may load or store at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from spaces.ir import rewrite, tvm_compat
from spaces.ir.symbolic import variables
from spaces.templates.gpu_memory.program import Program

BYTES = 16
"""The widest access of a thread (CUDA C++ Programming Guide, "Device Memory Accesses")."""
WIDTHS = (1, 2, 4, 8)


def width_at(index: Any, vector: int, dtype: str) -> int:
    """Elements of one access, of `vector` that begin at an index."""
    import tvm

    if dtype == "bool":
        return 1
    known = tvm.sym.Analyzer().modular_set(index)
    aligned = math.gcd(int(known.coeff), int(known.base)) or vector
    most = min(vector, max(1, BYTES * 8 // tvm_compat.element_bits(dtype)))
    return max(width for width in (*WIDTHS, 16) if width <= most and aligned % width == 0)


def open_sizes(program: Program, vector: int) -> tuple[Any, ...] | None:
    """The symbolic dimensions that have to be multiples of a vector for there to be whole ones.

    None where there are none even so.
    """
    symbols: list[Any] = []
    whole = False
    for group in program.vector_groups():
        extent = group.extent
        if is_whole(extent, vector):
            whole = True
            continue
        own = variables(extent) if tvm_compat.as_int(extent) is None else []
        if own and is_whole(rewrite.substitute(extent, multiples(own, vector)), vector):
            symbols += [symbol for symbol in own if not rewrite.is_among(symbol, symbols)]
            whole = True
    return tuple(symbols) if whole else None


def multiples(symbols: Sequence[Any], vector: int) -> list[tuple[Any, Any]]:
    """Symbols with expressions that show them to be multiples of a vector."""
    return [(s, s // rewrite.constant(vector, s) * rewrite.constant(vector, s)) for s in symbols]


def is_whole(extent: Any, vector: int) -> bool:
    """Whether vectors divide an extent evenly, whatever its symbols stand for."""
    import tvm

    known = tvm.sym.Analyzer().modular_set(extent)
    return int(known.coeff) % vector == 0 and int(known.base) % vector == 0
