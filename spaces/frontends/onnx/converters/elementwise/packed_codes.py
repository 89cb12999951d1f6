"""Numbers of 2, 4 and 8 bits, several of them in a byte, and programs that make floats of them.

A byte holds the first of its numbers in its lowest bits. Constants stay packed in the module, see
`spaces.lowering.weights.constants`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from spaces.frontends.precision import WIDE
from spaces.lowering.relax_rewrite import constant
from spaces.lowering.weights.constants import UNPACKS

FIRST = {"int4": -8, "int2": -2, "uint4": 0, "uint2": 0}
"""Types of less than a byte, and the number that each has as code 0 here."""


@dataclass(frozen=True, slots=True)
class Codes:
    """Numbers of so many bits, packed along their last axis.

    Attributes:
        tensor: of uint8; or of floats, which are what they are.
    """

    tensor: Any
    bits: int

    def read(self, tensor: Any, place: Sequence[Any]) -> Any:
        """One of them in float32, within a tensor program whose operand is `tensor`."""
        from tvm import tirx

        *front, last = place
        if tensor.dtype != "uint8":
            return tensor[(*front, last)].astype(WIDE)
        each = 8 // self.bits
        byte = tensor[(*front, last // each)].astype("int32")
        if each == 1:
            return byte.astype(WIDE)
        code = byte >> (8 - self.bits)
        for number in reversed(range(each - 1)):  # no shift by a place: it would have 64 bits
            here = (byte >> (number * self.bits)) & ((1 << self.bits) - 1)
            code = tirx.Select(last % each == number, here, code)
        return code.astype(WIDE)


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
