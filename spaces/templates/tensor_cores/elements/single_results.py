"""Results of products of single precision whose factors TF32 does not hold: summed again."""

from __future__ import annotations

from typing import Any

import numpy as np

from spaces.templates.products.grid import Part
from spaces.templates.products.source import Source
from spaces.templates.products.totals import Place
from spaces.templates.tensor_cores.elements.single_fragments import MOST
from spaces.templates.tensor_cores.results import Results

_WARP = 32
_ANY = "any_of_warp"
_ANY_CODE = f"""
static __device__ __forceinline__ int {_ANY}(int own) {{
  return __any_sync(0xffffffffu, own);
}}
"""


class SingleResults(Results):
    """See `Results`. A warp whose rows or columns have an element of `MOST` or more, an infinite
    one or NaN, adds up its results again, each term by itself."""

    def has_large(self, largest: Any) -> Any:
        """Whether any thread of a warp has loaded such an element.

        Args:
            largest: bits of the largest size that a thread has loaded.
        """
        T = self._t
        bits = int(np.float32(MOST).view(np.uint32))
        own = T.Cast("int32", largest >= T.uint32(bits))
        return T.cuda.func_call(_ANY, own, source_code=_ANY_CODE, return_type="int32") != 0

    def sum_again(
        self,
        lane: Any,
        sources: tuple[Source, Source],
        first: Place,
        sizes: tuple[int, int],
        terms: tuple[Any, Any],
        part: Part,
    ) -> None:
        """Sum and store the tile of a warp.

        Args:
            first: its first row and column; `sizes` how many there are.
            terms: the first term of the block, and how many it has, some perhaps beyond the last.
        """
        T = self._t
        total = T.alloc_buffer((1,), "float32", scope="local")
        with T.serial(sizes[0] * sizes[1] // _WARP) as turn:
            number = turn * _WARP + lane
            at = (first[0] + number // sizes[1], first[1] + number % sizes[1])
            with T.If(self._totals.is_inside(at)), T.Then():
                T.buffer_store(total, T.float32(0), [0])
                with T.serial(T.max(T.min(sources[0].terms - terms[0], terms[1]), 0)) as own:
                    term = terms[0] + own
                    left, right = (
                        side.read(row, term, part.batch)
                        for side, row in zip(sources, at, strict=True)
                    )
                    T.buffer_store(total, total[0] + left * right, [0])
                self._put(total[0], at, at, part, ())
