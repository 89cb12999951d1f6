"""Activations in the type of their operand; TVM's importer has constants of 32 bits in some, and
sums where one term may be infinite and the other nothing."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from spaces.frontends.onnx.converters.elementwise.casts import convert_to
from spaces.frontends.onnx.node import Convert, Node
from spaces.ir.element_types import HALVES, NUMPY_FLOATS, is_float

_SELU = 1.67326319217681884765625, 1.05070102214813232421875
_ALPHA, _LEAK = 1.0, float(np.float32(0.01))
_WIDENED = ("acos", "acosh", "asin", "asinh", "atan", "atanh", "cosh", "sinh", "tan")


def _elu(node: Node, builder: Any) -> Any:
    x, dtype = _floats(node, builder)
    below = _below_zero(builder, x, dtype, float(node.attributes.get("alpha", _ALPHA)))
    return _where_positive(builder, x, dtype, x, below)


def _selu(node: Node, builder: Any) -> Any:
    from tvm import relax

    x, dtype = _floats(node, builder)
    alpha = float(node.attributes.get("alpha", _SELU[0]))
    gamma = float(node.attributes.get("gamma", _SELU[1]))
    below = _below_zero(builder, x, dtype, gamma * alpha)
    above = builder.emit(relax.op.multiply(x, relax.const(gamma, dtype)))
    return _where_positive(builder, x, dtype, above, below)


def _celu(node: Node, builder: Any) -> Any:
    from tvm import relax

    x, dtype = _floats(node, builder)
    alpha = float(node.attributes.get("alpha", _ALPHA))
    scaled = builder.emit(relax.op.divide(x, relax.const(alpha, dtype)))
    zero = relax.const(0, dtype)
    below = builder.emit(relax.op.minimum(_below_zero(builder, scaled, dtype, alpha), zero))
    return relax.op.add(builder.emit(relax.op.maximum(x, zero)), below)


def _below_zero(builder: Any, x: Any, dtype: str, alpha: float) -> Any:
    """alpha (e^x - 1)."""
    from tvm import relax

    less = builder.emit(relax.op.subtract(builder.emit(relax.op.exp(x)), relax.const(1, dtype)))
    return builder.emit(relax.op.multiply(less, relax.const(alpha, dtype)))


def _where_positive(builder: Any, x: Any, dtype: str, above: Any, below: Any) -> Any:
    from tvm import relax

    positive = builder.emit(relax.op.greater(x, relax.const(0, dtype)))
    return relax.op.where(positive, above, below)


def _mish(node: Node, builder: Any) -> Any:
    """x tanh(log(1 + e^x)), written with s = e^-|x|, of which no part overflows or loses digits:
    tanh is (1 + 2 s) / (1 + 2 s + 2 s^2) above 0, and (s^2 + 2 s) / (s^2 + 2 s + 2) below."""
    from tvm import relax

    emit = builder.emit
    x, dtype = _floats(node, builder)
    one, two = (relax.const(number, dtype) for number in (1, 2))
    small = emit(relax.op.exp(emit(relax.op.negative(emit(relax.op.abs(x))))))
    square = emit(relax.op.multiply(small, small))
    twice = emit(relax.op.multiply(small, two))
    upper = emit(relax.op.add(twice, one))
    above = emit(
        relax.op.divide(upper, emit(relax.op.add(upper, emit(relax.op.add(square, square)))))
    )
    lower = emit(relax.op.add(square, twice))
    below = emit(relax.op.divide(lower, emit(relax.op.add(lower, two))))
    return relax.op.multiply(x, emit(_where_positive(builder, x, dtype, above, below)))


def _softplus(node: Node, builder: Any) -> Any:
    return _softplus_of(builder, *_floats(node, builder))


def _softplus_of(builder: Any, x: Any, dtype: str) -> Any:
    """max(x, 0) + log(1 + e^-|x|), of which no part overflows."""
    from tvm import relax

    emit = builder.emit
    small = emit(relax.op.exp(emit(relax.op.negative(emit(relax.op.abs(x))))))
    return relax.op.add(
        emit(relax.op.maximum(x, relax.const(0, dtype))), _log_of_one_and(builder, small, dtype)
    )


def _log_of_one_and(builder: Any, small: Any, dtype: str) -> Any:
    """log(1 + s), with all its digits where s is small: log(u) s / (u - 1) for u = 1 + s as it is
    rounded (Kahan's)."""
    from tvm import relax

    emit, one = builder.emit, relax.const(1, dtype)
    sum_ = emit(relax.op.add(small, one))
    share = emit(relax.op.divide(small, emit(relax.op.subtract(sum_, one))))
    found = emit(relax.op.multiply(emit(relax.op.log(sum_)), share))
    return emit(relax.op.where(emit(relax.op.equal(sum_, one)), small, found))


def _threshold(node: Node, builder: Any) -> Any:
    from tvm import relax

    x, dtype = _floats(node, builder)
    alpha = relax.const(float(node.attributes.get("alpha", _ALPHA)), dtype)
    return relax.op.where(builder.emit(relax.op.greater(x, alpha)), x, relax.const(0, dtype))


def _shrink(node: Node, builder: Any) -> Any:
    """Integers are worked out in 64 bits, since the bounds may be fractions; short floats in 32."""
    from tvm import relax

    emit, value = builder.emit, node.input(0)
    assert value is not None
    x, dtype = value.tensor(builder), value.dtype
    kind = "float32" if dtype in HALVES else dtype if is_float(dtype) else "float64"
    x = x if kind == dtype else emit(relax.op.astype(x, kind))
    edge, bias = (float(node.attributes.get(k, n)) for k, n in (("lambd", 0.5), ("bias", 0.0)))
    moved = [emit(op(x, relax.const(bias, kind))) for op in (relax.op.subtract, relax.op.add)]
    above = emit(relax.op.greater(x, relax.const(edge, kind)))
    below = emit(relax.op.less(x, relax.const(-edge, kind)))
    rest = emit(relax.op.where(above, moved[0], relax.const(0, kind)))
    found = emit(relax.op.where(below, moved[1], rest))
    return convert_to(builder, found, dtype)


def _leaky(node: Node, builder: Any) -> Any:
    from tvm import relax

    x, _ = _floats(node, builder)
    return relax.op.nn.leakyrelu(x, float(node.attributes.get("alpha", _LEAK)))


def _prelu(node: Node, builder: Any) -> Any:
    """Below version 7 several slopes are those of channels. TVM's importer takes floats alone."""
    from tvm import relax

    x, slope = node.input(0), node.input(1)
    assert x is not None
    assert slope is not None
    tensor, slopes = x.tensor(builder), slope.tensor(builder)
    if node.opset < 7 and len(slope.dims or ()) == 1:
        rank = len(x.dims or ())
        slopes = builder.emit(relax.op.reshape(slopes, [-1] + [1] * max(0, rank - 2)))
    elif x.dtype in NUMPY_FLOATS:
        return None
    below = builder.emit(relax.op.less(tensor, relax.const(0, x.dtype)))
    return relax.op.where(below, builder.emit(relax.op.multiply(tensor, slopes)), tensor)


def _in_32_bits(operator: str, node: Node, builder: Any) -> Any:
    """LLVM has no code for these of 16 bits."""
    from tvm import relax

    x, dtype = _floats(node, builder)
    if dtype not in HALVES:
        return None
    wide = builder.emit(relax.op.astype(x, "float32"))
    return convert_to(builder, builder.emit(getattr(relax.op, operator)(wide)), dtype)


def _floats(node: Node, builder: Any) -> tuple[Any, str]:
    """The first operand and its type."""
    value = node.input(0)
    if value is None or not is_float(value.dtype):
        found = "missing" if value is None else value.dtype
        raise node.refused(f"its operand is {found}, and has to be of floating point numbers")
    return value.tensor(builder), value.dtype


ACTIVATIONS: Mapping[str, Convert] = MappingProxyType(
    {
        **{name.capitalize(): partial(_in_32_bits, name) for name in _WIDENED},
        "Celu": _celu,
        "Elu": _elu,
        "LeakyRelu": _leaky,
        "Mish": _mish,
        "PRelu": _prelu,
        "Selu": _selu,
        "Shrink": _shrink,
        "Softplus": _softplus,
        "ThresholdedRelu": _threshold,
    }
)
