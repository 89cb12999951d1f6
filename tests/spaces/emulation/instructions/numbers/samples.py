"""Numbers to try arithmetic with: all that is special about a format, and random bits."""

from __future__ import annotations

import numpy as np

from tests.spaces.emulation.instructions.program import Array

_HALF_BITS = [
    *(0x0000, 0x8000, 0x0001, 0x8001, 0x0002, 0x03FF, 0x83FF, 0x0400, 0x8400, 0x0401, 0x07FF),
    *(0x3BFF, 0x3C00, 0xBC00, 0x3C01, 0x3555, 0x4248, 0x6800, 0x6801, 0x7BFF, 0xFBFF),
    *(0x7C00, 0xFC00, 0x7E00, 0xFE01, 0x7C01),
]
_BFLOAT_BITS = [
    *(0x0000, 0x8000, 0x0001, 0x8001, 0x007F, 0x807F, 0x0080, 0x8080, 0x0081, 0x3F7F, 0x3F80),
    *(0xBF80, 0x3F81, 0x3EAB, 0x4049, 0x4380, 0x4381, 0x7F7F, 0xFF7F),
    *(0x7F80, 0xFF80, 0x7FC0, 0xFFC1, 0x7F81),
]


def halves(rng: np.random.Generator, count: int) -> Array:
    """Bits of float16: all pairs of special ones come up where two such arrays are used."""
    return _mix(_HALF_BITS, rng, count)


def bfloats(rng: np.random.Generator, count: int) -> Array:
    """Bits of bfloat16."""
    return _mix(_BFLOAT_BITS, rng, count)


def _mix(special: list[int], rng: np.random.Generator, count: int) -> Array:
    bits = rng.integers(0, 1 << 16, count, np.uint16)
    chosen = rng.integers(0, len(special), count)
    return np.where(rng.random(count) < 0.4, np.array(special, np.uint16)[chosen], bits)


def singles_near(special: Array) -> Array:
    """Bits of float32 at the values of a narrow format, between two of them, and next to both.

    Ties and their neighbours, subnormals, the last before an overflow and the first after.

    Args:
        special: finite numbers of the narrow format, as float32, ascending.
    """
    middle = ((special[:-1].astype(np.float64) + special[1:]) / 2).astype(np.float32)
    around = [special, middle]
    for values in (special, middle):
        around += [np.nextafter(values, np.float32(limit)) for limit in (-np.inf, np.inf)]
    extra = np.array([np.inf, -np.inf, np.nan, 1e-45, -1e-45, 3e38, -3.4e38, 0.0, -0.0], np.float32)
    return np.concatenate([*around, extra]).view(np.uint32)
