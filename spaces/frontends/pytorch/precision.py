"""The types that PyTorch computes in where an operator's own has too few digits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from spaces.ir import tvm_compat

Converter = Callable[[Any, Any], Any]
"""Gives an expression for a node and TVM's importer."""
NARROW = ("float16", "bfloat16")
"""Added up in float32 and then rounded, as PyTorch does."""
WIDE = "float32"


def wide_of(dtype: str) -> str:
    """The type that sums of elements of a type are accumulated in."""
    return WIDE if dtype in NARROW else dtype


def dtype_of_node(node: Any) -> str:
    """The element type that PyTorch says a node has."""
    return str(node.meta["val"].dtype).removeprefix("torch.")


def in_type(importer: Any, value: Any, dtype: str) -> Any:
    """A tensor in an element type."""
    from tvm import relax

    if tvm_compat.param_dtype(value) == dtype:
        return value
    return importer.block_builder.emit(relax.op.astype(value, dtype))
