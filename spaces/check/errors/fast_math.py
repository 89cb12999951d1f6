"""Errors of expressions in kernels that CUDA's compiler compiled with fast math.

With `--use_fast_math` functions and quotients of float32 are instructions of few right bits, and
subnormal numbers are zero (CUDA C++ Programming Guide 13.0, "Functions Affected by
-use_fast_math"). What is allowed beyond `spaces.check.errors.expressions`, with where it is from:

    a / b       2 eps; all of it where |b| > 2**126, which divides to 0 ("Intrinsic Functions":
                __fdividef)
    tanh        2**-10.987 of the result (there: __tanhf)
    sin, cos    2**-20.5 up to 2 pi, 2**-14.7 up to 100 pi (PTX ISA 9.1, 9.7.3, sin.approx and
                cos.approx); beyond nothing is promised, and any value of a sine is right
    tan         what these errors make of sin / cos (there: __tanf), and 2 eps of the quotient;
                any value beyond 100 pi, and next to a pole
    pow         exp2(b * log2(a)) (there: __powf) with log2 off by 2**-22 or 2 eps, the product by
                eps / 2, and exp2 by 2 eps
    rounded     2**-126, as each result below that is 0

exp, exp10, log, log2, log10, sqrt and 1 / sqrt are allowed their errors (there: __expf and so on)
without this: the 8 eps of the result and 4 eps of the argument are more. Functions that are not
named there keep their own code and errors. Halves are computed by instructions of their own, and
float64 in full, with fast math as without.

No bound makes these right: a power of a negative number, which is NaN, and a logarithm or a
quotient of what only as a subnormal is not 0. Kernels with such values are refused. Inputs are
taken for normal.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from spaces.check.errors.expressions import Error, Errors, both, dtype_of, kind_of, operator_of
from spaces.check.errors.shadows import number
from spaces.ir.element_types import eps_of

_TANH = 2.0**-10.987
_COMPUTED = ("Add", "Sub", "Mul", "Div", "Cast", "Call")
_EPS = eps_of("float32")
_FLUSHED = 2.0**-126
_DIVISORS = 2.0**126
_PERIODIC = ((2 * math.pi, 2.0**-20.5), (100 * math.pi, 2.0**-14.7))
_ANY = 2.0
"""How far two values of a sine may be apart."""


class FastErrors(Errors):
    """Bounds of expressions that are compiled with fast math."""

    def of(self, value: Any) -> Error:
        """See `Errors`."""
        error = super().of(value)
        kind = kind_of(value)
        if kind not in _COMPUTED or dtype_of(value) != "float32":
            return error
        rule = _RULES.get(operator_of(value) if kind == "Call" else kind)
        drift, rounding = (None, 0.0) if rule is None else rule(self, value)
        if error.rounding or rounding:
            drift = both(drift, self._number(_FLUSHED), _sum)
        return Error(both(error.drift, drift, _sum), error.rounding + rounding)

    def _divide(self, value: Any) -> tuple[Any, float]:
        from tvm.tirx import Select

        beyond = self._size(value.b) > self._number(_DIVISORS)
        return Select(beyond, self._size(value), self._number(0.0)), 2 * _EPS

    def _tanh(self, value: Any) -> tuple[Any, float]:
        return None, _TANH

    def _sine(self, value: Any) -> tuple[Any, float]:
        return self._of_sine(value.args[0]), 0.0

    def _of_sine(self, angle: Any) -> Any:
        """The error of a sine or cosine of an angle."""
        from tvm.tirx import Select

        size, error = self._size(angle), self._number(_ANY)
        for most, within in reversed(_PERIODIC):
            error = Select(size <= self._number(most), self._number(within), error)
        return error

    def _tangent(self, value: Any) -> tuple[Any, float]:
        from tvm.tirx import Select, max_value, sqrt

        tangent, one = self._size(value), self._number(1.0)
        # Of 1, relative to the cosine.
        share = self._of_sine(value.args[0]) * sqrt(one + tangent * tangent)
        far = (one + tangent) * share / (one - share)
        near_pole = share >= self._number(0.5)
        return Select(near_pole, max_value(self._state.wide), far), 2 * _EPS

    def _power(self, value: Any) -> tuple[Any, float]:
        from tvm.tirx import Max, abs, log

        size, exponent = self._size(value), self._size(value.args[1])
        logarithm = abs(log(Max(size, self._number(_FLUSHED))))
        of_log = exponent * self._number(2.0**-22 * math.log(2))
        return size * (of_log + logarithm * self._number(2.5 * _EPS)), 2 * _EPS

    def _number(self, value: float) -> Any:
        return number(value, self._state)


_RULES: dict[str, Callable[[FastErrors, Any], tuple[Any, float]]] = {
    "Div": FastErrors._divide,
    "tanh": FastErrors._tanh,
    "sin": FastErrors._sine,
    "cos": FastErrors._sine,
    "tan": FastErrors._tangent,
    "pow": FastErrors._power,
}
"""For each kind of node, or operator of a call, a bound and a rounding relative to the size."""


def largest_share(function: Any) -> float:
    """The largest error, relative to its result, that is allowed a function which a PrimFunc calls;
    0 where it calls none of those above."""
    import tvm_ffi
    from tvm.ir import Call

    visit = (Call, lambda call: tvm_ffi.VisitInterrupt() if operator_of(call) in _RULES else None)
    return _TANH if tvm_ffi.structural_walk(function.body, visit) is not None else 0.0


def _sum(a: Any, b: Any) -> Any:
    return a + b
