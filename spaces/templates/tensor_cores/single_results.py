"""Results of products of single precision whose factors TF32 does not hold: summed again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from spaces.templates.products.source import Source
from spaces.templates.tensor_cores.results import Place, Results
from spaces.templates.tensor_cores.single_fragments import MOST

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
        batch: Mapping[int, Any],
    ) -> None:
        """Sum and store the tile of a warp.

        Args:
            first: its first row and column; `sizes` how many there are.
        """
        T = self._t
        total = T.alloc_buffer((1,), "float32", scope="local")
        with T.serial(sizes[0] * sizes[1] // _WARP) as turn:
            number = turn * _WARP + lane
            at = (first[0] + number // sizes[1], first[1] + number % sizes[1])
            with T.If(self._is_inside(at)), T.Then():
                T.buffer_store(total, T.float32(0), [0])
                with T.serial(sources[0].terms) as term:
                    left, right = (
                        side.tensor[tuple(side.index(row, term, batch))]
                        for side, row in zip(sources, at, strict=True)
                    )
                    T.buffer_store(total, total[0] + left * right, [0])
                self._put(total[0], at, at, batch, ())
