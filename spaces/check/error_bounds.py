"""Bounds on the difference between correct kernels and a program's output, element by element.

A program is rewritten so that beside each tensor it computes a bound on the error of its elements,
from the very numbers that are summed, multiplied and rounded, in the types that they are really
accumulated and stored in. Two computations are compared, each of which errs by half of a type's
`eps` in each operation, so one operation counts `eps`:

    a + b, a * b   the operands' errors, propagated to first order, and eps of the result
    a / b          the same and 2 eps, since divisions become products with reciprocals
    exp(a), ...    the change to its value at either end of the interval of `a`, and eps of the
                   result; on the way 4 of float32's eps of `a` and 8 of the result, which
                   vectorised formulas and a GPU's intrinsics lose
    max, select    the error of either operand; where the condition of a select may turn out
                   otherwise, also the distance between them
    round(a), ...  one step, but only where the interval of `a` contains a step; the effect of the
                   step on later results follows from the operations on it

A sum of K terms may be added up in any order. In a random one the k-th partial sum squared is
about (k/K)**2 of the sum's square S**2 and k/K * (1 - k/K) of the terms' squares Q, and each
rounding is an independent error of at most eps/2 of the partial sum: a standard deviation of
eps/2 * sqrt(K * (S**2 / 3 + Q / 6)) at most, and two thirds of that for a difference of two such
sums, since roundings are spread evenly. Four times the former is allowed: more than five deviations
of the difference. Rounded terms add their rounding times sqrt(K * Q), which is no less than the sum
of their sizes. A sum in a small type may stagnate, always rounding the same way, and so may a sum
of very many terms: these are summed in a wide type too, and twice the distance counts.

That roundings are independent and of mean zero, and that sums err as sqrt(K) and not as K, is the
model of Higham and Mary, "A New Approach to Probabilistic Rounding Error Analysis", SIAM J. Sci.
Comput. 41(5), 2019; to carry bounds along with values is Wilkinson's running error analysis
(Higham, "Accuracy and Stability of Numerical Algorithms", 3.3).

Sums and products of whole numbers that a float type holds are exact; quantised values are such.
Results without any rounding (copies, maxima, integers) have no bound here: they must be equal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from spaces.check.errors.expressions import Errors, dtype_of, kind_of
from spaces.check.errors.fast_math import FastErrors
from spaces.check.errors.shadows import Shadow, State, Unbounded, load_of, number
from spaces.check.errors.tf32 import find_roughness
from spaces.ir import rewrite, tvm_compat
from spaces.ir.element_types import is_float
from tuner.request.target_text import EXACT, Arithmetic

_MOST_PASSES = 20
_WIDEST = "float64"


@dataclass(frozen=True, slots=True)
class Bounded:
    """A program that computes bounds as well.

    Attributes:
        function: the program, with the shadow tensors of its outputs as further parameters.
        shadows: shadows of parameters, by position.
        wide: type of all bounds.
    """

    function: Any
    shadows: dict[int, Shadow]
    wide: str


def with_bounds(
    function: Any, written: Sequence[int], *, arithmetic: Arithmetic = EXACT
) -> Bounded:
    """Rewrite a PrimFunc, scheduled or not, to compute bounds on its errors as well.

    Args:
        written: positions of the parameters that it stores to.
        arithmetic: of the other program, see `spaces.check.errors.fast_math` and
            `spaces.check.errors.tf32`.

    Raises:
        Unbounded: it does something whose errors are not known.
    """
    from tvm.tirx import PrimFunc

    tvm_compat.keep_error_kind(Unbounded)
    state = State(_wide(function))
    body = _rewritten(function, state, arithmetic)
    if state.has_long_sums and state.wide != _WIDEST:
        state = State(_WIDEST)
        body = _rewritten(function, state, arithmetic)
    shadows = {i: s for i in sorted(written) if (s := state.of(function.params[i])) is not None}
    extra = [tensor for shadow in shadows.values() for tensor in shadow.tensors]
    made = PrimFunc([*function.params, *extra], body, function.ret_type, function.attrs)
    return Bounded(made, shadows, state.wide)


def _rewritten(function: Any, state: State, arithmetic: Arithmetic) -> Any:
    """The body of a function that computes bounds; the state learns what they are of.

    Raises:
        Unbounded: see `with_bounds`.
    """
    rules = FastErrors if arithmetic.fast_math else Errors
    for _ in range(_MOST_PASSES):
        state.changed = False
        rewriter = _Rewriter(state, rules(state), tf32=arithmetic.tf32)
        body = rewriter.of(function.body)
        if rewriter.integral != state.integral:
            state.integral, state.changed = rewriter.integral, True
        if not state.changed:
            return body
    raise Unbounded("errors that go round in circles")


def _wide(function: Any) -> str:
    """The type of bounds: float64 for programs with tensors of float64, else float32, which is
    enough where no sum is very long."""
    tensors = [
        *function.params,
        *(b for s in tvm_compat.sblocks(function) for b in s.alloc_buffers),
    ]
    return _WIDEST if any(tvm_compat.param_dtype(t) == _WIDEST for t in tensors) else "float32"


class _Rewriter:
    """Rewrites statements: those that keep shadows up to date come before each.

    Args:
        errors: of expressions, with the same state.
        tf32: whether the other program may multiply in it.

    Attributes:
        integral: for each tensor that is stored to, whether it holds nothing but whole numbers.
    """

    def __init__(self, state: State, errors: Errors, *, tf32: bool) -> None:
        self._state = state
        self._errors = errors
        self._tf32 = tf32
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
            tvm_compat.as_int(axis.dom.extent) or 1
            for axis in node.iter_vars
            if int(axis.iter_type) == tvm_compat.REDUCED
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
        return rewrite.change_block(
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
        if value is not node.value and any(
            rewrite.is_among(t, self._written) for t in _find_loads(term)
        ):
            term = None  # the tensors it reads may have changed since the variable got its value
        if term is not None:
            before = self._add_terms(node, term, kind_of(value) == "Sub")
        else:
            before = self._replace(node)
        stores = [BufferStore(tensor, value, node.indices) for tensor, value in before]
        return SeqStmt([*stores, node]) if stores else node

    def _add_terms(self, node: Any, term: Any, negative: bool) -> list[tuple[Any, Any]]:
        """Updates of a tensor's shadow where a term is added to an element."""
        error = self._errors.of(term)
        terms = self._terms(node)
        rough = find_roughness(term, terms) if self._tf32 else 0.0
        shadow = self._state.sums(node.buffer, terms, error.rounding + rough)
        value = self._errors.widened(term)
        updates = [(shadow.squares, value * value)]
        if error.drift is not None:
            updates.append((shadow.drift, error.drift))
        if shadow.exact is not None:
            signed = value * number(-1.0, self._state) if negative else value
            updates.append((shadow.exact, signed))
        return [(t, load_of(t, node.indices) + more) for t, more in updates]

    def _replace(self, node: Any) -> list[tuple[Any, Any]]:
        """New contents of a tensor's shadow where an element gets a new value."""
        bound = self._errors.finite(node.value)
        known = self._state.of(node.buffer)
        if bound is None and known is None:
            return []
        shadow = known or self._state.drifts(node.buffer)
        zero = number(0.0, self._state)
        updates = [(shadow.drift, zero if bound is None else bound)]
        if shadow.squares is not None:
            updates.append((shadow.squares, zero))
        if shadow.exact is not None:
            updates.append((shadow.exact, self._errors.widened(node.value)))
        return updates

    def _terms(self, node: Any) -> int:
        """The number of terms of a sum, the value before it included."""
        known = [count for count in self._sums if count is not None]
        if known:
            return math.prod(known)
        used = [loop for loop in self._loops if not _use(node.indices, loop.loop_var)]
        return 1 + math.prod(tvm_compat.as_int(loop.extent) or 1 for loop in used)


def _find_loads(expression: Any) -> list[Any]:
    """The tensors that an expression reads; none if it is None."""
    import tvm_ffi
    from tvm.ir import TensorLoad

    found: list[Any] = []
    if expression is not None:
        visit = (TensorLoad, lambda load: found.append(load.source))
        tvm_ffi.structural_walk(expression, visit)
    return found


def _term(store: Any, value: Any) -> Any | None:
    """The term that a store of floats adds to the element it writes; None where it does not add."""
    from tvm.ir import TensorLoad
    from tvm_ffi import structural_equal

    kind = kind_of(value)
    if kind not in ("Add", "Sub") or not is_float(dtype_of(value)):
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


def _use(indices: Sequence[Any], variable: Any) -> bool:
    """Whether any index uses a variable."""
    return any(rewrite.uses(index, [variable]) for index in indices)
