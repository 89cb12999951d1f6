"""Errors of expressions: the rules of `spaces.check.error_bounds`, one for each kind of node."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from operator import add
from typing import Any

from spaces.check.errors.shadows import State, Unbounded, load_of, number
from spaces.ir import rewrite, tvm_compat
from spaces.ir.element_types import eps_of, is_float, smallest_of

_CALLS, _ARGUMENTS, _QUOTIENTS, _OPERATIONS = 8.0, 4.0, 2.0, 4.0
_ROUNDINGS = ("round", "nearbyint", "floor", "ceil", "trunc", "rint")
_FLAT = ("sin", "cos", "tan")
_FORMULAS = ("tanh", "sigmoid", "erf", "sinh", "cosh", "asin", "acos", "atan", "asinh", "atanh")
"""Functions that TVM writes out in their own type, as tanh by exponentials: some operations, and
near zero the difference of two numbers near 1."""
_LARGEST = 3e38
_NEGLIGIBLE = 1e-30
_DEEPEST = 3
"""The most functions nested in an expression: each one repeats its argument several times."""


@dataclass(frozen=True, slots=True)
class Error:
    """The error of an expression: a computed bound, and a rounding relative to its own size."""

    drift: Any = None
    rounding: float = 0.0

    def __bool__(self) -> bool:
        return self.drift is not None or self.rounding > 0


_NONE = Error()


class Errors:
    """Bounds of expressions."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._variables: dict[int, Any] = {}
        self._depth = 0

    def remember(self, variable: Any) -> Any:
        """Make the variable that holds the bound of another."""
        from tvm.tirx import Var

        known = Var(f"{variable.name}_drift", self._state.wide)
        self._variables[hash(variable)] = known
        return known

    def whole(self, value: Any) -> Any | None:
        """The bound of a value; None where it has no error."""
        error = self.of(value)
        if not error:
            return None
        rounded = self._round(value, error.rounding)
        if error.drift is None or rounded is None:
            return rounded if error.drift is None else error.drift
        return error.drift + rounded

    def of(self, value: Any) -> Error:
        """The error of an expression."""
        kind = kind_of(value)
        if kind in ("IntImm", "FloatImm", "StringImm"):
            return _NONE
        if kind == "TensorLoad":
            return self._loaded(value)
        if kind in ("Var", "PrimVar"):
            known = self._variables.get(hash(value))
            return _NONE if known is None else Error(known)
        rule = _RULES.get(kind)
        if rule is None:
            raise Unbounded(f"a {kind}")
        error: Error = rule(self, value)
        return error

    def is_integral(self, value: Any) -> bool:
        """Whether a value is a whole number, of whatever type."""
        kind = kind_of(value)
        if not is_float(dtype_of(value)) or (kind == "Call" and operator_of(value) in _ROUNDINGS):
            return True
        if kind == "FloatImm":
            return float(value.value).is_integer()
        if kind == "TensorLoad":
            return self._state.integral.get(hash(value.source), False)
        if kind == "Cast":
            return self.is_integral(value.value)
        if kind in ("Add", "Sub", "Mul", "Max", "Min"):
            return self.is_integral(value.a) and self.is_integral(value.b)
        if kind == "Select":
            return self.is_integral(value.true_value) and self.is_integral(value.false_value)
        return False

    def widened(self, value: Any) -> Any:
        """A value in the type of bounds."""
        return value.astype(self._state.wide)

    def finite(self, value: Any) -> Any | None:
        """As `whole`, but 0 where the value is NaN or infinite, which must come out the same."""
        from tvm.tirx import Select, max_value

        bound = self.whole(value)
        if bound is None or not is_float(dtype_of(value)):
            return bound
        most = max_value(self._state.wide)
        return Select(_abs(self.widened(value)) <= most, bound, number(0.0, self._state))

    def _round(self, value: Any, rounding: float) -> Any | None:
        return self._size(value) * number(rounding, self._state) if rounding else None

    def _loaded(self, load: Any) -> Error:
        shadow = self._state.of(load.source)
        if shadow is None:
            return _NONE
        from tvm.tirx import sqrt

        parts = [load_of(tensor, load.indices) for tensor in shadow.tensors]
        return Error(shadow.bound(self.widened(load), parts, sqrt, _abs))

    def _let(self, value: Any) -> Error:
        from tvm.tirx import Let

        bound = self.whole(value.value)
        known = None if bound is None else self.remember(value.var)
        inner = self.of(value.body)
        if inner.drift is None:
            return inner
        drift = inner.drift if known is None else Let(known, bound, inner.drift)
        return Error(Let(value.var, value.value, drift), inner.rounding)

    def _cast(self, value: Any) -> Error:
        from tvm.ir import Op

        before, after = dtype_of(value.value), dtype_of(value)
        error = self.of(value.value)
        if is_float(before) and not is_float(after):
            return self._step(value.value, Op.get("tirx.trunc"))
        if not is_float(after):
            return error
        exact = eps_of(after) <= eps_of(before) if is_float(before) else _holds(after, before)
        if exact:
            return error
        # Below the least number that has all its digits, they err by its last digit.
        step = 0.0 if self.is_integral(value) else smallest_of(after) * eps_of(after)
        own = number(step, self._state) if step > _NEGLIGIBLE else None
        return self._result(value, both(error.drift, own, add), error.rounding)

    def _result(self, value: Any, drift: Any, rounding: float = 0.0) -> Error:
        """The error of an operation with its own rounding, 0 for whole numbers the type holds."""
        from tvm.tirx import Select

        eps = _eps(value)
        if not eps or not self.is_integral(value):
            return Error(drift, rounding + eps)
        size = self._size(value)
        zero = number(0.0, self._state)
        own = Select(size <= number(2 / eps, self._state), zero, size * number(eps, self._state))
        return Error(both(drift, own, add), rounding)

    def _sum(self, value: Any) -> Error:
        return self._result(value, both(self.whole(value.a), self.whole(value.b), add))

    def _product(self, value: Any) -> Error:
        a, b = self.of(value.a), self.of(value.b)
        # Each operand's bound occurs once: otherwise each nested product would double the
        # expression.
        size = both(self._size(value.b), b.drift, add)
        left = None if a.drift is None else a.drift * size
        right = None if b.drift is None else b.drift * self._size(value.a)
        return self._result(value, both(left, right, add), a.rounding + b.rounding)

    def _quotient(self, value: Any) -> Error:
        a, b = self.of(value.a), self.of(value.b)
        if not is_float(dtype_of(value)):
            if b:
                raise Unbounded("a division by an integer that was rounded")
            one = number(1.0, self._state)
            return Error(a.drift / self._size(value.b) + one) if a else _NONE
        right = None if b.drift is None else b.drift * self._size(value)
        drift = both(a.drift, right, add)
        drift = None if drift is None else drift / self._size(value.b)
        return Error(drift, a.rounding + b.rounding + _QUOTIENTS * _eps(value))

    def _remainder(self, value: Any) -> Error:
        if self.of(value.a) or self.of(value.b):
            return Error(self._size(value.b))
        return _NONE

    def _bits(self, value: Any) -> Error:
        if any(self.of(operand) for operand in (value.a, getattr(value, "b", value.a))):
            raise Unbounded("bits of what was rounded")
        return _NONE

    def _shift(self, value: Any) -> Error:
        places = tvm_compat.as_int(value.b)
        error = self.of(value.a)
        if not error:
            return self._bits(value)
        if places is None or error.drift is None:
            raise Unbounded("a shift of what was rounded")
        return Error(error.drift * number(2.0**-places, self._state) + number(1.0, self._state))

    def _extreme(self, value: Any) -> Error:
        from tvm.tirx import Max

        return Error(both(self.finite(value.a), self.finite(value.b), Max))

    def _comparison(self, value: Any) -> Error:
        from tvm.tirx import Select

        bound = both(self.whole(value.a), self.whole(value.b), add)
        if bound is None:
            return _NONE
        apart = _abs(self.widened(value.a) - self.widened(value.b))
        return Error(Select(apart <= bound, number(1.0, self._state), number(0.0, self._state)))

    def _logic(self, value: Any) -> Error:
        from tvm.tirx import Max

        operands = (value.a, value.b) if hasattr(value, "b") else (value.a,)
        drift = None
        for operand in operands:
            drift = both(drift, self.whole(operand), Max)
        return Error(drift)

    def _select(self, value: Any) -> Error:
        return self._chosen(value.condition, value.true_value, value.false_value, lazy=False)

    def _chosen(self, condition: Any, left: Any, right: Any, *, lazy: bool) -> Error:
        from tvm.tirx import Max, Select, if_then_else

        zero = number(0.0, self._state)
        unsure = self.whole(condition)
        errors = [self.whole(left), self.whole(right)]
        if unsure is None and errors == [None, None]:
            return _NONE
        a, b = (zero if error is None else error for error in errors)
        sure = if_then_else(condition, a, b) if lazy else Select(condition, a, b)
        if unsure is None:
            return Error(sure)
        if lazy and any(rewrite.reads(side) for side in (left, right)):
            # The condition may be what keeps an index inside of its tensor.
            raise Unbounded("what is read only under a condition that may turn out otherwise")
        apart = _abs(self.widened(left) - self.widened(right)) + Max(a, b)
        return Error(Select(unsure > zero, apart, sure))

    def _call(self, value: Any) -> Error:
        name = operator_of(value)
        if name == "if_then_else":
            return self._chosen(*value.args, lazy=True)
        if name in ("likely", "abs", "fabs"):
            return self.of(value.args[0])
        if name in _ROUNDINGS:
            return self._step(value.args[0], value.op)
        if not is_float(dtype_of(value)):
            if any(self.of(argument) for argument in value.args):
                raise Unbounded(f"{name} of what was rounded")
            return _NONE
        if name in ("reinterpret", "call_extern", "call_pure_extern", ""):
            raise Unbounded(name)
        return self._of_function(value, name)

    def _of_function(self, value: Any, name: str) -> Error:
        """The error of a function that is monotonic in each argument, or as flat as a sine."""
        eps = min(eps_of(dtype_of(value)), eps_of("float32"))
        arguments = [self.widened(a) if is_float(dtype_of(a)) else a for a in value.args]
        drift = None
        for i, argument in enumerate(value.args):
            if not is_float(dtype_of(argument)) or kind_of(argument) == "FloatImm":
                continue
            spread = self._round(argument, _ARGUMENTS * eps)
            spread = both(self._inside(argument), spread, add)
            if name in _FLAT:
                moved = spread + number(_CALLS * eps, self._state)
            else:
                moved = self._move(value.op, arguments, i, spread)
            drift = both(drift, moved, add)
        own = eps_of(dtype_of(value))
        if name not in _FORMULAS:
            return Error(drift, _CALLS * eps + own)
        near_zero = number(own if name != "sigmoid" else smallest_of(dtype_of(value)), self._state)
        return Error(drift + near_zero, _CALLS * eps + _OPERATIONS * own)

    def _step(self, argument: Any, function: Any) -> Error:
        """The error of a step function, whose argument may lie on either side of a step."""
        spread = self._inside(argument)
        if spread is None or self.is_integral(argument):
            return Error(spread)
        return Error(self._move(function, [self.widened(argument)], 0, spread))

    def _inside(self, argument: Any) -> Any | None:
        """The bound of a function's argument."""
        if self._depth == _DEEPEST:
            raise Unbounded("functions of functions of functions")
        self._depth += 1
        bound = self.whole(argument)
        self._depth -= 1
        return bound

    def _move(self, function: Any, arguments: Sequence[Any], i: int, spread: Any) -> Any:
        """The most that a function changes where argument `i` is off by up to `spread`."""
        from tvm.tirx import Max, call_intrin

        wide, zero = self._state.wide, number(0.0, self._state)

        def at(argument: Any) -> Any:
            given = [argument if k == i else a for k, a in enumerate(arguments)]
            return call_intrin(wide, function, *given)

        def change(x: Any, moved: Any) -> Any:
            return Max(_abs(at(moved) - at(x)), zero)  # which is 0 at NaN, in TVM

        # Repeated instead of bound: TVM 0.27 does not look into a `Let` when it writes bfloat16 out
        # as integers, and at times binds its variable twice while it simplifies.
        x = arguments[i]
        return Max(change(x, x + spread), change(x, x - spread))

    def _size(self, value: Any) -> Any:
        """The size of a value, never infinite: infinity times an error of 0 would be NaN. Infinite
        values are dealt with at the end, see `finite`."""
        from tvm.tirx import Min, max_value

        if kind_of(value) == "FloatImm":
            return number(min(abs(float(value.value)), _LARGEST), self._state)
        size = _abs(self.widened(value))
        return Min(size, max_value(self._state.wide)) if is_float(dtype_of(value)) else size


