"""How far right kernels may be from what a program computed, element by element.

A program is rewritten so that beside each tensor it computes a bound on the error of its elements:
for what is summed, multiplied and rounded with these very numbers, in the types that they are
really accumulated and stored in. Two computations are compared, of which each errs by half of a
type's `eps` in each operation, so `eps` is what one operation counts:

    a + b, a * b   the operands' errors, propagated to first order, and eps of the result
    a / b          the same and 2 eps, since divisions become products with reciprocals
    exp(a), ...    what it gives at either end of what `a` may be, and eps of the result; on the
                   way 4 of float32's eps of `a` and 8 of the result, which is what vectorised
                   formulas and a GPU's intrinsics lose
    max, select    that of either operand; where the condition may turn out otherwise, both
    round(a), ...  one step, but only where `a` may lie on either side of where it rounds
                   otherwise; what the step is worth after it follows from what is done with it

A sum of K terms may be added up in any order. In a random one the k-th partial sum squared is
about (k/K)**2 of the sum's square S**2 and k/K * (1 - k/K) of the terms' squares Q, and each
rounding is an independent error of at most eps/2 of the partial sum: a standard deviation of
eps/2 * sqrt(K * (S**2 / 3 + Q / 6)) at most, and two thirds of that for a difference of two such
sums, since roundings are spread evenly. Four of it are allowed: more than five deviations. Rounded
terms add their rounding times sqrt(K * Q), which is no less than the sum of their sizes. What is
accumulated in a small type may stagnate, always rounding the same way: for these types the terms
are summed in a wide one too, and twice the distance counts.

That roundings are independent and of mean zero, and that sums err as sqrt(K) and not as K, is the
model of Higham and Mary, "A New Approach to Probabilistic Rounding Error Analysis", SIAM J. Sci.
Comput. 41(5), 2019; to carry bounds along with values is Wilkinson's running error analysis
(Higham, "Accuracy and Stability of Numerical Algorithms", 3.3).

Sums and products of whole numbers that a float type holds are exact, which quantised values are.
What a program computes without any rounding, as copies, maxima and integers, has no bound here: it
must be equal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from spaces import names, nodes
from spaces.numbers import eps_of, is_float, smallest_of

_SUMS = 2.0
_CALLS, _ARGUMENTS, _QUOTIENTS = 8.0, 4.0, 2.0
_SMALL = ("float16", "bfloat16", "float8")
_ROUNDINGS = ("round", "nearbyint", "floor", "ceil", "trunc", "rint")
_FLAT = ("sin", "cos", "tan")
_FORMULAS = ("tanh", "sigmoid", "erf", "sinh", "cosh", "asin", "acos", "atan", "asinh", "atanh")
"""Functions that TVM writes out in their own type, as tanh by exponentials: some operations, and
near zero the difference of two numbers near 1."""
_OPERATIONS = 4.0
_MOST_PASSES = 20
_LARGEST = 3e38


class Unbounded(Exception):
    """The program does something whose errors are not known."""


@dataclass(frozen=True, slots=True)
class Shadow:
    """What is kept beside a tensor that may come out otherwise.

    Attributes:
        drift: tensor of what its elements err by, but for the order of a sum.
        squares: of a sum, its terms' squares; else None.
        exact: of a sum in a small type, the same in a wide one; else None.
        terms: of the longest sum.
        roughness: rounding of one term, relative to its size.
        eps: of the type that is accumulated in.
    """

    drift: Any
    squares: Any = None
    exact: Any = None
    terms: int = 0
    roughness: float = 0.0
    eps: float = 0.0

    @property
    def tensors(self) -> list[Any]:
        """Those that there are."""
        return [t for t in (self.drift, self.squares, self.exact) if t is not None]

    def bound(self, total: Any, parts: Sequence[Any], sqrt: Any, size: Any) -> Any:
        """The bound of an element, or of all.

        Args:
            total: value of the element.
            parts: what the tensors hold there, in their order.
            sqrt: square root of such a number, `size` its absolute value.
        """
        drift, *rest = parts
        if not rest:
            return drift
        squares, *exact = rest
        order = sqrt((total * total * (1 / 3) + squares * (1 / 6)) * float(self.terms))
        whole = drift + order * (_SUMS * self.eps)
        if self.roughness:
            whole = whole + sqrt(squares * float(self.terms)) * self.roughness
        return whole + size(exact[0] - total) * 2.0 if exact else whole


@dataclass(frozen=True, slots=True)
class Bounded:
    """A program that computes bounds as well.

    Attributes:
        function: with the shadows' tensors of what it writes as further parameters, in order.
        shadows: of parameters, by position.
        wide: type of all bounds.
    """

    function: Any
    shadows: dict[int, Shadow]
    wide: str


def with_bounds(function: Any, written: Sequence[int]) -> Bounded:
    """A PrimFunc, scheduled or not, that computes the same and the bounds of it.

    Args:
        written: positions of the parameters that it stores to.

    Raises:
        Unbounded: nobody knows how what it does errs.
    """
    from tvm.tirx import PrimFunc

    state = _State(*_types(function))
    for _ in range(_MOST_PASSES):
        state.changed = False
        rewriter = _Rewriter(state)
        body = rewriter.of(function.body)
        if rewriter.integral != state.integral:
            state.integral, state.changed = rewriter.integral, True
        if not state.changed:
            break
    else:
        raise Unbounded("errors that go round in circles")
    shadows = {i: s for i in sorted(written) if (s := state.of(function.params[i])) is not None}
    extra = [tensor for shadow in shadows.values() for tensor in shadow.tensors]
    made = PrimFunc([*function.params, *extra], body, function.ret_type, function.attrs)
    return Bounded(made, shadows, state.wide)


def _types(function: Any) -> tuple[str, bool]:
    """The type of bounds, and whether parts of expressions can have names.

    32 bits do for all but what has 64. TVM 0.27 forgets to look into a `Let` when it writes
    bfloat16 and the 8-bit floats out as integers.
    """
    tensors = [*function.params, *(b for s in names.sblocks(function) for b in s.alloc_buffers)]
    dtypes = {names.param_dtype(tensor) for tensor in tensors}
    small = any(dtype.startswith(("bfloat16", "float8")) for dtype in dtypes)
    return "float64" if "float64" in dtypes else "float32", not small


@dataclass(frozen=True, slots=True)
class _Error:
    """Of an expression: a bound that is computed, and a rounding relative to its own size."""

    drift: Any = None
    rounding: float = 0.0

    def __bool__(self) -> bool:
        return self.drift is not None or self.rounding > 0


_NONE = _Error()


@dataclass
class _State:
    """What is known of tensors. Grows until nothing changes."""

    wide: str
    can_name: bool
    shadows: dict[int, Shadow] = field(default_factory=dict)
    integral: dict[int, bool] = field(default_factory=dict)
    changed: bool = False

    def of(self, tensor: Any) -> Shadow | None:
        return self.shadows.get(hash(tensor))

    def drifts(self, tensor: Any) -> Shadow:
        """The shadow of a tensor, made where it has none."""
        known = self.of(tensor)
        if known is None:
            known = self._put(tensor, Shadow(self._like(tensor, "drift")))
        return known

    def sums(self, tensor: Any, terms: int, roughness: float) -> Shadow:
        """The shadow of a tensor that something is added up in."""
        known = self.drifts(tensor)
        squares = known.squares if known.squares is not None else self._like(tensor, "squares")
        exact = known.exact
        dtype = names.param_dtype(tensor)
        if exact is None and dtype.startswith(_SMALL):
            exact = self._like(tensor, "exact")
        most = max(terms, known.terms), max(roughness, known.roughness)
        if known.squares is not None and most == (known.terms, known.roughness):
            return known
        return self._put(tensor, Shadow(known.drift, squares, exact, *most, eps_of(dtype)))

    def _put(self, tensor: Any, shadow: Shadow) -> Shadow:
        self.shadows[hash(tensor)] = shadow
        self.changed = True
        return shadow

    def _like(self, tensor: Any, what: str) -> Any:
        from tvm.tirx import decl_buffer

        return decl_buffer(names.param_dims(tensor), self.wide, f"{tensor.name}_{what}")


class _Rewriter:
    """Statements with those that keep shadows up to date before them.

    Attributes:
        integral: of the tensors that are stored to, which hold nothing but whole numbers.
    """

    def __init__(self, state: _State) -> None:
        self._state = state
        self._errors = _Errors(state)
        self._loops: list[Any] = []
        self._sums: list[int | None] = []
        self._written: list[Any] = []
        self._values: dict[int, Any] = {}
        self.integral: dict[int, bool] = {}

    def of(self, body: Any) -> Any:
        import tvm
        from tvm import tirx
        from tvm_ffi import structural_mutate

        return structural_mutate(
            body,
            [
                (tirx.For, self._loop),
                (tvm.s_tir.SBlock, self._block),
                (tirx.BufferStore, lambda node, _mutator: self._store(node)),
                (tirx.Bind, lambda node, _mutator: self._bind(node)),
                (tirx.Evaluate, lambda node, _mutator: self._evaluate(node)),
                (tirx.SeqStmt, self._sequence),
            ],
        )

    def _loop(self, node: Any, mutator: Any) -> Any:
        self._loops.append(node)
        try:
            return mutator.default_mutate(node)
        finally:
            self._loops.pop()

    def _sequence(self, node: Any, mutator: Any) -> Any:
        from tvm.tirx import SeqStmt

        parts: list[Any] = []
        for part in node.seq:
            done = mutator.mutate(part)
            parts += list(done.seq) if isinstance(done, SeqStmt) else [done]
        return SeqStmt(parts)

    def _block(self, node: Any, mutator: Any) -> Any:
        if len(node.match_buffers):
            raise Unbounded("a block that matches buffers")
        extents = [
            names.known_int(axis.dom.extent) or 1
            for axis in node.iter_vars
            if int(axis.iter_type) == names.REDUCED
        ]
        outside, self._written = self._written, [region.source for region in node.writes]
        self._sums.append(math.prod(extents) if extents else None)
        try:
            made = mutator.default_mutate(node)
        finally:
            self._sums.pop()
            self._written = outside
        buffers = list(made.alloc_buffers)
        own = [t for b in buffers if (s := self._state.of(b)) is not None for t in s.tensors]
        return nodes.changed_block(
            made,
            reads=self._regions(made.reads),
            writes=self._regions(made.writes),
            buffers=[*buffers, *own],
        )

    def _regions(self, regions: Any) -> list[Any]:
        from tvm.tirx import BufferRegion

        found = list(regions)
        for region in regions:
            shadow = self._state.of(region.source)
            for tensor in shadow.tensors if shadow else ():
                found.append(BufferRegion(tensor, region.region))
        return found

    def _evaluate(self, node: Any) -> Any:
        from tvm.ir import Call

        if isinstance(node.value, Call):
            raise Unbounded("a call that may do anything")
        return node

    def _bind(self, node: Any) -> Any:
        from tvm.tirx import Bind, SeqStmt

        self._values[hash(node.var)] = node.value
        bound = self._errors.finite(node.value)
        if bound is None:
            return node
        known = self._errors.remember(node.var)
        return SeqStmt([node, Bind(known, bound)])

    def _store(self, node: Any) -> Any:
        from tvm.tirx import BufferStore, SeqStmt

        key = hash(node.buffer)
        self.integral[key] = self.integral.get(key, True) and self._errors.is_integral(node.value)
        value = self._values.get(hash(node.value), node.value)
        term = _term(node, value)
        if value is not node.value and any(nodes.is_among(t, self._written) for t in loaded(term)):
            term = None  # what it is made of may have changed since the variable got its value
        if term is not None:
            before = self._added(node, term, nodes_type(value) == "Sub")
        else:
            before = self._replaced(node)
        stores = [BufferStore(tensor, value, node.indices) for tensor, value in before]
        return SeqStmt([*stores, node]) if stores else node

    def _added(self, node: Any, term: Any, negative: bool) -> list[tuple[Any, Any]]:
        """Updates of the shadow of what a term is added to."""
        error = self._errors.of(term)
        shadow = self._state.sums(node.buffer, self._terms(node), error.rounding)
        value = self._errors.widened(term)
        updates = [(shadow.squares, value * value)]
        if error.drift is not None:
            updates.append((shadow.drift, error.drift))
        if shadow.exact is not None:
            signed = value * _f(-1.0, self._state) if negative else value
            updates.append((shadow.exact, signed))
        return [(t, _load(t, node.indices) + more) for t, more in updates]

    def _replaced(self, node: Any) -> list[tuple[Any, Any]]:
        """New contents of the shadow of what gets a new value."""
        bound = self._errors.finite(node.value)
        known = self._state.of(node.buffer)
        if bound is None and known is None:
            return []
        shadow = known or self._state.drifts(node.buffer)
        zero = _f(0.0, self._state)
        updates = [(shadow.drift, zero if bound is None else bound)]
        if shadow.squares is not None:
            updates.append((shadow.squares, zero))
        if shadow.exact is not None:
            updates.append((shadow.exact, self._errors.widened(node.value)))
        return updates

    def _terms(self, node: Any) -> int:
        """How many terms a sum has, with what was there before."""
        known = [count for count in self._sums if count is not None]
        if known:
            return math.prod(known)
        used = [loop for loop in self._loops if not nodes_use(node.indices, loop.loop_var)]
        return 1 + math.prod(names.known_int(loop.extent) or 1 for loop in used)


class _Errors:
    """Bounds of expressions."""

    def __init__(self, state: _State) -> None:
        self._state = state
        self._variables: dict[int, Any] = {}

    def remember(self, variable: Any) -> Any:
        """The variable that holds the bound of another."""
        from tvm.tirx import Var

        known = Var(f"{variable.name}_drift", self._state.wide)
        self._variables[hash(variable)] = known
        return known

    def whole(self, value: Any) -> Any | None:
        """The bound of a value; None where it has no error."""
        error = self.of(value)
        if not error:
            return None
        rounded = self._rounded(value, error.rounding)
        if error.drift is None or rounded is None:
            return rounded if error.drift is None else error.drift
        return error.drift + rounded

    def of(self, value: Any) -> _Error:
        """What an expression errs by."""
        kind = nodes_type(value)
        if kind in ("IntImm", "FloatImm", "StringImm"):
            return _NONE
        if kind == "TensorLoad":
            return self._loaded(value)
        if kind in ("Var", "PrimVar"):
            known = self._variables.get(hash(value))
            return _NONE if known is None else _Error(known)
        rule = _RULES.get(kind)
        if rule is None:
            raise Unbounded(f"a {kind}")
        error: _Error = rule(self, value)
        return error

    def is_integral(self, value: Any) -> bool:
        """Whether a value is a whole number, of whatever type."""
        kind = nodes_type(value)
        if not is_float(_dtype(value)) or (kind == "Call" and operator_of(value) in _ROUNDINGS):
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
        """Like `whole`; 0 where the value is NaN or infinite, for which the same is asked."""
        from tvm.tirx import Select, max_value

        bound = self.whole(value)
        if bound is None or not is_float(_dtype(value)):
            return bound
        most = max_value(self._state.wide)
        return Select(_abs(self.widened(value)) <= most, bound, _f(0.0, self._state))

    def _rounded(self, value: Any, rounding: float) -> Any | None:
        return self._size(value) * _f(rounding, self._state) if rounding else None

    def _loaded(self, load: Any) -> _Error:
        shadow = self._state.of(load.source)
        if shadow is None:
            return _NONE
        from tvm.tirx import sqrt

        parts = [_load(tensor, load.indices) for tensor in shadow.tensors]
        return _Error(shadow.bound(self.widened(load), parts, sqrt, _abs))

    def _let(self, value: Any) -> _Error:
        from tvm.tirx import Let

        bound = self.whole(value.value)
        known = None if bound is None else self.remember(value.var)
        inner = self.of(value.body)
        if inner.drift is None:
            return inner
        drift = inner.drift if known is None else Let(known, bound, inner.drift)
        return _Error(Let(value.var, value.value, drift), inner.rounding)

    def _cast(self, value: Any) -> _Error:
        from tvm.ir import Op

        before, after = _dtype(value.value), _dtype(value)
        error = self.of(value.value)
        if is_float(before) and not is_float(after):
            return self._stepped(value.value, Op.get("tirx.trunc"))
        if not is_float(after):
            return error
        exact = eps_of(after) <= eps_of(before) if is_float(before) else _holds(after, before)
        return error if exact else self._result(value, error.drift, error.rounding)

    def _result(self, value: Any, drift: Any, rounding: float = 0.0) -> _Error:
        """What an operation errs by with its own rounding: none of a whole number that is held."""
        from tvm.tirx import Select

        eps = _eps(value)
        if not eps or not self.is_integral(value):
            return _Error(drift, rounding + eps)
        size = self._size(value)
        zero = _f(0.0, self._state)
        own = Select(size <= _f(2 / eps, self._state), zero, size * _f(eps, self._state))
        return _Error(_both(drift, own, lambda a, b: a + b), rounding)

    def _sum(self, value: Any) -> _Error:
        drift = _both(self.whole(value.a), self.whole(value.b), lambda a, b: a + b)
        return self._result(value, drift)

    def _product(self, value: Any) -> _Error:
        a, b = self.of(value.a), self.of(value.b)
        left = None if a.drift is None else a.drift * self._size(value.b)
        right = None if b.drift is None else b.drift * self._size(value.a)
        drift = _both(left, right, lambda x, y: x + y)
        if a.drift is not None and b.drift is not None:
            drift = drift + _renamed(a.drift) * _renamed(b.drift)
        return self._result(value, drift, a.rounding + b.rounding)

    def _quotient(self, value: Any) -> _Error:
        a, b = self.of(value.a), self.of(value.b)
        if not is_float(_dtype(value)):
            if b:
                raise Unbounded("a division by an integer that was rounded")
            one = _f(1.0, self._state)
            return _Error(a.drift / self._size(value.b) + one) if a else _NONE
        right = None if b.drift is None else b.drift * self._size(value)
        drift = _both(a.drift, right, lambda x, y: x + y)
        drift = None if drift is None else drift / self._size(value.b)
        return _Error(drift, a.rounding + b.rounding + _QUOTIENTS * _eps(value))

    def _remainder(self, value: Any) -> _Error:
        if self.of(value.a) or self.of(value.b):
            return _Error(self._size(value.b))
        return _NONE

    def _bits(self, value: Any) -> _Error:
        if any(self.of(operand) for operand in (value.a, getattr(value, "b", value.a))):
            raise Unbounded("bits of what was rounded")
        return _NONE

    def _shifted(self, value: Any) -> _Error:
        places = names.known_int(value.b)
        error = self.of(value.a)
        if not error:
            return self._bits(value)
        if places is None or error.drift is None:
            raise Unbounded("a shift of what was rounded")
        one = _f(1.0, self._state)
        return _Error(error.drift * _f(2.0**-places, self._state) + one)

    def _extreme(self, value: Any) -> _Error:
        from tvm.tirx import Max

        return _Error(_both(self.finite(value.a), self.finite(value.b), Max))

    def _comparison(self, value: Any) -> _Error:
        from tvm.tirx import Select

        bound = _both(self.whole(value.a), self.whole(value.b), lambda a, b: a + b)
        if bound is None:
            return _NONE
        apart = _abs(self.widened(value.a) - self.widened(value.b))
        return _Error(Select(apart <= bound, _f(1.0, self._state), _f(0.0, self._state)))

    def _logic(self, value: Any) -> _Error:
        from tvm.tirx import Max

        operands = (value.a, value.b) if hasattr(value, "b") else (value.a,)
        drift = None
        for operand in operands:
            drift = _both(drift, self.whole(operand), Max)
        return _Error(drift)

    def _select(self, value: Any) -> _Error:
        return self._chosen(value.condition, value.true_value, value.false_value, lazy=False)

    def _chosen(self, condition: Any, left: Any, right: Any, *, lazy: bool) -> _Error:
        from tvm.tirx import Max, Select, if_then_else

        zero = _f(0.0, self._state)
        unsure = self.whole(condition)
        errors = [self.whole(left), self.whole(right)]
        if unsure is None and errors == [None, None]:
            return _NONE
        a, b = (zero if error is None else error for error in errors)
        sure = if_then_else(condition, a, b) if lazy else Select(condition, a, b)
        if unsure is None:
            return _Error(sure)
        apart = _abs(self.widened(left) - self.widened(right))
        apart = apart + Max(_renamed(a), _renamed(b))
        return _Error(Select(unsure > zero, apart, sure))

    def _call(self, value: Any) -> _Error:
        name = operator_of(value)
        if name == "if_then_else":
            return self._chosen(*value.args, lazy=True)
        if name in ("likely", "abs", "fabs"):
            return self.of(value.args[0])
        if name in _ROUNDINGS:
            return self._stepped(value.args[0], value.op)
        if not is_float(_dtype(value)):
            if any(self.of(argument) for argument in value.args):
                raise Unbounded(f"{name} of what was rounded")
            return _NONE
        if name in ("reinterpret", "call_extern", "call_pure_extern", ""):
            raise Unbounded(name)
        return self._of_function(value, name)

    def _of_function(self, value: Any, name: str) -> _Error:
        """A function that grows or falls with each of its arguments, or is as flat as a sine."""
        eps = min(eps_of(_dtype(value)), eps_of("float32"))
        arguments = [self.widened(a) if is_float(_dtype(a)) else a for a in value.args]
        drift = None
        for i, argument in enumerate(value.args):
            if not is_float(_dtype(argument)) or nodes_type(argument) == "FloatImm":
                continue
            spread = self._rounded(argument, _ARGUMENTS * eps)
            spread = _both(self.whole(argument), spread, lambda a, b: a + b)
            if name in _FLAT:
                moved = spread + _f(_CALLS * eps, self._state)
            else:
                moved = self._moved(value.op, arguments, i, spread)
            drift = _both(drift, moved, lambda a, b: a + b)
        own = eps_of(_dtype(value))
        if name not in _FORMULAS:
            return _Error(drift, _CALLS * eps + own)
        near_zero = _f(own if name != "sigmoid" else smallest_of(_dtype(value)), self._state)
        return _Error(drift + near_zero, _CALLS * eps + _OPERATIONS * own)

    def _stepped(self, argument: Any, function: Any) -> _Error:
        """A function that is constant but for its steps, of what may lie beside one."""
        spread = self.whole(argument)
        if spread is None:
            return _NONE
        return _Error(self._moved(function, [self.widened(argument)], 0, spread))

    def _moved(self, function: Any, arguments: Sequence[Any], i: int, spread: Any) -> Any:
        """By how much a function changes at most where an argument is off by as much as told."""
        from tvm.tirx import Let, Max, Select, Var, call_intrin

        wide, zero = self._state.wide, _f(0.0, self._state)

        def at(argument: Any) -> Any:
            given = [argument if k == i else a for k, a in enumerate(arguments)]
            return call_intrin(wide, function, *given)

        def change(x: Any, moved: Any) -> Any:
            apart = _abs(at(moved) - at(x))
            return Select(apart >= zero, apart, zero)  # at NaN there is nothing to tell

        def both(x: Any, by: Any) -> Any:
            return Max(change(x, x + by), change(x, x - by))

        if not self._state.can_name:
            return both(arguments[i], spread)
        x, by = Var("x", wide), Var("by", wide)
        return Let(x, arguments[i], Let(by, spread, both(x, by)))

    def _size(self, value: Any) -> Any:
        """How large a value is, never infinite: times no error that is none. What is made of
        infinity is told apart in the end, see `finite`."""
        from tvm.tirx import Min, max_value

        if nodes_type(value) == "FloatImm":
            return _f(min(abs(float(value.value)), _LARGEST), self._state)
        size = _abs(self.widened(value))
        return Min(size, max_value(self._state.wide)) if is_float(_dtype(value)) else size


_RULES: dict[str, Any] = {
    "Let": _Errors._let,
    "Cast": _Errors._cast,
    "Add": _Errors._sum,
    "Sub": _Errors._sum,
    "Mul": _Errors._product,
    "Div": _Errors._quotient,
    "FloorDiv": _Errors._quotient,
    "Mod": _Errors._remainder,
    "FloorMod": _Errors._remainder,
    "Max": _Errors._extreme,
    "Min": _Errors._extreme,
    "RShift": _Errors._shifted,
    "Select": _Errors._select,
    "Call": _Errors._call,
    **dict.fromkeys(("EQ", "NE", "LT", "LE", "GT", "GE"), _Errors._comparison),
    **dict.fromkeys(("And", "Or", "Not"), _Errors._logic),
    **dict.fromkeys(
        ("LShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot"), _Errors._bits
    ),
}


def loaded(expression: Any) -> list[Any]:
    """The tensors that an expression reads, none of None."""
    import tvm_ffi
    from tvm.ir import TensorLoad

    found: list[Any] = []
    if expression is not None:
        visit = (TensorLoad, lambda load: found.append(load.source))
        tvm_ffi.structural_walk(expression, visit)
    return found


def _term(store: Any, value: Any) -> Any | None:
    """What a store adds to what is there, where its value does that and these are floats."""
    from tvm.ir import TensorLoad
    from tvm_ffi import structural_equal

    kind = nodes_type(value)
    if kind not in ("Add", "Sub") or not is_float(_dtype(value)):
        return None

    def same(operand: Any) -> bool:
        return (
            isinstance(operand, TensorLoad)
            and operand.source.same_as(store.buffer)
            and structural_equal(list(operand.indices), list(store.indices))
        )

    if same(value.a):
        return value.b
    return value.a if kind == "Add" and same(value.b) else None


def operator_of(call: Any) -> str:
    """What a call calls, without the dialect: `exp`; empty where it is no operator."""
    return str(getattr(call.op, "name", "")).rpartition(".")[2]


def nodes_type(node: Any) -> str:
    """Name of a node's class."""
    return type(node).__name__


