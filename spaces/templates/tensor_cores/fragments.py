"""What a warp's threads have of a tile for one instruction (PTX ISA, "ldmatrix", "Matrix Fragments
for mma.m16n8k8", "m16n8k16", "m16n8k32")."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spaces.templates.products.layout import UNIT
from spaces.templates.tensor_cores.operand import Operand
from spaces.templates.tensor_cores.tile import element_of

_ROUND = {
    "float16": ("__half2", "__floats2half2_rn"),
    "bfloat16": ("__nv_bfloat162", "__floats2bfloat162_rn"),
}
EACH = 8
"""Rows of each of the four matrices that `ldmatrix` loads, of 16 bytes each."""


class Fragments:
    """Loads of matrices from shared memory into registers, 16 rows or columns by the terms of an
    instruction each, and products of them.

    Args:
        T: TVM's script.
        kind: type of elements.
        lane: the thread's number in its warp.
        kind_of_columns: type of B's elements where it is another.
    """

    registers = 4
    """Of 16 rows, or columns, in each thread."""

    def __init__(self, T: Any, kind: str, lane: Any, kind_of_columns: str | None = None) -> None:
        self._t, self._kind, self._lane = T, kind, lane
        element = element_of(kind)
        kinds = [element.names[one] for one in (kind, kind_of_columns or kind)]
        sums = {"float32": "f32", "uint32": "s32"}[element.sums]
        name = f"m16n8k{element.terms}.row.col.{sums}.{'.'.join(kinds)}.{sums}"
        self._multiply = T.ptx[f"mma.sync.aligned.{name}"]
        self._within, self._second = lane % EACH, lane // EACH % 2
        self._third = lane // (2 * EACH)
        self._later = UNIT // element.bytes

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
        below, later = self._second * EACH, self._third * self._later
        self._load(side, to, first, stage, (row + below, term + later))

    def load_columns(self, side: Operand, to: Any, stage: Any, column: Any, term: Any) -> None:
        """Columns of B: matrices of the later terms, then those of the next columns."""
        later, beside = self._second * self._later, self._third * EACH
        self._load(side, to, 0, stage, (column + beside, term + later))

    def _load(self, side: Operand, to: Any, first: int, stage: Any, at: tuple[Any, Any]) -> None:
        """Matrices whose rows are those of an operand, or, turned, terms of halves."""
        turned = side.source.turned
        row, term = at
        place = (row, term + self._within) if turned else (row + self._within, term)
        self._load_matrices(side, to, first, stage, place, turned=turned)

    def _load_matrices(
        self,
        side: Operand,
        to: Any,
        first: int,
        stage: Any,
        place: tuple[Any, Any],
        *,
        turned: bool,
    ) -> None:
        """Four matrices, of whose rows each thread has one at a place."""
        turn = ".trans" if turned else ""
        load = self._t.ptx[f"ldmatrix.sync.aligned.m8n8.x4{turn}.shared.b16"]
        where = side.stages.ptr_to([stage, side.offset(*place)])
        self._t.evaluate(load(*(to[first + i] for i in range(4)), where))


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
