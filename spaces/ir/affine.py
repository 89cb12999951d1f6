"""Index expressions as affine sums of variables, as far as they are affine."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Index:
    """One index expression.

    Attributes:
        steps: change of the index with one step of each variable, by the variable's number.
        constant: value of the index where all variables are 0.
        tangled: variables that it depends on in any other way.
    """

    steps: dict[int, int]
    constant: int
    tangled: frozenset[int]

    @property
    def uses(self) -> frozenset[int]:
        """All variables that it depends on."""
        return frozenset(self.steps) | self.tangled


def read_index(expression: Any, numbers: dict[Any, int], fixed: frozenset[int]) -> Index:
    """Take an index expression apart.

    Args:
        numbers: numbers of the variables; other variables count as 0.
        fixed: variables that are always 0.
    """
    kind = type(expression).__name__
    if kind == "IntImm":
        return Index({}, int(expression.value), frozenset())
    if kind == "Var":
        number = numbers.get(expression)
        known = number is not None and number not in fixed
        return Index({number: 1} if known and number is not None else {}, 0, frozenset())
    if kind == "Cast":
        return read_index(expression.value, numbers, fixed)
    if not hasattr(expression, "a"):  # a place that is looked up, or a call
        return Index({}, 0, _find_variables(expression, numbers, fixed))
    left = read_index(expression.a, numbers, fixed)
    right = read_index(expression.b, numbers, fixed)
    if kind in ("Add", "Sub"):
        return _sum(left, right, 1 if kind == "Add" else -1)
    if kind == "Mul" and not left.uses:
        left, right = right, left
    if kind == "Mul" and not right.uses:
        by = right.constant
        steps = {v: s * by for v, s in left.steps.items()}
        return Index(steps, left.constant * by, left.tangled)
    return Index({}, 0, left.uses | right.uses)


def quotient_of(expressions: Iterable[Any], numbers: dict[Any, int], wanted: int) -> int | None:
    """The number that a variable is divided by, rounding down; None where it is not divided."""
    for expression in expressions:
        kind = type(expression).__name__
        if kind == "FloorDiv" and type(expression.b).__name__ == "IntImm":
            index = read_index(expression.a, numbers, frozenset())
            if index.steps == {wanted: 1} and not index.tangled and not index.constant:
                return int(expression.b.value)
        parts = [getattr(expression, part) for part in ("a", "b") if hasattr(expression, part)]
        if (found := quotient_of(parts, numbers, wanted)) is not None:
            return found
    return None


def _find_variables(
    expression: Any, numbers: dict[Any, int], fixed: frozenset[int]
) -> frozenset[int]:
    """The variables in an expression of any kind."""
    from tvm.ir import Var
    from tvm_ffi import structural_walk

    found: list[Any] = []
    structural_walk(expression, [(Var, found.append)])
    return frozenset(numbers[var] for var in found if var in numbers) - fixed


def _sum(left: Index, right: Index, sign: int) -> Index:
    steps = dict(left.steps)
    for variable, step in right.steps.items():
        steps[variable] = steps.get(variable, 0) + sign * step
    return Index(
        {v: s for v, s in steps.items() if s},
        left.constant + sign * right.constant,
        left.tangled | right.tangled,
    )
