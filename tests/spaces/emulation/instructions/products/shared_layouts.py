"""How wgmma's operands lie in shared memory, and the descriptors that say so.

PTX ISA 9.1, 9.7.15.5.1.2 Shared Memory Matrix Layout, .1 Major-ness supported by Strides and .2
Matrix Descriptor Format. Of each operand, rows run over M or N, columns over K.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tests.spaces.emulation.instructions.program import Array
from tests.spaces.emulation.instructions.swizzle import as_bytes, place, swizzle

MODES = {0: 0, 128: 1, 64: 2, 32: 3}
"""Of a descriptor's bits 62 and 63, by the swizzle's bytes."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where each byte of one operand is, and what its descriptor says.

    Attributes:
        addresses: of each byte, by line (a row of the operand; a column where `by_rows`) and byte.
        leading_bytes, stride_bytes: of the descriptor.
        step_bytes: from the descriptor's address for one instruction's K to that for the next.
    """

    addresses: Array
    leading_bytes: int
    stride_bytes: int
    swizzle_bytes: int
    step_bytes: int
    by_rows: bool

    @property
    def size(self) -> int:
        """Bytes from the operand's beginning to its end."""
        return int(self.addresses.max()) // 16 * 16 + 16

    def descriptor(self) -> int:
        """The descriptor's bits, but for the address (bits 0 to 13, in units of 16 bytes)."""
        fields = (self.leading_bytes >> 4 << 16) | (self.stride_bytes >> 4 << 32)
        return fields | MODES[self.swizzle_bytes] << 62

    def write(self, matrix: Array) -> Array:
        """Shared memory that holds the operand, from a multiple of 1024 on."""
        return place(as_bytes(matrix.T if self.by_rows else matrix), self.addresses, self.size)

    def read(self, image: Array, kind: np.dtype[np.generic]) -> Array:
        """The operand that shared memory holds."""
        lines = np.ascontiguousarray(image[self.addresses]).view(kind)
        return lines.T if self.by_rows else lines


def by_k(rows: int, row_bytes: int, swizzle_bytes: int) -> Layout:
    """K-major: the elements of a row follow each other. An instruction's K is 32 bytes.

    Without a swizzle, blocks of 8 rows and 16 bytes are contiguous; the leading dimension goes
    from one to the next along K, the stride to the next along M or N. With one, 8 rows of the
    swizzle's bytes are; the leading dimension is not used. Where a row is shorter than the swizzle,
    the rest of it is NaN.
    """
    row, byte = np.indices((rows, row_bytes))
    if swizzle_bytes == 0:
        stride = row_bytes // 16 * 128
        address = row // 8 * stride + byte // 16 * 128 + row % 8 * 16 + byte % 16
        return Layout(address, 128, stride, 0, 256, by_rows=False)
    assert row_bytes <= swizzle_bytes
    address = row // 8 * (8 * swizzle_bytes) + row % 8 * swizzle_bytes + byte
    swizzled = swizzle(address, swizzle_bytes)
    return Layout(swizzled, 16, 8 * swizzle_bytes, swizzle_bytes, 32, by_rows=False)


def by_rows(rows: int, row_bytes: int, swizzle_bytes: int) -> Layout:
    """M- or N-major: the elements of a column (one k) follow each other. 16-bit elements only.

    With a swizzle, 8 columns of the swizzle's bytes are contiguous; the leading dimension goes to
    the next such block along M or N, the stride to the next along K. Without one, blocks of 8
    columns and 16 bytes are; the leading dimension goes along K, the stride along M or N.
    """
    k, byte = np.indices((row_bytes // 2, rows * 2))
    width = swizzle_bytes or 16
    along_k = 8 * width
    along_rows = k.shape[0] // 8 * along_k
    address = byte // width * along_rows + k // 8 * along_k + k % 8 * width + byte % width
    leading, stride = (along_rows, along_k) if swizzle_bytes else (along_k, along_rows)
    swizzled = swizzle(address, swizzle_bytes)
    return Layout(swizzled, leading, stride, swizzle_bytes, 2 * along_k, by_rows=True)
