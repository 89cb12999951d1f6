"""What a stage computes at one place: a value, or a term of a sum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from spaces.ir import rewrite, tvm_compat
from spaces.ir.guard import Unsuitable

_SUMS = {"Add": 0.0, "Mul": 1.0}
"""Sums by TVM's name, with what they have to begin with to be shared out to threads."""
_EXTREMES = ("Max", "Min")


@dataclass(frozen=True, slots=True)
class Body:
    """What a stage computes.

    Attributes:
        target: the tensor that it writes; `indices` where.
        value: what it writes, or the term that it adds.
        combine: TVM's name of the operator that adds a term; empty where nothing is summed up.
        start: what a sum begins with.
    """

    target: Any
    indices: Sequence[Any]
    value: Any
    combine: str
    start: Any

    def join(self, one: Any, other: Any) -> Any:
        """Two parts of a sum as one."""
        from tvm import tirx

        return getattr(tirx, self.combine)(one, other)


def read_body(block: Any, axes: Sequence[tuple[Any, Any]]) -> Body:
    """What a block computes, with expressions in place of its axes.

    Raises:
        Unsuitable: it is more than one store, or a sum that threads cannot share.
    """
    from tvm import tirx

    store = block.body
    if not isinstance(store, tirx.BufferStore):
        raise Unsuitable("a block of more than one store")
    indices = list(store.indices)
    if block.init is None:
        value = rewrite.substitute(store.value, axes)
        return Body(store.buffer, indices, value, "", None)
    combine, term = type(store.value).__name__, _find_term(store)
    start = block.init.value
    if combine in _SUMS:
        known = getattr(start, "value", None)
        if known is None or float(known) != _SUMS[combine]:
            raise Unsuitable("a sum that begins with something")
    elif combine not in _EXTREMES:
        raise Unsuitable("a sum that threads cannot share")
    return Body(store.buffer, indices, rewrite.substitute(term, axes), combine, start)


def _find_term(store: Any) -> Any:
    """What a step of a sum adds.

    Raises:
        Unsuitable: it is no such step.
    """
    from tvm.ir import TensorLoad

    sides = [getattr(store.value, side, None) for side in ("a", "b")]
    for own, term in (sides, sides[::-1]):
        is_own = isinstance(own, TensorLoad) and own.source.same_as(store.buffer)
        others = [] if term is None else all_loads(term)
        if is_own and not any(load.source.same_as(store.buffer) for load in others):
            return term
    raise Unsuitable("a sum that is no plain one")


def flat_index(buffer: Any, indices: Sequence[Any]) -> Any:
    """The index of an element in the flat tensor."""
    found: Any = None
    for dim, index in zip(buffer.shape, indices, strict=True):
        found = index if found is None else found * _like(dim, index) + index
    return found if found is not None else _zero()


def count_elements(buffer: Any) -> Any:
    """The number of elements of a tensor, an expression of TVM's or a number."""
    found: Any = 1
    for dim in buffer.shape:
        found = dim * found
    return found


def _zero() -> Any:
    from tvm import tirx

    return tirx.const(0, "int64")


def _like(dim: Any, index: Any) -> Any:
    from tvm import tirx

    known = tvm_compat.as_int(dim)
    if known is not None:
        return rewrite.constant(known, index)
    return dim if str(dim.ty.dtype) == str(index.ty.dtype) else tirx.Cast(str(index.ty.dtype), dim)


def all_loads(expression: Any) -> list[Any]:
    """All loads in an expression."""
    import tvm
    from tvm_ffi import structural_walk

    found: list[Any] = []
    structural_walk(expression, (tvm.ir.TensorLoad, found.append))
    return found


def loads_of(expression: Any, guards: Sequence[Any] = ()) -> list[tuple[Any, Sequence[Any]]]:
    """The loads in an expression, in order, each with the conditions without which it is not made;
    those of a condition, and of what is computed where one does not hold, are left out.

    Args:
        guards: conditions of the whole expression.
    """
    import tvm
    from tvm_ffi import structural_visit

    found: list[tuple[Any, Sequence[Any]]] = []

    def load(node: Any, _visitor: Any) -> None:
        found.append((node, guards))

    def call(node: Any, visitor: Any) -> None:
        if str(getattr(node.op, "name", "")) == tvm_compat.IF_THEN_ELSE:
            condition, value, _other = node.args
            found.extend(loads_of(value, [*guards, *rewrite.conjuncts(condition)]))
            return
        for argument in node.args:
            visitor.visit(argument)

    structural_visit(expression, [(tvm.ir.TensorLoad, load), (tvm.ir.Call, call)])
    return found
