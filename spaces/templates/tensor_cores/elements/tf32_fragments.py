"""What a warp's threads have of a tile of single precision for one instruction, as TF32 (PTX ISA,
"Matrix Fragments for mma.m16n8k8", "cvt.rna.tf32"): each element rounded to the nearest.

What products then err by is in `spaces.check.errors.tf32`. The largest numbers of float32, from
2**128 - 2**116 on, become infinite.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spaces.templates.products.totals import Place
from spaces.templates.tensor_cores.fragments import EACH, Fragments
from spaces.templates.tensor_cores.operand import Operand
from spaces.templates.tensor_cores.tile import TF32

_ROUND = "round_to_tf32"
_ROUND_CODE = f"""
static __device__ __forceinline__ void {_ROUND}(unsigned bits, unsigned& near) {{
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(near) : "f"(__uint_as_float(bits)));
}}
"""


class Tf32Fragments(Fragments):
    """See `Fragments`."""

    def __init__(self, T: Any, lane: Any) -> None:
        (kind,) = TF32.names
        super().__init__(T, kind, lane)
        self._raw = T.alloc_buffer((4,), "uint32", scope="local")

    def load_rows(
        self, side: Operand, to: Any, first: int, stage: Any, row: Any, term: Any
    ) -> None:
        """See `Fragments`."""
        if side.source.turned:
            later = self._later
            places = [(0, 0), (EACH, 0), (0, later), (EACH, later)]
            self._load_words(side, to, first, stage, (row, term), places)
        else:
            super().load_rows(side, to, first, stage, row, term)

    def load_columns(self, side: Operand, to: Any, stage: Any, column: Any, term: Any) -> None:
        """See `Fragments`."""
        if side.source.turned:
            later = self._later
            places = [(0, 0), (0, later), (EACH, 0), (EACH, later)]
            self._load_words(side, to, 0, stage, (column, term), places)
        else:
            super().load_columns(side, to, stage, column, term)

    def _load(self, side: Operand, to: Any, first: int, stage: Any, at: Place) -> None:
        """Rows of four terms: `ldmatrix` takes each for two halves."""
        super()._load(side, self._raw, 0, stage, at)
        self._take(to, first)

    def _load_words(
        self,
        side: Operand,
        to: Any,
        first: int,
        stage: Any,
        at: Place,
        places: Sequence[tuple[int, int]],
    ) -> None:
        """Rows that lie next to one another.

        Args:
            places: rows and terms from which on each register has one of eight by four.
        """
        T = self._t
        row, term = at[0] + self._lane // 4, at[1] + self._lane % 4
        for i, (below, later) in enumerate(places):
            element = side.stages[stage, side.offset(row + below, term + later)]
            T.buffer_store(self._raw, T.reinterpret("uint32", element), [i])
        self._take(to, first)

    def _take(self, to: Any, first: int) -> None:
        """What was loaded, in TF32, as registers from the first on."""
        T = self._t
        for i in range(4):
            call = T.cuda.func_call(_ROUND, self._raw[i], to[first + i], source_code=_ROUND_CODE)
            T.evaluate(call)
