"""What a warp's threads have of a tile for one instruction (PTX ISA, "ldmatrix",
"Matrix Fragments for mma.m16n8k16")."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spaces.templates.tensor_cores.operand import Operand
from spaces.templates.tensor_cores.tile import KINDS

_ROUND = {
    "float16": ("__half2", "__floats2half2_rn"),
    "bfloat16": ("__nv_bfloat162", "__floats2bfloat162_rn"),
}
EACH = 8
"""Rows and elements of each of the four matrices that `ldmatrix` loads."""


class Fragments:
    """Loads of matrices from shared memory into registers, 16 rows or columns by 16 terms each, and
    products of them.

    Args:
        T: TVM's script.
        kind: type of elements.
        lane: the thread's number in its warp.
    """

    def __init__(self, T: Any, kind: str, lane: Any) -> None:
        self._t, self._kind = T, kind
        name = f"m16n8k16.row.col.f32.{KINDS[kind]}.{KINDS[kind]}.f32"
        self._multiply = T.ptx[f"mma.sync.aligned.{name}"]
        self._within, self._second = lane % EACH, lane // EACH % 2 * EACH
        self._third = lane // (2 * EACH) * EACH

    def multiply(self, sums: Any, first: int, rows: Sequence[Any], columns: Any) -> None:
        """Add the products of 16 rows and 16 columns to the eight sums from the first on.

        Args:
            rows: four registers; `columns` a buffer of four.
        """
        for half in range(2):
            own = [sums[first + half * 4 + i] for i in range(4)]
            others = [columns[2 * half], columns[2 * half + 1]]
            self._t.evaluate(self._multiply(*own, *rows, *others, *own))

    def load_rows(
        self, side: Operand, to: Any, first: int, stage: Any, row: Any, term: Any
    ) -> None:
        """Rows of A: matrices of 8 rows, then those of the later terms."""
        below, later = self._second, self._third
        self._load(side, to, first, stage, (row + below, term + later))

    def load_columns(self, side: Operand, to: Any, stage: Any, column: Any, term: Any) -> None:
        """Columns of B: matrices of the later terms, then those of the next columns."""
        later, beside = self._second, self._third
        self._load(side, to, 0, stage, (column + beside, term + later))

    def _load(self, side: Operand, to: Any, first: int, stage: Any, at: tuple[Any, Any]) -> None:
        T, turned = self._t, side.source.turned
        turn = ".trans" if turned else ""
        load = T.ptx[f"ldmatrix.sync.aligned.m8n8.x4{turn}.shared.b16"]
        row, term = at
        place = (row, term + self._within) if turned else (row + self._within, term)
        where = side.stages.ptr_to([stage, side.offset(*place)])
        T.evaluate(load(*(to[first + i] for i in range(4)), where))


def round_pair(T: Any, kind: str, low: Any, high: Any) -> Any:
    """Two numbers in float32 as elements next to each other in a register."""
    pair, convert = _ROUND[kind]
    name = f"round_to_{kind}s"
    code = f"""
static __device__ __forceinline__ unsigned {name}(float low, float high) {{
  {pair} both = {convert}(low, high);
  return *reinterpret_cast<unsigned*>(&both);
}}
"""
    return T.cuda.func_call(name, low, high, source_code=code, return_type="uint32")
