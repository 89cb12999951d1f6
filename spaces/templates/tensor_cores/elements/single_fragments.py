"""Products of single precision as three of TF32 (PTX ISA, "Matrix Fragments for mma.m16n8k8").

A factor x is the sum of what TF32's 11 bits hold of it, and of what they hold of the rest: of 24
bits at most the last is lost, 2**-23 of x (`cvt.rna`, to the nearest). Sums take

    rest of a * b + a * rest of b + a * b

and lack the product of both rests, 2**-22 of a * b. So a product errs by 4 eps of itself at most,
by 0.6 eps in a root mean square over random bits. Rests of factors below 2**-103 lose more, down to
all of a factor below 2**-126; that is 2**-126 at most, and 2**-86 of what is summed, where all
factors are below `MOST`. Others are summed again, see
`spaces.templates.tensor_cores.elements.single_results`.

Tensor cores cut what they add, and would lose as many eps as they add up terms: instructions begin
from zero, and their sums are added in single precision, rounded to the nearest. In one of them,
whose products are exact, nine terms are cut at 2**-25 of the largest, and their sum to 24 bits: an
H100 did so (`benchmarks/results/gpu/instructions.json`, "groups of 8, 25 bits, rz"), and of an A100
it is known that terms lose less than 2**-23 of the largest (Fasi, Higham, Mikaitis, Pranesh,
"Numerical behavior of NVIDIA tensor cores", PeerJ Comput. Sci. 7, 2021). That is one eps of the sum
of eight terms and 2.25 eps of the largest.

What `spaces.check.error_bounds` allows a sum of K terms t in single precision is

    eps * (2 * sqrt(K * (S**2 / 3 + Q / 6)) + sqrt(K * Q)),    S = sum(t), Q = sum(t**2)

and so at least 1.8 eps * sqrt(K * Q). With errors that are independent, as it assumes, ours deviate
by sqrt(0.6**2 + 0.7**2) eps * sqrt(Q) from the above, and by additions of which there are an eighth
of those that are allowed for: from 16 terms on six deviations and more are allowed. Where all terms
are equal, and so their errors, these are 5.3 eps of S at most, and 5.7 are allowed for 16 terms.
With fewer the bounds may be too narrow: `LEAST_TERMS`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spaces.templates.tensor_cores.elements.tf32_fragments import Tf32Fragments

LEAST_TERMS = 16
"""Of a sum whose errors are within what is allowed in single precision."""
MOST = 2.0**40
"""Factors from which on rests are not what the bound takes them for; infinite ones, and NaN, have
none."""
_SPLIT = "split_float"
_SPLIT_CODE = f"""
static __device__ __forceinline__ void {_SPLIT}(unsigned bits, unsigned& near, unsigned& rest,
                                               unsigned& largest) {{
  unsigned size = bits & 0x7fffffffu;
  largest = size > largest ? size : largest;
  float value = __uint_as_float(bits);
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(near) : "f"(value));
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rest) : "f"(value - __uint_as_float(near)));
}}
"""


class SingleFragments(Tf32Fragments):
    """See `Fragments`: of each element what TF32 holds, and the same of the rest.

    Args:
        largest: one register, which has the bits of the largest size that was loaded.
    """

    registers = 8

    def __init__(self, T: Any, lane: Any, largest: Any) -> None:
        super().__init__(T, lane)
        self._largest = largest
        self._parts = T.alloc_buffer((4,), "float32", scope="local")

    def multiply(self, sums: Any, first: int, rows: Sequence[Any], columns: Any) -> None:
        """See `Fragments`."""
        T = self._t
        near, rest = rows[:4], rows[4:]
        for half in range(2):
            near_of_b, rest_of_b = (
                [columns[place + 2 * half], columns[place + 2 * half + 1]] for place in (0, 4)
            )
            before: list[Any] = [T.float32(0)] * 4
            own = [self._parts[i] for i in range(4)]
            for a, b in ((rest, near_of_b), (near, rest_of_b), (near, near_of_b)):
                T.evaluate(self._multiply(*own, *a, *b, *before))
                before = own
            for i in range(4):
                place = first + half * 4 + i
                T.buffer_store(sums, sums[place] + self._parts[i], [place])

    def _take(self, to: Any, first: int) -> None:
        """What was loaded, as registers from the first on, and their rests behind them."""
        T = self._t
        for i in range(4):
            near, rest = to[first + i], to[first + 4 + i]
            split = (self._raw[i], near, rest, self._largest[0])
            T.evaluate(T.cuda.func_call(_SPLIT, *split, source_code=_SPLIT_CODE))
