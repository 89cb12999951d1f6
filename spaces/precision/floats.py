"""Products in another float type, with sums in float32.

TVM's `ToMixedPrecision` knows float16 alone, rounds each sum to it, and goes on in it: what is
added to a product, and what follows, has eleven bits. Here only operands are rounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from spaces.frontends.precision import in_type
from spaces.ir import tvm_compat
from spaces.ir.element_types import WIDE, numpy_dtype
from spaces.lowering.relax_rewrite import constant, sum_in
from spaces.precision.products import Change

TYPES: Mapping[str, str] = MappingProxyType(
    {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}
)
"""Element types of operands, by precision."""


def in_float(dtype: str) -> Change:
    """A change of products to operands of a float type. One with a constant that is too large for
    the type stays as it is."""

    def change(builder: Any, product: Any, _place: int) -> Any:
        operands = [_as(builder, operand, dtype) for operand in product.args]
        if None in operands:
            return None
        sums = builder.emit(sum_in(product, operands, WIDE))
        return in_type(builder, sums, tvm_compat.param_dtype(product))

    return change


def _as(builder: Any, operand: Any, dtype: str) -> Any:
    """An operand in a type; None for a constant that it does not hold."""
    if not tvm_compat.is_constant(operand):
        return in_type(builder, operand, dtype)
    array = operand.value.numpy()
    with np.errstate(over="ignore"):
        made = array.astype(numpy_dtype(dtype))
    lost = np.isfinite(array.astype(WIDE)) & ~np.isfinite(made.astype(WIDE))
    return None if lost.any() else constant(made)