def nodes_use(indices: Sequence[Any], variable: Any) -> bool:
    """Whether any index uses a variable."""
    return any(nodes.uses(index, [variable]) for index in indices)


def _holds(after: str, before: str) -> bool:
    """Whether a float type holds all values of an integer type."""
    return names.element_bits(before) <= round(-math.log2(eps_of(after))) + 1


def _renamed(expression: Any) -> Any:
    """The same once more: no variable may have two places in a program that give it a value."""
    from tvm.tirx import Let, Var
    from tvm_ffi import structural_mutate

    def name(node: Any, mutator: Any) -> Any:
        node = mutator.default_mutate(node)
        fresh = Var(str(node.var.name), node.var.ty)
        return Let(fresh, node.value, nodes.replaced(node.body, [(node.var, fresh)]))

    return structural_mutate(expression, [(Let, name)])


def _both(a: Any, b: Any, join: Any) -> Any:
    if a is None or b is None:
        return b if a is None else a
    return join(a, b)


def _eps(value: Any) -> float:
    dtype = _dtype(value)
    return eps_of(dtype) if is_float(dtype) else 0.0


def _dtype(value: Any) -> str:
    return str(value.ty.dtype)


def _abs(value: Any) -> Any:
    from tvm.tirx import abs

    return abs(value)


def _f(value: float, state: _State) -> Any:
    from tvm.tirx import const

    return const(value, state.wide)


def _load(tensor: Any, indices: Any) -> Any:
    from tvm.tirx import BufferLoad

    return BufferLoad(tensor, list(indices))
