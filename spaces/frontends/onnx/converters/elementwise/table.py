"""Operators on single elements: arithmetic, comparisons, bits."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial, reduce
from types import MappingProxyType
from typing import Any

import numpy as np

from spaces.frontends.onnx.converters.elementwise.activations import ACTIVATIONS
from spaces.frontends.onnx.converters.elementwise.casts import convert_to
from spaces.frontends.onnx.converters.elementwise.folded import fold_known
from spaces.frontends.onnx.node import Convert, Node
from spaces.ir import tvm_compat
from spaces.ir.element_types import HALVES, is_float, numpy_dtype

_BROADCAST = {
    "Add": "add", "And": "logical_and", "Div": "divide", "Greater": "greater", "Less": "less",
    "Mul": "multiply", "Or": "logical_or", "Sub": "subtract", "Xor": "logical_xor",
}  # fmt: skip


def _of_all(operator: str, node: Node, builder: Any) -> Any:
    """An operator on any number of operands, pair by pair."""
    from tvm import relax

    combine = getattr(relax.op, operator)
    operands = [value.tensor(builder) for value in node.inputs if value is not None]
    return reduce(lambda a, b: builder.emit(combine(a, b)), operands)


def _mean(node: Node, builder: Any) -> Any:
    from tvm import relax

    total = _of_all("add", node, builder)
    return relax.op.divide(total, relax.const(len(node.inputs), str(total.ty.dtype)))


def _pair(node: Node, builder: Any) -> tuple[Any, Any, str]:
    """Both operands and the type of the first. Below version 7 the second may begin at an axis."""
    from tvm import relax

    first, second = node.input(0), node.input(1)
    if first is None or second is None:
        raise node.refused("it has not both of its operands")
    a, b = first.tensor(builder), second.tensor(builder)
    if _begins_at_axis(node) and first.dims is not None and second.dims is not None:
        after = len(first.dims) - int(node.attributes["axis"]) % len(first.dims) - len(second.dims)
        b = builder.emit(relax.op.reshape(b, [*second.dims, *[1] * after])) if after > 0 else b
    return a, b, first.dtype


def _begins_at_axis(node: Node) -> bool:
    return node.opset < 7 and bool(node.attributes.get("broadcast")) and "axis" in node.attributes


def _align(operator: str, node: Node, builder: Any) -> Any:
    """As it was before ONNX had broadcasting; what is without it is for TVM's importer."""
    from tvm import relax

    if not _begins_at_axis(node):
        return None
    a, b, _ = _pair(node, builder)
    return getattr(relax.op, operator)(a, b)


def _power(node: Node, builder: Any) -> Any:
    """A power has the type of its base. One of integers is worked out in 64 bits, as onnxruntime
    does, where its exponent is not small and known."""
    from tvm import relax

    base, exponent, dtype = _pair(node, builder)
    other = str(exponent.ty.dtype)
    if not is_float(dtype):
        number = _read_exponent(exponent, base)
        if number is not None:
            return _multiply(builder, base, number, dtype)
        wide = [builder.emit(relax.op.astype(x, "float64")) for x in (base, exponent)]
        return convert_to(builder, builder.emit(relax.op.power(*wide)), dtype)
    if other == dtype and dtype != "bfloat16":
        return relax.op.power(base, exponent)
    if tvm_compat.is_constant(exponent) and dtype != "bfloat16":
        array = exponent.value.numpy()
        narrow = array.astype(numpy_dtype(dtype))
        if (narrow.astype("float64") == array.astype("float64")).all():
            return relax.op.power(base, relax.const(narrow, dtype))
    real = "float64" if "int" in other and dtype != "bfloat16" else "float32"
    wide = [convert_to(builder, x, real) for x in (base, exponent)]
    return convert_to(builder, builder.emit(relax.op.power(*wide)), dtype)


def _read_exponent(exponent: Any, base: Any) -> int | None:
    if not tvm_compat.is_constant(exponent):
        return None
    array = exponent.value.numpy()
    spreads = array.ndim > len(tvm_compat.tensor_dims(base) or ())
    if array.size != 1 or spreads or array.item() not in range(65):
        return None
    return int(array.item())


def _multiply(builder: Any, base: Any, exponent: int, dtype: str) -> Any:
    from tvm import relax

    found, square = None, base
    while exponent:
        if exponent & 1:
            found = square if found is None else builder.emit(relax.op.multiply(found, square))
        exponent >>= 1
        if exponent:
            square = builder.emit(relax.op.multiply(square, square))
    return relax.op.ones_like(base) if found is None else found


def _remainder(node: Node, builder: Any) -> Any:
    """`fmod` has the sign of the dividend; without it, a remainder has that of the divisor."""
    from tvm import relax

    a, b, dtype = _pair(node, builder)
    emit = builder.emit
    if dtype in HALVES:
        a, b = (emit(relax.op.astype(x, "float32")) for x in (a, b))
        return convert_to(builder, emit(_rest(node, builder, a, b, "float32")), dtype)
    return _rest(node, builder, a, b, dtype)


