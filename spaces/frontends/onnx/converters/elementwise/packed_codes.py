"""Programs that make floats of packed numbers (`spaces.lowering.weights.codes`).

Constants stay packed in the module, see `spaces.lowering.weights.constants`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from spaces.lowering.relax_rewrite import constant
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
