"""Products and convolutions of 8-bit integers: `ConvInteger`, `QLinearConv`, `QLinearMatMul`.

Operands are widened to 32 bits and freed of their zero points, so sums are exact and padding is 0.
What is quantized again is rounded to the nearest, ties to even, as ONNX has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from spaces.frontends.onnx.node import Convert, Node

_BYTES = ("int8", "uint8")
_WIDE, _REAL = "int32", "float32"


def _centred(node: Node, builder: Any, number: int, zero: int, axes: int = 0) -> Any:
    """What an operand stands for, in 32 bits.

    Args:
        zero: number of the operand that is its zero point.
        axes: after the one that a zero point of several numbers is for.
    """
    value, point = node.input(number), node.input(zero)
    if value is None or value.dtype not in _BYTES:
        found = "missing" if value is None else value.dtype
        raise node.refused(f"its operand {number} is {found}, and has to be of 8-bit integers")
    wide = builder.emit(value.tensor(builder).astype(_WIDE))
    if point is None:
        return wide
    place = _along(builder, builder.emit(point.tensor(builder).astype(_WIDE)), axes)
    return builder.emit(wide - place)


def _along(builder: Any, numbers: Any, axes: int) -> Any:
    """Numbers of an axis that others follow; one number stays as it is."""
    from tvm import relax

    if not axes or not numbers.ty.shape.values:
        return numbers
    return builder.emit(relax.op.reshape(numbers, [-1, *[1] * axes]))


def _convolved(node: Node, builder: Any, data: Any, weight: Any) -> Any:
    from tvm import relax

    rank = len(weight.ty.shape.values) - 2
    said = node.attributes
    if said.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID") or rank not in (1, 2, 3):
        raise node.refused("it says its padding by auto_pad, or has another number of axes")
    convolve = getattr(relax.op.nn, f"conv{rank}d")
    return builder.emit(
        convolve(
            data,
            weight,
            strides=list(said.get("strides", [1] * rank)),
            padding=list(said.get("pads", [0] * 2 * rank)),
            dilation=list(said.get("dilations", [1] * rank)),
            groups=said.get("group", 1),
            out_dtype=_WIDE,
        )
    )


def _requantized(node: Node, builder: Any, total: Any, scales: tuple[Any, Any], out: int) -> Any:
    """Sums of 32 bits as bytes again.

    Args:
        scales: of the two factors, in the shape that they multiply sums in.
        out: number of the operand that is the scale of the result; its zero point is the next.
    """
    from tvm import relax

    emit = builder.emit
    scale, point = node.input(out), node.input(out + 1)
    if scale is None or point is None:
        raise node.refused("it does not say how its result is quantized")
    factor = emit(emit(scales[0] * scales[1]) / scale.tensor(builder))
    exact = emit(emit(total.astype(_REAL)) * factor)
    half = relax.const(np.float32(0.5))
    two = relax.const(np.float32(2))
    apart = emit(relax.op.abs(emit(exact - emit(relax.op.trunc(exact)))))
    even = emit(emit(relax.op.round(emit(exact / two))) * two)
    rounded = emit(relax.op.where(emit(relax.op.equal(apart, half)), even, relax.op.round(exact)))
    moved = emit(rounded + emit(point.tensor(builder).astype(_REAL)))
    limits = np.iinfo(point.dtype)
    return emit(
        emit(relax.op.clip(moved, float(limits.min), float(limits.max))).astype(point.dtype)
    )


def _scale(node: Node, builder: Any, number: int, axes: int = 0) -> Any:
    value = node.input(number)
    if value is None:
        raise node.refused("it does not say how its operands are quantized")
    return _along(builder, value.tensor(builder), axes)


def _conv_integer(node: Node, builder: Any) -> Any:
    weight = node.input(1)
    axes = 0 if weight is None or weight.dims is None else len(weight.dims) - 1
    data, kernel = _centred(node, builder, 0, 2), _centred(node, builder, 1, 3, axes)
    return _convolved(node, builder, data, kernel)


def _quantized_conv(node: Node, builder: Any) -> Any:
    from tvm import relax

    weight = node.input(3)
    rank = 0 if weight is None or weight.dims is None else len(weight.dims)
    data, kernel = _centred(node, builder, 0, 2), _centred(node, builder, 3, 5, rank - 1)
    total = _convolved(node, builder, data, kernel)
    if (bias := node.input(8)) is not None:
        spread = builder.emit(relax.op.reshape(bias.tensor(builder), [1, -1, *[1] * (rank - 2)]))
        total = builder.emit(total + spread)
    scales = _scale(node, builder, 1), _scale(node, builder, 4, rank - 2)
    return _requantized(node, builder, total, scales, 6)


def _quantized_product(node: Node, builder: Any) -> Any:
    from tvm import relax

    left, right = _centred(node, builder, 0, 2, 1), _centred(node, builder, 3, 5)
    total = builder.emit(relax.op.matmul(left, right, out_dtype=_WIDE))
    scales = _scale(node, builder, 1, 1), _scale(node, builder, 4)
    return _requantized(node, builder, total, scales, 6)


QUANTIZED: Mapping[str, Convert] = MappingProxyType(
    {
        "ConvInteger": _conv_integer,
        "QLinearConv": _quantized_conv,
        "QLinearMatMul": _quantized_product,
    }
)
