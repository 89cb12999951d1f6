"""Types that values are computed in where an operator's own has too few digits for it."""

from __future__ import annotations

from typing import Any

from spaces.frontends.onnx.node import Node
from spaces.ir import tvm_compat

NARROW = ("float16", "bfloat16")
"""Types whose sums are accumulated in float32 and then rounded, as onnxruntime does."""
WIDE = "float32"


def wide_of(dtype: str) -> str:
    """The type that sums of elements of a type are accumulated in."""
    return WIDE if dtype in NARROW else dtype


def in_type(builder: Any, tensor: Any, dtype: str) -> Any:
    """A tensor in an element type."""
    from tvm import relax

    if tvm_compat.param_dtype(tensor) == dtype:
        return tensor
    return builder.emit(relax.op.astype(tensor, dtype))


def rank_of(node: Node, number: int = 0) -> int:
    """Number of axes of an operand.

    Raises:
        TunerError: it is not known.
    """
    value = node.given(number)
    if value.dims is not None:
        return len(value.dims)
    rank = int(getattr(getattr(value.expression, "ty", None), "ndim", -1))
    if rank < 0:
        raise node.refused(f"the rank of its operand {number} is not known")
    return rank


def axis_within(node: Node, axis: int, rank: int) -> int:
    """An axis counted from the front.

    Raises:
        TunerError: there is no such axis.
    """
    if not -rank <= axis < max(rank, 1):
        raise node.refused(f"its axis {axis} is none of {rank}")
    return axis % max(rank, 1)
