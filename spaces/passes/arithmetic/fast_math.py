"""Exponentials and their kin as arithmetic that LLVM vectorises.

TVM leaves `exp`, `tanh`, `erf` and the like to the C library, one call for each element, however
wide the vectors are. `vectorised_math` writes them out. It belongs right before the compiler
(`spaces.passes.cpu_passes`): the check of a candidate's output then sees these formulas' errors.

All rest on one range reduction: `exp(x) = 2**n * (1 + p)` with `n = round(x / ln 2)` and `p` a
polynomial in the remainder. For float32 (halves go through it), with NaN giving NaN:

    exp      within 2 units in the last place; 0 below -87.3 (no subnormals), inf from 88.73
    tanh     within 4 units in the last place
    sigmoid  within 4 units in the last place
    erf      within 4 units in the last place
    power    by a constant multiple of 1/4, at most 4: products of square roots

Everything else stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from spaces.ir.element_types import HALVES, WIDE

# Fitted so that the largest relative error is least: of expm1 on [-ln(2)/2, ln(2)/2] as
# r + r**2 * P(r), and of erf on [0, 4] as 1 - exp(-x * Q(x)). Lowest power first.
_EXPM1 = (0.49999994, 0.16666521, 0.041668389, 0.0083687175, 0.0013814596)
_ERF = (
    1.1283791065,
    0.6366192102,
    0.1027947292,
    -0.0192642827,
    0.000124956838,
    0.00130960508,
    -0.000401233556,
    4.34335743e-05,
)
_LOG2_E = 1.4426950408889634
# ln 2 in two parts; n times the first is exact.
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4
# Adding and subtracting this rounds to an integer, which is then in the sum's low bits.
_ROUNDER = 12582912.0
_EXPONENT_SHIFT, _ONE_BITS = 23, 0x3F800000
_EXP_LOWEST, _EXP_HIGHEST = -87.33654, 88.72283
# Arguments from which on the results are 1 (or -1) in float32.
_TANH_END, _ERF_END = 9.02, 3.95

_MOST_ROOTS = 16


def vectorised_math(function: Any) -> Any:
    """A PrimFunc for a CPU, scheduled or not, that computes these functions itself."""
    from tvm.ir import Call, Op
    from tvm_ffi import structural_map

    formulas = {f"tirx.{name}": formula for name, formula in _FORMULAS.items()}

    def replace(call: Any) -> Any:
        name = str(call.op.name) if isinstance(call.op, Op) else ""
        if name == "tirx.pow":
            return _power(call)
        formula = formulas.get(name)
        return call if formula is None else _through_float32(call, formula)

    body = structural_map(function.body, (Call, replace))
    if body.same_as(function.body):
        return function
    return function.with_body(body)


def _through_float32(call: Any, formula: Callable[[Any], Any]) -> Any:
    dtype, argument = str(call.ty.dtype), call.args[0]
    if dtype == WIDE:
        return formula(argument)
    return formula(argument.astype(WIDE)).astype(dtype) if dtype in HALVES else call


def _exp(x: Any) -> Any:
    from tvm.tirx import Select

    def of(x: Any) -> Any:
        def scaled(n_bits: Any, p: Any) -> Any:
            value = _float(_bits(p + _f(1.0)) + n_bits)
            floored = Select(x < _f(_EXP_LOWEST), _f(0.0), value)
            return Select(x > _f(_EXP_HIGHEST), _f(float("inf")), floored)

        return _reduce(x, scaled)

    return _let("x", x, of)


def _expm1(x: Any, then: Callable[[Any], Any]) -> Any:
    """`then` of exp(x) - 1, for x within [-80, 80]."""

    def scaled(n_bits: Any, p: Any) -> Any:
        def joined(s: Any) -> Any:
            return _let("e", p * s + (s - _f(1.0)), then)

        return _let("s", _float(n_bits + _i(_ONE_BITS)), joined)

    return _reduce(x, scaled)


def _tanh(x: Any) -> Any:
    return _let(
        "x",
        _clamp(x, -_TANH_END, _TANH_END) * _f(2.0),
        lambda x: _expm1(x, lambda e: e / (e + _f(2.0))),
    )


def _sigmoid(x: Any) -> Any:
    return _f(1.0) / (_f(1.0) + _exp(_f(0.0) - x))


def _erf(x: Any) -> Any:
    from tvm.tirx import Select, abs

    def of(x: Any) -> Any:
        def signed(e: Any) -> Any:
            return Select(x < _f(0.0), e, _f(0.0) - e)

        def inner(a: Any) -> Any:
            exponent = _f(0.0) - a * _polynomial(_ERF, a)
            return _let("y", exponent, lambda y: _expm1(y, signed))

        return _let("a", _clamp(abs(x), 0.0, _ERF_END), inner)

    return _let("x", x, of)


_FORMULAS = {"exp": _exp, "tanh": _tanh, "sigmoid": _sigmoid, "erf": _erf}


def _power(call: Any) -> Any:
    """A power by a constant as products of square roots, where these are few."""
    from tvm.tirx import FloatImm, sqrt

    base, exponent = call.args
    if str(call.ty.dtype) not in ("float32", "float64") or not isinstance(exponent, FloatImm):
        return call
    quarters = float(exponent.value) * 4
    if quarters != int(quarters) or not 0 < abs(quarters) <= _MOST_ROOTS:
        return call
    count = int(abs(quarters))
    dtype = str(call.ty.dtype)

    def product(x: Any) -> Any:
        def of_roots(root: Any) -> Any:
            factors = [x] * (count // 4) + [root] * (count % 4 // 2)
            factors += [sqrt(root)] * (count % 2)
            value = factors[0]
            for factor in factors[1:]:
                value = value * factor
            return _const(1.0, dtype) / value if quarters < 0 else value

        return of_roots(x) if count % 4 == 0 else _let("root", sqrt(x), of_roots)

    return _let("x", base, product)


def _reduce(x: Any, then: Callable[[Any, Any], Any]) -> Any:
    """`then` of n, shifted to the place of a float's exponent, and of p."""

    def of_sum(t: Any) -> Any:
        def of_remainder(r: Any) -> Any:
            p = r * r * _polynomial(_EXPM1, r) + r
            return _let("p", p, lambda p: then(_bits(t) << _i(_EXPONENT_SHIFT), p))

        n = t - _f(_ROUNDER)
        remainder = _let("n", n, lambda n: x - n * _f(_LN2_HIGH) - n * _f(_LN2_LOW))
        return _let("r", remainder, of_remainder)

    return _let("t", x * _f(_LOG2_E) + _f(_ROUNDER), of_sum)


def _polynomial(coefficients: tuple[float, ...], x: Any) -> Any:
    value = _f(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        value = value * x + _f(coefficient)
    return value


def _clamp(x: Any, low: float, high: float) -> Any:
    """Clamp to limits; NaN stays NaN, since TVM's min and max then give their second operand."""
    from tvm.tirx import Max, Min

    return Min(_f(high), Max(_f(low), x))


def _let(name: str, value: Any, body: Callable[[Any], Any]) -> Any:
    from tvm.tirx import Let, Var

    var = Var(name, str(value.ty.dtype))
    return Let(var, value, body(var))


def _bits(x: Any) -> Any:
    from tvm.tirx import reinterpret

    return reinterpret("int32", x)


def _float(x: Any) -> Any:
    from tvm.tirx import reinterpret

    return reinterpret("float32", x)


def _f(value: float) -> Any:
    return _const(value, "float32")


def _i(value: int) -> Any:
    return _const(value, "int32")


def _const(value: float, dtype: str) -> Any:
    from tvm.tirx import const

    return const(value, dtype)
