"""Exact rounding to binary floating point: IEEE 754-2019, 4.3 (rounding directions) and 3.4.

Values are Python's fractions, so nothing is rounded before it is rounded here. A format is the
width of its significand with the hidden bit, and its greatest and smallest exponents.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np

from tests.spaces.emulation.instructions.program import Array

Mode = Literal["rn", "rz", "rd", "ru", "rna"]
"""To nearest with ties to even, towards zero, down, up, to nearest with ties away from zero."""


@dataclass(frozen=True, slots=True)
class Format:
    """A binary format. `bits` is its size in memory, of which `precision - 1` are its fraction."""

    bits: int
    precision: int
    max_exponent: int

    @property
    def min_exponent(self) -> int:
        """Of the smallest normal number."""
        return 1 - self.max_exponent

    @property
    def infinity(self) -> int:
        """Its bits."""
        return (2 * self.max_exponent + 1) << (self.precision - 1)


HALF = Format(16, 11, 15)
BFLOAT = Format(16, 8, 127)
E5M2 = Format(8, 3, 15)
SINGLE = Format(32, 24, 127)
NAN = {HALF: 0x7FFF, BFLOAT: 0x7FFF, SINGLE: 0x7FFFFFFF}
"""What CUDA's conversions and arithmetic give for any NaN."""


def round_to(
    value: Fraction, format: Format, mode: Mode = "rn", *, minus_zero: bool = False
) -> int:
    """The bits of the value rounded. `minus_zero` is the sign of a value that is zero."""
    negative = value < 0 or (value == 0 and minus_zero)
    sign = int(negative) << (format.bits - 1)
    magnitude = abs(value)
    if magnitude == 0:
        return sign
    steps, unit = _in_units(magnitude, format)
    whole = _round_whole(steps, mode, negative)
    # A carry into the next exponent is the next bit pattern, so the sum is right as it is.
    fraction = format.precision - 1
    bits = whole if unit == 0 else (unit << fraction) + whole - (1 << fraction)
    if bits >= format.infinity:
        up = {"rn": True, "rna": True, "rz": False, "rd": negative, "ru": not negative}[mode]
        bits = format.infinity if up else format.infinity - 1
    return sign | bits


def _in_units(magnitude: Fraction, format: Format) -> tuple[Fraction, int]:
    """The magnitude in units of the last place, and its biased exponent (0 for subnormals)."""
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if magnitude < Fraction(2) ** exponent:
        exponent -= 1
    exponent = max(exponent, format.min_exponent)
    steps = magnitude / Fraction(2) ** (exponent - format.precision + 1)
    normal = steps >= 1 << (format.precision - 1)
    return steps, exponent - format.min_exponent + 1 if normal else 0


def _round_whole(steps: Fraction, mode: Mode, negative: bool) -> int:
    floor = math.floor(steps)
    rest = steps - floor
    if mode == "rn":
        return floor + (rest > Fraction(1, 2) or (rest == Fraction(1, 2) and floor % 2 == 1))
    if mode == "rna":
        return floor + (rest >= Fraction(1, 2))
    away = {"rz": False, "rd": negative, "ru": not negative}[mode]
    return floor + (away and rest > 0)


def value_of(bits: int, format: Format) -> Fraction | float:
    """What the bits stand for: a fraction, or an infinity or NaN of Python's."""
    magnitude = bits & ((1 << (format.bits - 1)) - 1)
    sign = -1 if bits >> (format.bits - 1) else 1
    if magnitude >= format.infinity:
        return math.nan if magnitude > format.infinity else sign * math.inf
    fraction = format.precision - 1
    exponent, rest = magnitude >> fraction, magnitude & ((1 << fraction) - 1)
    steps = rest + ((1 << fraction) if exponent else 0)
    return sign * steps * Fraction(2) ** (max(exponent, 1) - 1 + format.min_exponent - fraction)


def is_minus(bits: int, format: Format) -> bool:
    """Whether the sign bit is set."""
    return bool(bits >> (format.bits - 1))


def map_bits(function: Callable[..., int], *arrays: Array) -> list[int]:
    """The function of each element's bits, in order."""
    columns: list[Iterable[int]] = [
        np.ascontiguousarray(a).view(f"u{a.dtype.itemsize}").ravel().tolist() for a in arrays
    ]
    return [function(*row) for row in zip(*columns, strict=True)]


def convert(bits: int, source: Format, target: Format, mode: Mode = "rn") -> int:
    """The bits of a value in another format."""
    value = value_of(bits, source)
    if isinstance(value, float):
        if math.isnan(value):
            return NAN[target]
        return target.infinity | (int(value < 0) << (target.bits - 1))
    return round_to(value, target, mode, minus_zero=is_minus(bits, source))


def bfloat_bits(values: Array) -> Array:
    """Bits of bfloat16 for float values that it holds exactly."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    assert not (bits & 0xFFFF).any(), "not a bfloat16"
    return (bits >> 16).astype(np.uint16)