def _rest(node: Node, builder: Any, a: Any, b: Any, dtype: str) -> Any:
    from tvm import relax

    emit = builder.emit
    if node.attributes.get("fmod", 0):
        return relax.op.mod(a, b)
    if not is_float(dtype):
        return relax.op.floor_mod(a, b)
    zero = relax.const(0, dtype)
    rest = emit(relax.op.mod(a, b))
    signs = [emit(relax.op.less(one, zero)) for one in (rest, b)]
    apart = emit(relax.op.logical_xor(*signs))
    moves = emit(relax.op.logical_and(apart, emit(relax.op.not_equal(rest, zero))))
    return relax.op.where(moves, emit(relax.op.add(rest, b)), rest)


def _shift(node: Node, builder: Any) -> Any:
    """By the width or more, or by less than nothing, no bit is left but those of the sign."""
    from tvm import relax

    a, b, dtype = _pair(node, builder)
    emit = builder.emit
    direction = node.attributes.get("direction", b"")
    left = (direction.decode() if isinstance(direction, bytes) else direction) == "LEFT"
    width = 8 * numpy_dtype(dtype).itemsize
    known = tvm_compat.is_constant(b) and b.value.numpy()
    shift = relax.op.left_shift if left else relax.op.right_shift
    if known is not False and ((known >= 0) & (known < width)).all():
        return shift(a, b)
    zero = relax.const(0, dtype)
    less = emit(relax.op.less(b, relax.const(width, dtype)))
    within = emit(relax.op.logical_and(less, emit(relax.op.greater_equal(b, zero))))
    moved = emit(shift(a, emit(relax.op.where(within, b, zero))))
    rest = zero
    if not left and not dtype.startswith("u"):
        rest = emit(relax.op.right_shift(a, relax.const(width - 1, dtype)))
    return relax.op.where(within, moved, rest)


def _is_infinite(node: Node, builder: Any) -> Any:
    from tvm import relax

    value = node.input(0)
    assert value is not None
    x = convert_to(builder, value.tensor(builder), _compute(value.kind), value.kind)
    dtype = str(x.ty.dtype)
    wanted = [
        relax.const(sign * np.inf, dtype)
        for name, sign in (("detect_negative", -1), ("detect_positive", 1))
        if node.attributes.get(name, 1)
    ]
    if not wanted:
        return relax.op.zeros_like(x, "bool")
    found = [builder.emit(relax.op.equal(x, one)) for one in wanted]
    return reduce(relax.op.logical_or, found)


def _is_nan(node: Node, builder: Any) -> Any:
    from tvm import relax

    value = node.input(0)
    assert value is not None
    return relax.op.isnan(
        convert_to(builder, value.tensor(builder), _compute(value.kind), value.kind)
    )


def _compute(dtype: str) -> str:
    """A type that is computed with and holds each number of another one."""
    return "float32" if dtype.startswith("float8") or dtype in HALVES else dtype


def _compare(operator: str, node: Node, builder: Any) -> Any:
    """Truth values are compared as integers, for which TVM has comparisons."""
    from tvm import relax

    a, b, dtype = _pair(node, builder)
    if dtype == "bool":
        a, b = (builder.emit(relax.op.astype(x, "int8")) for x in (a, b))
    return getattr(relax.op, operator)(a, b)


def _sign(node: Node, builder: Any) -> Any:
    from tvm import relax

    value = node.input(0)
    assert value is not None
    x, emit = value.tensor(builder), builder.emit
    zero, one = (relax.const(n, value.dtype) for n in (0, 1))
    up = emit(relax.op.where(emit(relax.op.greater(x, zero)), one, zero if _whole(value) else x))
    if value.dtype.startswith("u"):
        return up
    minus = relax.const(-1, value.dtype)
    return relax.op.where(emit(relax.op.less(x, zero)), minus, up)


def _whole(value: Any) -> bool:
    return not is_float(value.dtype)


_ELEMENTWISE: Mapping[str, Convert] = {
    **ACTIVATIONS,
    **{name: partial(_align, operator) for name, operator in _BROADCAST.items()},
    "BitShift": _shift,
    "Equal": partial(_compare, "equal"),
    "IsInf": _is_infinite,
    "IsNaN": _is_nan,
    "Max": partial(_of_all, "maximum"),
    "Mean": _mean,
    "Min": partial(_of_all, "minimum"),
    "Mod": _remainder,
    "Pow": _power,
    "Sign": _sign,
    "Sum": partial(_of_all, "add"),
}
ELEMENTWISE: Mapping[str, Convert] = MappingProxyType(fold_known(_ELEMENTWISE))
