"""Numbers of 2, 4 and 8 bits, several of them in a byte, within a tensor program.

A byte holds the first of its numbers in its lowest bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from spaces.ir.element_types import WIDE


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
        *front, last = place
        if tensor.dtype != "uint8":
            return tensor[(*front, last)].astype(WIDE)
        each = 8 // self.bits
        byte = tensor[(*front, last // each)].astype("int32")
        return take_code(byte, "int32", last % each, self.bits).astype(WIDE)


def take_code(byte: Any, kind: str, number: Any, bits: int) -> Any:
    """The code of a number in a byte of an element type, in that type.

    It is chosen among shifts by constants: one by an expression of indices would have 64 bits, and
    where the number is known no choice is left.
    """
    from tvm import tirx

    mask = tirx.const((1 << bits) - 1, kind)
    code = byte >> tirx.const(8 - bits, kind)
    for other in reversed(range(8 // bits - 1)):
        here = (byte >> tirx.const(other * bits, kind)) & mask
        code = tirx.Select(number == other, here, code)
    return code
