"""What the operators of expressions compute, on arrays of their own types."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from spaces.check.elements.stages import Unevaluable
from spaces.ir.byte_floats import SATURATING
from spaces.ir.element_types import limits_of, numpy_dtype

Operation = Callable[..., Any]


def _divide(a: Any, b: Any) -> Any:
    """As in C: whole numbers are rounded towards zero."""
    if np.asarray(a).dtype.kind not in "iu":
        return a / b
    return (a - np.fmod(a, b)) // b


def _largest(a: Any, b: Any) -> Any:
    """As compiled: where one is NaN, the second."""
    return np.where(a > b, a, b)


def _least(a: Any, b: Any) -> Any:
    return np.where(a < b, a, b)


BINARY: dict[str, Operation] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": _divide,
    "Mod": np.fmod,
    "FloorDiv": np.floor_divide,
    "FloorMod": np.remainder,
    "Max": _largest,
    "Min": _least,
    "EQ": np.equal,
    "NE": np.not_equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
    "And": np.logical_and,
    "Or": np.logical_or,
    "LShift": np.left_shift,
    "RShift": np.right_shift,
    "BitwiseAnd": np.bitwise_and,
    "BitwiseOr": np.bitwise_or,
    "BitwiseXor": np.bitwise_xor,
}
UNARY: dict[str, Operation] = {"Not": np.logical_not, "BitwiseNot": np.invert}


def _in_float(function: Operation) -> Operation:
    """A function of float32 and float64; small types are widened on the way."""

    def compute(*values: Any) -> Any:
        kind = np.result_type(values[0])
        if kind.itemsize < 4:
            return function(*(value.astype(np.float32) for value in values)).astype(kind)
        return function(*values).astype(kind)

    return compute


def _erf(x: Any) -> Any:
    from scipy.special import erf

    return erf(x)


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


_FUNCTIONS: dict[str, Operation] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "exp10": lambda x: np.power(np.full_like(x, 10), x),
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "tanh": np.tanh,
    "sigmoid": _sigmoid,
    "erf": _erf,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "atan2": np.arctan2,
    "pow": np.power,
    "hypot": np.hypot,
    "copysign": np.copysign,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "round": np.rint,
    "nearbyint": np.rint,
    "rint": np.rint,
}
_OF_BITS: dict[str, Operation] = {
    "shift_left": np.left_shift,
    "shift_right": np.right_shift,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "bitwise_not": np.invert,
    "abs": np.abs,
    "fabs": np.abs,
    "isnan": lambda x: x != x,
    "isinf": lambda x: np.abs(x) == math.inf,
    "isfinite": lambda x: np.abs(x) < math.inf,
    "likely": lambda x: x,
}


def function_of(name: str) -> Operation:
    """What the call of an operator computes.

    Raises:
        Unevaluable: it is not known.
    """
    if name in _OF_BITS:
        return _OF_BITS[name]
    if name not in _FUNCTIONS:
        raise Unevaluable(f"a call of {name or 'a function'}")
    return _in_float(_FUNCTIONS[name])


def cast_to(dtype: str) -> Operation:
    """What a cast to a type computes."""
    kind = numpy_dtype(dtype)
    most = float(limits_of(dtype).max) if dtype in SATURATING else math.inf

    def compute(value: Any) -> Any:
        fits = value if math.isinf(most) else np.clip(value, -most, most)
        return fits.astype(kind)

    return compute


def reinterpret_as(dtype: str) -> Operation:
    """What reading the same bits as another type computes."""
    kind = numpy_dtype(dtype)

    def compute(value: Any) -> Any:
        return np.asarray(value).view(kind)

    return compute
