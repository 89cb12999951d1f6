"""Products of bytes: weights with a scale for each output channel, rows with one for the tensor.

Both are symmetric: zero stands for zero, so that padding stays what it is, and sums need no
correction. Sums are exact, in 32 bits. Rows that were never seen below zero are of uint8.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from spaces.frontends.precision import in_type
from spaces.ir import tvm_compat
from spaces.ir.element_types import WIDE
from spaces.lowering.relax_rewrite import constant, sum_in
from spaces.precision.products import Array, Change, is_matrix_product, weight_of

_MOST = 127
_SUMS = "int32"
_LONGEST = (1 << 31) // (255 * _MOST)
"""The terms of a sum that 32 bits hold, whatever its factors are."""
Ranges = Sequence[tuple[float, float]]


def in_eight_bits(ranges: Ranges) -> Change:
    """A change of products with constant weights. Others stay as they are.

    Args:
        ranges: of their first operands, by place; empty where each tensor is scaled by the largest
            number in it.
    """

    def change(builder: Any, product: Any, place: int) -> Any:
        from tvm import relax

        weight = weight_to_round(product)
        if weight is None:
            return None
        rows = in_type(builder, product.args[0], WIDE)
        codes, scales = quantize(weight, product)
        if ranges:
            bytes_, by = _scaled_by(builder, rows, *ranges[place])
            factor = constant((scales * by).astype(WIDE))
        else:
            bytes_, largest = _scaled_by_largest(builder, rows)
            factor = builder.emit(relax.op.multiply(constant(scales), largest))
        sums = builder.emit(sum_in(product, [bytes_, constant(codes)], _SUMS))
        real = builder.emit(relax.op.multiply(in_type(builder, sums, WIDE), factor))
        return in_type(builder, real, tvm_compat.param_dtype(product))

    return change


def weight_to_round(product: Any) -> Array | None:
    """The weights of a product that can be of bytes: constant, a matrix or a kernel with its output
    channels first, and few enough terms that their sums fit into 32 bits. None of any other."""
    weight = weight_of(product)
    if weight is None:
        return None
    if is_matrix_product(product):
        known = weight.ndim == 2 and len(weight) <= _LONGEST
    else:
        kernel = str(product.attrs.kernel_layout)
        first = kernel.startswith("OI") and str(product.attrs.data_layout).startswith("NC")
        known = first and weight[0].size <= _LONGEST
    return weight if known and weight.size else None


def quantize(weight: Array, product: Any) -> tuple[Array, Array]:
    """Weights as bytes from -127 to 127, and the scale of each output channel, in the shape that it
    multiplies sums in."""
    matrix = is_matrix_product(product)
    over = 0 if matrix else tuple(range(1, weight.ndim))
    largest = np.abs(weight).max(axis=over, keepdims=True)
    scales = np.where(largest == 0, 1, largest / _MOST).astype(WIDE)
    with np.errstate(over="ignore"):
        codes = np.clip(np.rint(weight / scales), -_MOST, _MOST).astype("int8")
    shape = (-1,) if matrix else (1, -1, *[1] * (weight.ndim - 2))
    return codes, scales.reshape(shape)


def _scaled_by(builder: Any, rows: Any, low: float, high: float) -> tuple[Any, float]:
    """Rows as bytes by a range that was seen, and their scale; what is beyond it is cut off."""
    dtype, most = ("uint8", 255) if low >= 0 else ("int8", _MOST)
    largest = max(-low, high)
    scale = float(np.float32(largest / most)) or 1.0
    # A tensor, since a number would make a program of its own for each product.
    by = constant(np.array([1 / scale], WIDE))
    return _rounded(builder, rows, by, 0 if low >= 0 else -_MOST, most, dtype), scale


def _scaled_by_largest(builder: Any, rows: Any) -> tuple[Any, Any]:
    """Rows as bytes by the largest number in them, and their scale."""
    from tvm import relax

    emit, op = builder.emit, relax.op
    zero, one, most = (relax.const(number, WIDE) for number in (0.0, 1.0, float(_MOST)))
    largest = emit(op.max(emit(op.abs(rows))))
    scale = emit(op.where(emit(op.equal(largest, zero)), one, emit(op.divide(largest, most))))
    by = emit(op.divide(one, scale))
    return _rounded(builder, rows, by, -_MOST, _MOST, "int8"), scale


def _rounded(builder: Any, rows: Any, by: Any, least: int, most: int, dtype: str) -> Any:
    from tvm import relax

    emit, op = builder.emit, relax.op
    rounded = emit(op.round(emit(op.multiply(rows, by))))
    return emit(op.astype(emit(op.clip(rounded, float(least), float(most))), dtype))