_RULES: dict[str, Any] = {
    "Let": Errors._let,
    "Cast": Errors._cast,
    "Add": Errors._sum,
    "Sub": Errors._sum,
    "Mul": Errors._product,
    "Div": Errors._quotient,
    "FloorDiv": Errors._quotient,
    "Mod": Errors._remainder,
    "FloorMod": Errors._remainder,
    "Max": Errors._extreme,
    "Min": Errors._extreme,
    "RShift": Errors._shift,
    "Select": Errors._select,
    "Call": Errors._call,
    **dict.fromkeys(("EQ", "NE", "LT", "LE", "GT", "GE"), Errors._comparison),
    **dict.fromkeys(("And", "Or", "Not"), Errors._logic),
    **dict.fromkeys(
        ("LShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot"), Errors._bits
    ),
}


def operator_of(call: Any) -> str:
    """The operator of a call, without the dialect: `exp`; empty where it calls anything else."""
    return str(getattr(call.op, "name", "")).rpartition(".")[2]


def kind_of(node: Any) -> str:
    """Name of a node's class."""
    return type(node).__name__


def dtype_of(value: Any) -> str:
    return str(value.ty.dtype)


def _holds(after: str, before: str) -> bool:
    """Whether a float type holds all values of an integer type."""
    return tvm_compat.element_bits(before) <= round(-math.log2(eps_of(after))) + 1


def both(a: Any, b: Any, join: Any) -> Any:
    """Two bounds joined; None stands for no error."""
    if a is None or b is None:
        return b if a is None else a
    return join(a, b)


def _eps(value: Any) -> float:
    return eps_of(dtype_of(value)) if is_float(dtype_of(value)) else 0.0


def _abs(value: Any) -> Any:
    from tvm.tirx import abs

    return abs(value)
