"""Products of a mixture of experts: each row is multiplied by the matrix of its own group.

    y[i, n] = sum over k of x[i, k] * w[groups[i], k, n]

Two programs: one finds the group of each row from where groups end, one multiplies. Rows of one
group that follow one another share their matrix in kernels; any order of them is right.
"""

from __future__ import annotations

from typing import Any

from spaces.ir import tvm_compat
from spaces.ir.element_types import HALVES, WIDE

GROUPED = "tuner.grouped"
"""Attribute of the program that multiplies."""


def emit_groups(builder: Any, ends: Any, rows: Any) -> Any:
    """The group of each row; the number of groups for rows beyond the last one's end.

    Args:
        ends: for each group the row after its last one, not falling.
        rows: how many there are.
    """
    from tvm import te

    def find(ends: Any, rows: Any) -> Any:
        group = te.reduce_axis((0, ends.shape[0]), "group")
        return te.compute(
            (rows,),
            lambda row: te.sum((ends[group] <= row.astype(ends.dtype)).astype("int32"), group),
            name="group_of_row",
        )

    return builder.emit_te(find, ends, rows, primfunc_name_hint="groups_of_rows")


def emit_grouped_product(builder: Any, rows: Any, weights: Any, groups: Any, dtype: str) -> Any:
    """Rows by the matrices of their groups, summed in float32 where elements are halves.

    Args:
        rows: (rows, terms); `weights` (groups, terms, columns), `groups` (rows).
        dtype: of the result. A row whose group there is none of has zeros.
    """
    said = {"primfunc_name_hint": "grouped_product", "primfunc_attrs": {GROUPED: True}}
    return builder.emit_te(multiply_groups, rows, weights, groups, dtype, **said)


def multiply_groups(rows: Any, weights: Any, groups: Any, dtype: str) -> Any:
    """The result, of tensors of TE as for `emit_grouped_product`."""
    from tvm import te, tirx

    count, depth, columns = weights.shape
    many = tirx.Cast(groups.dtype, count)
    sums = WIDE if rows.dtype in HALVES else rows.dtype
    term = te.reduce_axis((0, depth), "term")

    def multiply(row: Any, column: Any) -> Any:
        known = tirx.min(groups[row], many - 1)
        factors = rows[row, term], weights[known, term, column]
        left, right = (factor.astype(sums) for factor in factors)
        return te.sum(left * right, term)

    total = te.compute((rows.shape[0], columns), multiply, name="grouped_product")
    return te.compute(
        total.shape,
        lambda row, column: tirx.Select(
            groups[row] < many,
            total[row, column].astype(dtype),
            tirx.const(0, dtype),
        ),
        name="of_known_groups",
    )


def is_grouped(module: Any, call: Any) -> bool:
    """Whether a call is one of such a program."""
    if not tvm_compat.is_call_tir(call):
        return False
    return tvm_compat.attribute(module[call.args[0]], GROUPED) is not None
