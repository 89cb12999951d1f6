"""`QuantizeLinear`, `DequantizeLinear` and `DynamicQuantizeLinear`.

Numbers of 32 bits with one scale, or one for each place of an axis, become the operators of Relax
for it. All else is written out: other floats, blocks, types of less than a byte, floats of 8 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from spaces.frontends.onnx.converters.elementwise.casts import BYTE_FLOATS, KEPT_IN, convert_to
from spaces.frontends.onnx.converters.elementwise.conversions import name_type
from spaces.frontends.onnx.converters.elementwise.packed_codes import (
    FIRST,
    Matrix,
    count_bits,
    emit_matrix,
    emit_unpacked,
    pack,
)
from spaces.frontends.onnx.node import Convert, Node, Value
from spaces.ir import tvm_compat
from spaces.ir.element_types import NUMPY_FLOATS, is_float, numpy_dtype
from spaces.ir.tvm_compat import as_int
from spaces.lowering.relax_rewrite import constant

_REAL = "float32"
_LEAST = 1 << 11
"""Elements of a constant that stays packed: smaller ones become floats while a model is lowered."""
_PLAIN = ("int8", "uint8", "int16", "uint16")


def _quantize(node: Node, builder: Any) -> Any:
    from tvm import relax

    x, scale = _operands(node)
    point, said = node.input(2), node.attributes.get("output_dtype", 0)
    dtype = name_type(node, said) if said else "uint8"
    if point is not None:
        dtype = point.kind
    real = scale.dtype if is_float(scale.kind) and not scale.narrow else _REAL
    if precision := node.attributes.get("precision", 0):
        real = name_type(node, precision)
    if real == x.dtype == scale.kind == _REAL and dtype in _PLAIN and not _block(node):
        zero = relax.const(0, dtype) if point is None else point.tensor(builder)
        by, zero = as_tensor(scale.tensor(builder)), as_tensor(zero)
        return relax.op.quantize(x.tensor(builder), by, zero, axis=_axis(node), out_dtype=dtype)
    emit = builder.emit
    data = convert_to(builder, x.tensor(builder), real)
    by = convert_to(builder, _spread(node, builder, scale), real, scale.kind)
    quotient = convert_to(builder, emit(relax.op.divide(data, by)), _REAL)
    if dtype in BYTE_FLOATS:
        saturate = bool(node.attributes.get("saturate", 1))
        return convert_to(builder, quotient, dtype, saturate=saturate)
    whole = dtype != "float4_e2m1fn"
    moved = emit(relax.op.round(quotient)) if whole else quotient
    if point is not None:
        zero = convert_to(builder, _spread(node, builder, point), _REAL, point.kind)
        moved = emit(relax.op.add(moved, zero))
    if not whole:
        return convert_to(builder, moved, dtype)
    least, most = _range(node, dtype)
    clipped = emit(relax.op.clip(moved, float(least), float(most)))
    return convert_to(builder, clipped, KEPT_IN.get(dtype, dtype))


def as_tensor(expression: Any) -> Any:
    """A constant number as a tensor of one element, so that programs which differ in it are one;
    any other expression as it is."""
    if not tvm_compat.is_constant(expression) or expression.value.numpy().ndim:
        return expression
    return constant(expression.value.numpy().reshape(1))


def _range(node: Node, dtype: str) -> tuple[int, int]:
    if dtype in FIRST:
        return FIRST[dtype], FIRST[dtype] + (1 << count_bits(dtype)) - 1
    if dtype not in _PLAIN:
        raise node.refused(f"it quantizes to {dtype}, which is not supported")
    limits = np.iinfo(numpy_dtype(dtype))
    return int(limits.min), int(limits.max)


def _dequantize(node: Node, builder: Any) -> Any:
    from tvm import relax

    x, scale = _operands(node)
    point, said = node.input(2), node.attributes.get("output_dtype", 0)
    dtype = name_type(node, said) if said else scale.kind if node.opset >= 19 else _REAL
    if dtype in BYTE_FLOATS:
        raise node.refused(f"it gives {dtype}, which is not supported")
    integer = "int" in x.kind
    if (packed := _packed(node, builder, dtype)) is not None:
        return packed
    if integer and dtype == scale.kind == _REAL and not _block(node):
        zero = as_tensor(relax.const(0, x.dtype) if point is None else point.tensor(builder))
        by = as_tensor(scale.tensor(builder))
        return relax.op.dequantize(x.tensor(builder), by, zero, axis=_axis(node), out_dtype=_REAL)
    emit = builder.emit
    real = convert_to(builder, x.tensor(builder), _REAL, x.kind)
    if point is not None and integer:
        zero = convert_to(builder, _spread(node, builder, point), _REAL, point.kind)
        real = emit(relax.op.subtract(real, zero))
    by = convert_to(builder, _spread(node, builder, scale), _REAL, scale.kind)
    return convert_to(builder, emit(relax.op.multiply(real, by)), dtype)


def _packed(node: Node, builder: Any, dtype: str) -> Any | None:
    """What a large constant of less than a byte stands for, so that it stays as small as it is;
    None of any other."""
    from tvm import te

    x, scale, point = node.operand(0), node.operand(1), node.input(2)
    array, zeros = x.array, None if point is None else point.array
    if x.narrow not in FIRST or array is None or array.size < _LEAST or dtype not in NUMPY_FLOATS:
        return None
    if point is not None and (zeros is None or point.narrow != x.narrow):
        return None
    if (matrix := _read_matrix(node)) is not None:
        return emit_matrix(builder, matrix, dtype)
    along = _axis_of_bytes(node, scale.dims)
    codes, first = pack(np.moveaxis(array, along, -1), x.narrow), FIRST[x.narrow]
    middles = (np.asarray(0 if zeros is None else zeros, "int32") - first).astype("uint8")
    spread = [_places(node, value) for value in (scale.dims, middles.shape)]
    alike = np.unique(middles)

    def compute(table: Any, scales: Any, *middle: Any) -> Any:
        def number(*place: Any) -> Any:
            by, none = (at(place) for at in spread)
            code = codes.read(table, (*place[:along], *place[along + 1 :], place[along]))
            real = code - (middle[0][none].astype(_REAL) if middle else float(alike[0]))
            return (real * scales[by].astype(_REAL)).astype(dtype)

        return te.compute(array.shape, number, name="unpacked")

    more = [constant(middles)] if alike.size > 1 else []
    return emit_unpacked(builder, compute, codes.tensor, scale.tensor(builder), *more)


def _read_matrix(node: Node) -> Matrix | None:
    """The matrix of a product that large constants of less than a byte stand for, in blocks of its
    terms; None of anything else."""
    x, scale, point = node.operand(0), node.operand(1), node.input(2)
    block, array, scales = _block(node), x.array, scale.array
    if array is None or scales is None or array.ndim != 2 or not block or _axis(node) != 0:
        return None
    depth, columns = array.shape
    if scales.shape != (-(-depth // block), columns):
        return None
    zeros = None
    if point is not None or not FIRST[x.narrow]:  # of signed numbers the middle code is zero
        values = np.zeros(scales.shape) if point is None else np.asarray(point.array)
        zeros = pack(values.T, x.narrow)
    codes, by = pack(array.T, x.narrow), constant(np.ascontiguousarray(scales.T))
    return Matrix(codes, by, depth, columns, block, zeros)


def _axis_of_bytes(node: Node, scales: Any) -> int:
    """The axis along which numbers share a byte: of a matrix that of the sums, so that a product
    reads whole bytes. Blocks lie along it, scales of columns across it; else it is the last."""
    rank, axis = len(node.shape(0)), _axis(node)
    if _block(node):
        return axis
    columns = len(scales) == 1 and as_int(scales[0]) != 1
    return 1 - axis if rank == 2 and columns else rank - 1


def _places(node: Node, dims: Any) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """Where the scale or the zero point of a number stands, by the number's place."""
    axis, block = _axis(node), _block(node)
    shape = node.shape(0)
    if block and dims:
        _read_size(node, shape[axis], dims[axis])
        return lambda place: (*place[:axis], place[axis] // block, *place[axis + 1 :])
    if not dims:
        return lambda _: ()
    one = as_int(dims[0]) == 1
    return lambda place: (0 if one else place[axis],)


def _operands(node: Node) -> tuple[Value, Value]:
    x, scale = node.input(0), node.input(1)
    if x is None or scale is None:
        raise node.refused("it has no scale")
    return x, scale


def _block(node: Node) -> int:
    return int(node.attributes.get("block_size", 0))


def _axis(node: Node) -> int:
    """The axis of the scales, which numbers that have one axis or none do not name."""
    rank = len(node.dims(0) or ())
    axis = int(node.attributes.get("axis", 1))
    return 0 if rank <= 1 else axis % rank


def _spread(node: Node, builder: Any, value: Value) -> Any:
    """Scales or zero points in a shape that meets the numbers."""
    from tvm import relax

    tensor, dims = value.tensor(builder), value.dims
    shape = node.dims(0)
    if shape is None or dims is None:
        raise node.refused("its operands have no known shapes")
    axis, block = _axis(node), _block(node)
    if block and dims:
        return _repeat(node, builder, tensor, shape[axis], dims[axis])
    if len(dims) != 1 or len(shape) < 1:
        return tensor
    if as_int(dims[0]) == 1:
        return builder.emit(relax.op.reshape(tensor, [1] * len(shape)))
    wanted = [dims[0] if place == axis else 1 for place in range(len(shape))]
    return builder.emit(relax.op.reshape(tensor, wanted))


def _repeat(node: Node, builder: Any, tensor: Any, size: Any, blocks: Any) -> Any:
    """One for each block of an axis, as one for each place; the last block may be shorter."""
    from tvm import relax

    axis, block = _axis(node), _block(node)
    made = builder.emit(relax.op.repeat(tensor, block, axis))
    if not node.arithmetic.equal(size, blocks * block):
        number = _read_size(node, size, blocks)
        made = builder.emit(relax.op.strided_slice(made, [axis], [0], [number]))
    return made


def _read_size(node: Node, size: Any, blocks: Any) -> int:
    """The known size of the axis of the scales, of which each block has one."""
    number, several, block = as_int(size), as_int(blocks), _block(node)
    if number is None or several is None or -(-number // block) != several:
        raise node.refused(f"its axis {_axis(node)} has not as many blocks of {block} as scales")
    return number


def _dynamic(node: Node, builder: Any) -> Any:
    from tvm import relax

    value, emit = node.input(0), builder.emit
    assert value is not None
    x = value.tensor(builder)
    zero, most, one = (relax.const(n, _REAL) for n in (0.0, 255.0, 1.0))
    high = emit(relax.op.maximum(emit(relax.op.max(x)), zero))
    low = emit(relax.op.minimum(emit(relax.op.min(x)), zero))
    width = emit(relax.op.subtract(high, low))
    same = emit(relax.op.equal(width, zero))
    scale = emit(relax.op.where(same, one, emit(relax.op.divide(width, most))))
    exact = emit(relax.op.divide(emit(relax.op.negative(low)), scale))
    rounded = emit(relax.op.round(emit(relax.op.clip(exact, 0.0, 255.0))))
    point = emit(relax.op.astype(rounded, "uint8"))
    return [relax.op.quantize(x, scale, point, axis=0, out_dtype="uint8"), scale, point]


LINEAR: Mapping[str, Convert] = MappingProxyType(
    {
        "DequantizeLinear": _dequantize,
        "DynamicQuantizeLinear": _dynamic,
        "QuantizeLinear": _quantize,
    }
)
