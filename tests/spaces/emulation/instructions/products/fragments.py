"""Which elements of its matrices each thread of a warp holds for mma.sync.

Written from PTX ISA 9.1, 9.7.14.5.1 to 9.7.14.5.10 Matrix Fragments for mma. Of a thread's number
divided by 4, g is the quotient and t the rest: groupID and threadID_in_group there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tests.spaces.emulation.instructions.program import Array

Place = Callable[[Array, Array, Array], tuple[Array, Array]]
"""Row and column of element i: from group, member, i."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """The elements of a matrix that one thread holds, in the order of its registers."""

    elements: int
    place: Place

    def places(self) -> tuple[Array, Array]:
        """Rows and columns, by thread and element."""
        thread, i = np.meshgrid(np.arange(32), np.arange(self.elements), indexing="ij")
        return self.place(thread // 4, thread % 4, i)

    def deal(self, matrix: Array) -> Array:
        """The elements that each thread holds: (thread, element)."""
        return np.ascontiguousarray(matrix[self.places()])

    def gather(self, held: Array, shape: tuple[int, int]) -> Array:
        """The matrix of which threads hold these elements."""
        matrix = np.zeros(shape, held.dtype)
        matrix[self.places()] = held
        return matrix


def registers(held: Array) -> Array:
    """Elements of 8, 16 or 32 bits as words of 32: the first is the lowest."""
    return np.ascontiguousarray(held).view(np.uint32)


ACCUMULATOR = Fragment(4, lambda g, t, i: (g + 8 * (i // 2), t * 2 + i % 2))
"""C and D of all m16n8."""

ACCUMULATOR_8 = Fragment(2, lambda g, t, i: (g, t * 2 + i))
"""C and D of m8n8k16 and, for double precision, m8n8k4."""

A_M16K16 = Fragment(8, lambda g, t, i: (g + 8 * (i // 2 % 2), t * 2 + i % 2 + 8 * (i // 4)))
B_K16N8 = Fragment(4, lambda g, t, i: (t * 2 + i % 2 + 8 * (i // 2), g))
A_M16K8 = Fragment(4, lambda g, t, i: (g + 8 * (i // 2), t * 2 + i % 2))
B_K8N8 = Fragment(2, lambda g, t, i: (t * 2 + i, g))
A_M16K8_TF32 = Fragment(4, lambda g, t, i: (g + 8 * (i % 2), t + 4 * (i // 2)))
B_K8N8_TF32 = Fragment(2, lambda g, t, i: (t + 4 * i, g))
A_M16K4_TF32 = Fragment(2, lambda g, t, i: (g + 8 * i, t))
B_K4N8_TF32 = Fragment(1, lambda g, t, i: (t, g))
A_M16K32_S8 = Fragment(16, lambda g, t, i: (g + 8 * (i // 4 % 2), t * 4 + i % 4 + 16 * (i // 8)))
B_K32N8_S8 = Fragment(8, lambda g, t, i: (t * 4 + i % 4 + 16 * (i // 4), g))
A_M16K16_S8 = Fragment(8, lambda g, t, i: (g + 8 * (i // 4), t * 4 + i % 4))
B_K16N8_S8 = Fragment(4, lambda g, t, i: (t * 4 + i, g))
A_M8K16_S8 = Fragment(4, lambda g, t, i: (g, t * 4 + i))
A_M8K4_F64 = Fragment(1, lambda g, t, i: (g, t))
B_K4N8_F64 = Fragment(1, lambda g, t, i: (t, g))
