"""Products of floats of 8 bits: as halves, which hold each of them, or as they are (PTX ISA,
"Matrix Fragments for mma.m16n8k16", "m16n8k32", "cvt").

Instructions on 8 bits add up in fewer bits than float32 has. It is assumed that one cuts each of
its 32 products and the sum before at 2**-13 of the largest of these, where a product counts as its
factors' exponents say, and their sum to 13 bits behind the first. Of Hopper about 14 bits are known
(DeepSeek-AI, "DeepSeek-V3 Technical Report", arXiv 2412.19437, 3.3.2), of Ada 13 (Zhang et al.,
"SageAttention2", arXiv 2411.10958).

What `spaces.check.error_bounds` allows a sum of K terms t, with Q = sum(t**2), is at least

    1.8 eps * sqrt(K * Q).

A product counts 8 times as large as it is at most, since a factor below the smallest normal number
counts as that; where both factors are that small nothing is lost. So one instruction of 32 terms
that begins from zero loses at most

    (32 * 8 + sqrt(32)) * 2**-13    times sqrt(Q),

and of four in a row, whose sums before are at most sqrt(32 * n * Q) after n of them, all

    (33 * (8 + 8 + 8 + 9.8) + 5.7 + 8 + 9.8 + 11.3) * 2**-13    times sqrt(Q).

Sums in bfloat16, with eps = 2**-7, are allowed 10.2 eps after 32 terms and may lose 4.1; after 128
they are allowed 20.5 eps and may lose 18.0; of more they may lose too much. What longer sums may
lose grows as what they are allowed, as sqrt(K), where sums leave the tensor cores after so many
terms. Sums in float16, with eps = 2**-10, may lose 33 eps after 32 terms, and in float32 more:
however often sums leave the tensor cores, that is too much.

So only sums in bfloat16 are left to these instructions, and begin from zero: each of a warp, and
each fourth of a warpgroup. All others are products of halves, summed as those are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spaces.templates.tensor_cores.elements.byte_fragments import ByteFragments
from spaces.templates.tensor_cores.operand import Operand
from spaces.templates.tensor_cores.tile import HALVES, element_of

_HALF = "float16"
_WIDEN_CODE = """
static __device__ __forceinline__ void {name}(unsigned four, unsigned& low, unsigned& high) {{
  unsigned short lower = four & 0xffffu, upper = four >> 16;
  asm("cvt.rn.f16x2.{kind}x2 %0, %1;" : "=r"(low) : "h"(lower));
  asm("cvt.rn.f16x2.{kind}x2 %0, %1;" : "=r"(high) : "h"(upper));
}}
"""


class WidenedFragments(ByteFragments):
    """See `Fragments`: of four elements in a register two pairs of halves. Instructions take the
    lower pairs of both operands for their first terms, and the upper ones for their later terms."""

    registers = 8

    def __init__(self, T: Any, kind: str, lane: Any, kind_of_columns: str) -> None:
        super().__init__(T, kind, lane, kind_of_columns)
        name = HALVES.names[_HALF]
        self._multiply = T.ptx[
            f"mma.sync.aligned.m16n8k{HALVES.terms}.row.col.f32.{name}.{name}.f32"
        ]
        self._raw = T.alloc_buffer((4,), "uint32", scope="local")

    def multiply(self, sums: Any, first: int, rows: Sequence[Any], columns: Any) -> None:
        """See `Fragments`."""
        for half in range(2):
            own = [sums[first + half * 4 + i] for i in range(4)]
            for part in range(2):
                place = 4 * half + 2 * part
                factors = [*rows[4 * part : 4 * part + 4], columns[place], columns[place + 1]]
                self._t.evaluate(self._multiply(*own, *factors, *own))

    def load_rows(
        self, side: Operand, to: Any, first: int, stage: Any, row: Any, term: Any
    ) -> None:
        """See `Fragments`: four registers for each instruction."""
        super().load_rows(side, self._raw, 0, stage, row, term)
        for i, part in enumerate((0, 0, 1, 1)):
            place = first + 4 * part + i % 2
            self._widen(side, self._raw[i], to[place], to[place + 2])

    def load_columns(self, side: Operand, to: Any, stage: Any, column: Any, term: Any) -> None:
        """See `Fragments`: of eight columns two registers for each instruction, then of the
        others."""
        super().load_columns(side, self._raw, stage, column, term)
        for i in range(4):
            self._widen(side, self._raw[i], to[2 * i], to[2 * i + 1])

    def _widen(self, side: Operand, four: Any, low: Any, high: Any) -> None:
        """Four elements as halves."""
        kind = element_of(side.source.kind).names[side.source.kind]
        name = f"widen_{kind}"
        code = _WIDEN_CODE.format(name=name, kind=kind)
        self._t.evaluate(self._t.cuda.func_call(name, four, low, high, source_code=code))


class RoughFragments(ByteFragments):
    """See `Fragments`: each instruction's sums begin from zero, and are added in float32."""

    def __init__(self, T: Any, kind: str, lane: Any, kind_of_columns: str) -> None:
        super().__init__(T, kind, lane, kind_of_columns)
        self._parts = T.alloc_buffer((4,), "float32", scope="local")

    def multiply(self, sums: Any, first: int, rows: Sequence[Any], columns: Any) -> None:
        """See `Fragments`."""
        T = self._t
        for half in range(2):
            own = [self._parts[i] for i in range(4)]
            others = [columns[2 * half], columns[2 * half + 1]]
            T.evaluate(self._multiply(*own, *rows, *others, *([T.float32(0)] * 4)))
            for i in range(4):
                place = first + half * 4 + i
                T.buffer_store(sums, sums[place] + self._parts[i], [place])
