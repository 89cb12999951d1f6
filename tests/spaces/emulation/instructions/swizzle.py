"""How tiles lie in shared memory under the swizzles of tensor copies and of wgmma.

PTX ISA 9.1, 5.5.7 Swizzling Modes and 9.7.15.5.1.2 Shared Memory Matrix Layout: the 16 bytes at
position i of a line of 128 bytes go to position i xor (line modulo 8) of the same line with 128
bytes; with 64 and 32 bytes, only the lowest two bits and the lowest bit of i change, by the lowest
bits of the line.
"""

from __future__ import annotations

import numpy as np

from tests.spaces.emulation.instructions.program import Array

_MASKS = {0: 0, 32: 1, 64: 3, 128: 7}


def swizzle(address: Array, swizzle_bytes: int) -> Array:
    """Where the byte at `address` goes; shared memory begins at a multiple of 1024."""
    line = address // 128
    return np.asarray(address ^ ((line & _MASKS[swizzle_bytes]) * 16))


def place(tile: Array, addresses: Array, size: int) -> Array:
    """Shared memory of `size` bytes that holds the bytes of `tile` at `addresses`.

    Bytes that nothing is at are 0xFF: a NaN for who reads them. Both arrays have one shape.
    """
    image = np.full(size, 0xFF, np.uint8)
    assert np.unique(addresses).size == addresses.size, "two bytes in one place"
    image[addresses] = tile
    return image


def as_bytes(matrix: Array) -> Array:
    """The bytes of each row of a matrix: one more column for each byte of an element."""
    rows = np.ascontiguousarray(matrix)
    return rows.view(np.uint8).reshape(rows.shape[0], -1)
