"""Matrix products whose weights are of 4 bits, in blocks with a scale each, as `MatMulNBits` has
them: packed in the module, and made floats of by a program of their own."""

from __future__ import annotations

from typing import Any

import numpy as np

from spaces.frontends.onnx.converters.elementwise.packed_codes import (
    Matrix,
    emit_matrix,
    pack,
)
from spaces.frontends.precision import in_type
from spaces.ir import tvm_compat
from spaces.ir.element_types import WIDE
from spaces.lowering.relax_rewrite import constant, sum_in
from spaces.precision.products import Array, is_matrix_product, weight_of

BLOCK = 32
"""Terms that share a scale."""
_MIDDLE = 8


def in_four_bits(builder: Any, product: Any, _place: int) -> Any:
    """A change of products: of matrices whose second operand is a constant matrix of at least a
    block of terms. Others stay as they are."""
    weight = weight_of(product) if is_matrix_product(product) else None
    if weight is None or weight.ndim != 2 or len(weight) < BLOCK:
        return None
    codes, scales = quantize(weight)
    rows = product.args[0]
    matrix = Matrix(pack(codes, "int4"), constant(scales), len(weight), len(codes), BLOCK)
    weights = emit_matrix(builder, matrix, tvm_compat.param_dtype(rows))
    sums = builder.emit(sum_in(product, [rows, weights], WIDE))
    return in_type(builder, sums, tvm_compat.param_dtype(product))


def quantize(weight: Array) -> tuple[Array, Array]:
    """The codes of a matrix of (terms, columns), and the scale of each block.

    The number of a block that is farthest from zero becomes -8, as onnxruntime's quantizer has it
    (`MatMulNBits`, symmetric), so that all sixteen codes are used.

    Returns:
        Codes from -8 to 7 of (columns, terms of whole blocks), in int32, and scales of (columns,
        blocks).
    """
    depth, columns = weight.shape
    spare = -depth % BLOCK
    blocks = np.pad(weight.T, ((0, 0), (0, spare))).reshape(columns, -1, BLOCK)
    farthest = np.argmax(np.abs(blocks), axis=-1, keepdims=True)
    scales = np.take_along_axis(blocks, farthest, axis=-1) / np.float32(-_MIDDLE)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        steps = np.where(scales == 0, 0, np.rint(blocks / scales))
    codes = np.clip(np.nan_to_num(steps), -_MIDDLE, _MIDDLE - 1).astype("int32")
    return codes.reshape(columns, -1), scales[..., 0].astype(WIDE)
