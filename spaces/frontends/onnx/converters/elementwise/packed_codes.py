"""Programs that make floats of packed numbers (`spaces.lowering.weights.codes`).

Constants stay packed in the module, see `spaces.lowering.weights.constants`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from spaces.ir.element_types import WIDE
from spaces.lowering.relax_rewrite import constant
from spaces.lowering.weights.byte_rows import BLOCKS, ROUNDS_ROWS
from spaces.lowering.weights.codes import Codes
from spaces.lowering.weights.constants import UNPACKS

FIRST = {"int4": -8, "int2": -2, "uint4": 0, "uint2": 0}
"""Types of less than a byte, and the number that each has as code 0 here."""


def count_bits(dtype: str) -> int:
    """Bits of a number of one of the types of `FIRST`."""
    return int(dtype[-1])


def pack(array: Any, dtype: str) -> Codes:
    """An array of at least one axis, packed.

    Args:
        array: of numbers of a type of less than a byte, in any other.
        dtype: that type, one of `FIRST`.
    """
    bits = count_bits(dtype)
    codes = (array.astype("int32") - FIRST[dtype]).astype("uint8")
    each = 8 // bits
    spare = [(0, 0)] * (codes.ndim - 1) + [(0, -codes.shape[-1] % each)]
    apart = np.pad(codes, spare).reshape(*codes.shape[:-1], -1, each)
    shifts = bits * np.arange(each, dtype="uint8")
    return Codes(constant(np.bitwise_or.reduce(apart << shifts, axis=-1)), bits)


def within(number: Any, size: int) -> Any:
    """The place of an axis that is nearest to a number of 64 bits."""
    from tvm import tirx

    none, last = (tirx.const(place, "int64") for place in (0, size - 1))
    return tirx.max(tirx.min(number, last), none)


def emit_unpacked(builder: Any, compute: Any, *operands: Any, **attrs: Any) -> Any:
    """Floats that a program makes of packed numbers, which stay packed.

    Args:
        attrs: more attributes of the program.
    """
    return builder.emit_te(
        compute, *operands, primfunc_name_hint="unpacked", primfunc_attrs={UNPACKS: True, **attrs}
    )


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix of (depth, columns) in packed numbers, with a scale for each block of a column.

    Attributes:
        codes: of (columns, depth), or of more places than that.
        scales: a tensor of (columns, blocks), of any floats.
        zeros: codes of zero, of (columns, blocks), packed or floats; None where that is the middle
            code.
        groups: a tensor of the number of the block that each row is in; None where a block has
            neighbours.
    """

    codes: Codes
    scales: Any
    depth: int
    columns: int
    block: int
    zeros: Codes | None = None
    groups: Any = None


def emit_matrix(
    builder: Any,
    matrix: Matrix,
    dtype: str,
    *,
    rounds_rows: bool = False,
    turned: bool = False,
) -> Any:
    """The matrix in a type of floats.

    Args:
        rounds_rows: whether the product that reads it may round its rows, see
            `spaces.lowering.weights.byte_rows`.
        turned: whether it is wanted as (columns, depth); then no rows are rounded.
    """
    from tvm import te

    m, bits = matrix, matrix.codes.bits
    blocks = -(-m.depth // m.block)
    more = [
        *([] if m.zeros is None else [m.zeros.tensor]),
        *([] if m.groups is None else [m.groups]),
    ]

    def unpack(packed: Any, scale: Any, *rest: Any) -> Any:
        def number(row: Any, column: Any) -> Any:
            block = row // m.block
            if m.groups is not None:
                block = within(rest[-1][row].astype("int64"), blocks)
            zero = 2.0 ** (bits - 1) if m.zeros is None else m.zeros.read(rest[0], (column, block))
            real = (m.codes.read(packed, (column, row)) - zero) * scale[column, block].astype(WIDE)
            return real.astype(dtype)

        if turned:
            return te.compute((m.columns, m.depth), lambda c, r: number(r, c), name="unpacked")
        return te.compute((m.depth, m.columns), number, name="unpacked")

    attrs: dict[str, Any] = {}
    if m.groups is None and not turned:
        attrs = {BLOCKS: [bits, m.block, m.depth, m.columns], ROUNDS_ROWS: rounds_rows}
    return emit_unpacked(builder, unpack, m.codes.tensor, m.scales, *more, **attrs)
