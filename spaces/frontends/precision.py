"""Types that values are computed in where an operator's own has too few digits for it."""

from __future__ import annotations

from typing import Any

from spaces.ir import tvm_compat
from spaces.ir.element_types import HALVES, WIDE


def wide_of(dtype: str) -> str:
    """The type that sums of elements of a type are accumulated in."""
    return WIDE if dtype in HALVES else dtype


def in_type(builder: Any, tensor: Any, dtype: str) -> Any:
    """A tensor in an element type."""
    from tvm import relax

    if tvm_compat.param_dtype(tensor) == dtype:
        return tensor
    return builder.emit(relax.op.astype(tensor, dtype))
