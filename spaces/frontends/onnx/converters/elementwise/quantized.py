"""Products and convolutions of 8-bit integers: `ConvInteger`, `MatMulInteger`, `QLinearConv` and
`QLinearMatMul`.

A sum of (a - p)(w - q), with zero points p and q, is sum(aw) - p sum(w) - q sum(a) + kpq. So the
bytes are multiplied as they are, which is what CPUs have instructions for, and sums of the weights
are worked out while the model is imported. Sums are of 32 bits and exact. Where the weights of a
convolution are not known, or have a zero point other than 0, its operands are widened instead and
freed of their zero points.
What is quantized again is rounded to the nearest, ties to even, as ONNX has it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from spaces.frontends.onnx.converters.elementwise.linear import LINEAR, as_tensor
from spaces.frontends.onnx.node import Convert, Node
from spaces.ir import tvm_compat

_BYTES = ("int8", "uint8")
_WIDE, _REAL = "int32", "float32"
_GROUP = 4
"""Bytes that are multiplied and summed up at once."""


@dataclass(frozen=True, slots=True)
class _Bytes:
    """An operand of 8-bit integers.

    Attributes:
        tensor: as it is.
        point: what stands for zero, of 32 bits, in a shape that is taken off the tensor; None is 0.
    """

    tensor: Any
    point: Any

    def centred(self, builder: Any) -> Any:
        """What it stands for, in 32 bits."""
        wide = builder.emit(self.tensor.astype(_WIDE))
        return wide if self.point is None else builder.emit(wide - self.point)

    @property
    def known_point(self) -> int | None:
        """The one number that stands for zero; None where there are several, or it is not known."""
        if self.point is None:
            return 0
        if not tvm_compat.is_constant(self.point):
            return None
        numbers = np.unique(self.point.value.numpy())
        return int(numbers[0]) if len(numbers) == 1 else None


def _operand(node: Node, builder: Any, number: int, shape: Sequence[int]) -> _Bytes:
    """An operand with its zero point, which follows it in a distance of two.

    Args:
        shape: of a zero point of several numbers, to be taken off the operand.
    """
    value, point = node.input(number), node.input(number + 2)
    if value is None or value.dtype not in _BYTES:
        found = "missing" if value is None else value.dtype
        raise node.refused(f"its operand {number} is {found}, and has to be of 8-bit integers")
    tensor = value.tensor(builder)
    if point is None:
        return _Bytes(tensor, None)
    numbers = _wide(builder, _along(builder, point.tensor(builder), shape))
    return _Bytes(tensor, as_tensor(numbers))


def _wide(builder: Any, expression: Any) -> Any:
    """In 32 bits; a constant stays one."""
    from tvm import relax

    if tvm_compat.is_constant(expression):
        return relax.const(expression.value.numpy().astype(_WIDE))
    return builder.emit(expression.astype(_WIDE))


def _along(builder: Any, numbers: Any, shape: Sequence[int]) -> Any:
    """A vector in a shape, one number alone; what has more axes is in its shape already."""
    from tvm import relax

    dims = tvm_compat.tensor_dims(numbers) or []
    if len(dims) != 1:
        return numbers
    wanted = [] if tvm_compat.as_int(dims[0]) == 1 else [*shape]
    if tvm_compat.is_constant(numbers):
        return relax.const(numbers.value.numpy().reshape(wanted))
    return builder.emit(relax.op.reshape(numbers, wanted))


def _convolve(node: Node, builder: Any, kernel: int) -> tuple[Any, Any]:
    """The sums of a convolution of operand 0 with another one, its weights, and an array that is to
    be added to them; None for nothing.

    What it is padded with stands for zero. A zero point that is known and not 0 is laid around the
    bytes. For one that is not known zeros are, and it is taken off as often as an output's weights
    met no padding. Channels are made up to groups of four, for which there is one instruction.
    """
    from tvm import relax

    weight = node.input(kernel)
    rank = 0 if weight is None or weight.dims is None else len(weight.dims) - 2
    said = node.attributes
    if said.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID") or rank not in (1, 2, 3):
        raise node.refused("it says its padding by auto_pad, or has another number of axes")
    data = _operand(node, builder, 0, [])
    weights = _operand(node, builder, kernel, [-1, *[1] * (rank + 1)])
    padding = [int(p) for p in said.get("pads", [0] * 2 * rank)]
    if weights.known_point != 0 or not tvm_compat.is_constant(weights.tensor):
        centred = data.centred(builder), weights.centred(builder)
        return _windows(node, builder, *centred, padding), None
    point, kernel_of = data.known_point, weights.tensor
    missing = -kernel_of.value.numpy().shape[1] % _GROUP if said.get("group", 1) == 1 else 0
    if missing:
        kernel_of = relax.const(_with_channels(kernel_of.value.numpy(), missing))
    if missing or point:
        around = padding if point is not None else [0] * 2 * rank
        data = _Bytes(_pad(builder, data.tensor, missing, around, point or 0), data.point)
        padding = [0] * 2 * rank if point is not None else padding
    if point == 0:
        return _windows(node, builder, data.tensor, kernel_of, padding), None
    taken = _weights_inside(node, kernel_of.value.numpy(), data.tensor, padding)
    if taken is None:
        return _windows(node, builder, data.centred(builder), kernel_of, padding), None
    total = _windows(node, builder, data.tensor, kernel_of, padding)
    if point is None:
        return builder.emit(total - builder.emit(data.point * relax.const(taken))), None
    return total, -point * taken


def _weights_inside(node: Node, weight: Any, data: Any, padding: Sequence[int]) -> Any | None:
    """Sums of the weights that meet no padding of zeros, of each output.

    Args:
        weight: (outputs, inputs of a group, *kernel).

    Returns:
        (1, outputs, *sizes of the output), sizes of 1 where all outputs have the same; None where
        there is padding, and a size is not known.
    """
    rank, said = len(padding) // 2, node.attributes
    sums = weight.astype(_WIDE).sum(1)
    sizes = [tvm_compat.as_int(d) for d in (tvm_compat.tensor_dims(data) or [])[2:]]
    for axis in range(rank):
        before, after, size = padding[axis], padding[axis + rank], sizes[axis]
        kernel = weight.shape[2 + axis]
        inside = np.ones((1, kernel), _WIDE)
        if before or after:
            if size is None:
                return None
            step, apart = (said.get(key, [1] * rank)[axis] for key in ("strides", "dilations"))
            last = size + after - apart * (kernel - 1) - 1
            places = np.arange(-before, last + 1, step)[:, None] + apart * np.arange(kernel)
            inside = ((places >= 0) & (places < size)).astype(_WIDE)
        sums = np.tensordot(sums, inside, (1, 1))  # takes the first axis left, adds one at the end
    return sums[None].astype(_WIDE)


def _with_channels(weight: Any, missing: int) -> Any:
    """A kernel with weights of 0 for more channels of the data."""
    widths = [(0, 0)] * weight.ndim
    widths[1] = (0, missing)
    return np.pad(weight, widths)


def _pad(builder: Any, data: Any, channels: int, padding: Sequence[int], point: int) -> Any:
    """Bytes with so many more channels, and with what stands for zero around them."""
    from tvm import relax

    if not channels and not any(padding):
        return data
    rank = len(padding) // 2
    widths = [0, 0, 0, channels] + [
        p for axis in range(rank) for p in (padding[axis], padding[axis + rank])
    ]
    return builder.emit(relax.op.nn.pad(data, widths, "constant", float(point)))


def _windows(node: Node, builder: Any, data: Any, weight: Any, padding: Sequence[int]) -> Any:
    from tvm import relax

    rank, said = len(padding) // 2, node.attributes
    return builder.emit(
        getattr(relax.op.nn, f"conv{rank}d")(
            data,
            weight,
            strides=list(said.get("strides", [1] * rank)),
            padding=list(padding),
            dilation=list(said.get("dilations", [1] * rank)),
            groups=said.get("group", 1),
            out_dtype=_WIDE,
        )
    )


def _multiply(node: Node, builder: Any, right: int) -> Any:
    """The sums of a product of operand 0 and another one."""
    from tvm import relax

    rows, columns = node.dims(0), node.dims(right)
    if not rows or not columns or len(rows) < 2 or len(columns) < 2:
        raise node.refused("its operands have to be matrices of known rank")
    a = _operand(node, builder, 0, [-1, 1])
    b = _operand(node, builder, right, [1, -1])
    emit = builder.emit
    total = emit(relax.op.matmul(a.tensor, b.tensor, out_dtype=_WIDE))
    if a.known_point != 0:
        total = emit(total - emit(a.point * _sum(builder, b.centred(builder), b, -2)))
    if b.known_point != 0:
        total = emit(total - emit(b.point * _sum(builder, a.tensor.astype(_WIDE), a, -1)))
    return total


def _sum(builder: Any, wide: Any, operand: _Bytes, axis: int) -> Any:
    """Sums of an operand along an axis, which stays."""
    from tvm import relax

    known = operand.known_point
    if tvm_compat.is_constant(operand.tensor) and known is not None:
        array = operand.tensor.value.numpy().astype(_WIDE) - (known if axis == -2 else 0)
        return relax.const(array.sum(axis, dtype=_WIDE, keepdims=True))
    return builder.emit(relax.op.sum(builder.emit(wide), [axis], keepdims=True))


def _requantize(node: Node, builder: Any, total: Any, scales: tuple[Any, Any], out: int) -> Any:
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
    factor = as_tensor(_quotient(builder, *scales, _real(builder, scale.tensor(builder))))
    exact = emit(emit(total.astype(_REAL)) * factor)
    one, zero = relax.const(1.0, _REAL), as_tensor(point.tensor(builder))
    return emit(relax.op.quantize(exact, one, zero, axis=-1, out_dtype=point.dtype))


def _quotient(builder: Any, first: Any, second: Any, divisor: Any) -> Any:
    """What sums are multiplied by, worked out here where all three are known."""
    from tvm import relax

    parts = (first, second, divisor)
    if all(map(tvm_compat.is_constant, parts)):
        x, y, z = (part.value.numpy() for part in parts)
        return relax.const(np.asarray(x * y / z, _REAL))
    return builder.emit(builder.emit(first * second) / divisor)


def _real(builder: Any, expression: Any) -> Any:
    from tvm import relax

    if tvm_compat.is_constant(expression):
        return relax.const(expression.value.numpy().astype(_REAL))
    return builder.emit(expression.astype(_REAL))


def _scale(node: Node, builder: Any, number: int, shape: Sequence[int]) -> Any:
    value = node.input(number)
    if value is None:
        raise node.refused("it does not say how its operands are quantized")
    return _real(builder, _along(builder, value.tensor(builder), shape))


def _conv_integer(node: Node, builder: Any) -> Any:
    from tvm import relax

    total, term = _convolve(node, builder, 1)
    return total if term is None else builder.emit(total + relax.const(term))


def _quantize_conv(node: Node, builder: Any) -> Any:
    from tvm import relax

    total, term = _convolve(node, builder, 3)
    rest = [1] * (len(tvm_compat.tensor_dims(total) or ()) - 2)
    bias = node.input(8)
    if term is not None and bias is not None and bias.array is not None:
        term, bias = term + bias.array.reshape(1, -1, *rest), None
    if term is not None:
        total = builder.emit(total + relax.const(term))
    if bias is not None:
        spread = builder.emit(relax.op.reshape(bias.tensor(builder), [1, -1, *rest]))
        total = builder.emit(total + spread)
    scales = _scale(node, builder, 1, []), _scale(node, builder, 4, [-1, *rest])
    return _requantize(node, builder, total, scales, 6)


def _integer_product(node: Node, builder: Any) -> Any:
    if any(len(dims or ()) < 2 for dims in (node.dims(0), node.dims(1))):
        return None
    return _multiply(node, builder, 1)


def _quantize_product(node: Node, builder: Any) -> Any:
    total = _multiply(node, builder, 3)
    scales = _scale(node, builder, 1, [-1, 1]), _scale(node, builder, 4, [1, -1])
    return _requantize(node, builder, total, scales, 6)


QUANTIZED: Mapping[str, Convert] = MappingProxyType(
    {
        **LINEAR,
        "ConvInteger": _conv_integer,
        "MatMulInteger": _integer_product,
        "QLinearConv": _quantize_conv,
        "QLinearMatMul": _quantize_product,
    }
)
