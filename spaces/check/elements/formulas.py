"""A stage's statements as lists of operations on arrays, each carried out once.

What occurs in several places, as in the bounds of a sum, is one operation. What does not depend on
the step of a reduction is computed once for all steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from spaces.check.elements.operations import BINARY, UNARY, cast_to, function_of, reinterpret_as
from spaces.check.elements.stages import Stage, Unevaluable, same_indices
from spaces.check.errors.expressions import dtype_of, kind_of, operator_of
from spaces.ir import tvm_compat
from spaces.ir.element_types import numpy_dtype

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Contents:
    """The elements of a tensor that are known.

    Attributes:
        array: they, in a grid.
        rows: for each axis, the row of the grid that holds an index; None where all are held.
    """

    array: Array
    rows: tuple[Array, ...] | None = None

    def read(self, *indices: Any) -> Any:
        """Elements at indices, which must be inside."""
        if self.rows is not None:
            indices = tuple(rows[index] for rows, index in zip(self.rows, indices, strict=True))
        return self.array[indices]

    def read_near(self, *indices: Any) -> Any:
        """Elements at indices; where they are outside, any others."""
        shape = self.array.shape if self.rows is None else tuple(len(rows) for rows in self.rows)
        return self.read(
            *(np.clip(index, 0, size - 1) for index, size in zip(indices, shape, strict=True))
        )


@dataclass(frozen=True, slots=True)
class _Operation:
    """An operation on earlier results; `varies` from step to step."""

    function: Callable[..., Any]
    operands: tuple[int, ...]
    varies: bool


@dataclass
class Formula:
    """The statements of a stage, for an element or for a grid of them.

    Attributes:
        axes: slots of the stage's axes.
        before: slots of the tensors that it writes, before a step; `after`: after it.
    """

    axes: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...] = ()
    operations: dict[int, _Operation] = field(default_factory=dict)
    constants: dict[int, Any] = field(default_factory=dict)
    size: int = 0

    @property
    def varying(self) -> int:
        """The number of operations of each step."""
        return sum(operation.varies for operation in self.operations.values())

    @property
    def reads_before(self) -> bool:
        """Whether a step depends on what was there before it."""
        used = {i for operation in self.operations.values() for i in operation.operands}
        return bool(used.union(self.after).intersection(self.before))

    def run(
        self, axes: Sequence[Any], steps: Iterator[tuple[Any, ...]], state: list[Any]
    ) -> list[Any]:
        """The tensors after all steps.

        Args:
            axes: values of the spatial axes; of the others, anything.
            steps: values of the others, by the number of the axis.
            state: the tensors before.
        """
        values: list[Any] = [None] * self.size
        for slot, constant in self.constants.items():
            values[slot] = constant
        for slot, value in zip(self.axes, axes, strict=True):
            values[slot] = value
        each = []
        for slot, operation in self.operations.items():
            if operation.varies:
                each.append((slot, operation.function, operation.operands))
            else:
                values[slot] = operation.function(*(values[i] for i in operation.operands))
        for step in steps:
            for axis, value in step:
                values[self.axes[axis]] = value
            for slot, value in zip(self.before, state, strict=True):
                values[slot] = value
            for slot, function, operands in each:
                values[slot] = function(*[values[i] for i in operands])
            state = [values[slot] for slot in self.after]
        return state


def formula_of(stage: Stage, statements: Sequence[Any], contents: dict[int, Contents]) -> Formula:
    """The formula of a stage's statements.

    Args:
        contents: of the tensors that it may read, by their hashes.

    Raises:
        Unevaluable: an operation is not known.
    """
    return _Writer(stage, contents).write(statements)


def value_of(
    stage: Stage, expression: Any, axes: Sequence[Any], contents: dict[int, Contents]
) -> Any:
    """The value of an expression of a stage's axes.

    Raises:
        Unevaluable: an operation is not known, or a tensor's contents.
    """
    return _Writer(stage, contents).evaluate(expression, axes)


class _Writer:
    """Numbers the values of expressions; equal ones get the same number."""

    def __init__(self, stage: Stage, contents: dict[int, Contents]) -> None:
        self._stage, self._contents = stage, contents
        self._known: dict[Any, int] = {}
        self._varies: list[bool] = []
        axes = tuple(self._slot(axis.reduced) for axis in stage.axes)
        before = tuple(self._slot(True) for _ in stage.written)
        self._formula = Formula(axes, before)
        self._variables = {
            hash(axis.var): slot for axis, slot in zip(stage.axes, axes, strict=True)
        }
        self._state = {
            hash(tensor): slot for tensor, slot in zip(stage.written, before, strict=True)
        }

    def write(self, statements: Sequence[Any]) -> Formula:
        for statement in statements:
            value = self._of(statement.value)
            if kind_of(statement) == "Bind":
                self._variables[hash(statement.var)] = value
                continue
            dtype = tvm_compat.param_dtype(statement.buffer)
            if dtype != dtype_of(statement.value):
                raise Unevaluable("a store of another type")
            self._state[hash(statement.buffer)] = value
        self._formula.after = tuple(self._state[hash(tensor)] for tensor in self._stage.written)
        self._formula.size = len(self._varies)
        return self._formula

    def evaluate(self, expression: Any, axes: Sequence[Any]) -> Any:
        slot = self._of(expression)
        for tensor in self._stage.written:
            del self._state[hash(tensor)]
        self._formula.after, self._formula.size = (slot,), len(self._varies)
        steps = iter([tuple(enumerate(axes))])
        (value,) = self._formula.run(axes, steps, [None] * len(self._formula.before))
        return value

    def _slot(self, varies: bool) -> int:
        self._varies.append(varies)
        return len(self._varies) - 1

    def _of(self, value: Any, guarded: bool = False) -> int:
        """The slot of an expression's value."""
        kind = kind_of(value)
        if kind in ("IntImm", "FloatImm"):
            return self._constant(value)
        if kind in ("Var", "PrimVar"):
            if hash(value) not in self._variables:
                raise Unevaluable("a variable of unknown value")
            return self._variables[hash(value)]
        if kind == "TensorLoad":
            return self._load(value, guarded)
        if kind == "Let":
            self._variables[hash(value.var)] = self._of(value.value, guarded)
            return self._of(value.body, guarded)
        if kind in BINARY:
            operands = (self._of(value.a, guarded), self._of(value.b, guarded))
            return self._operation(kind, BINARY[kind], operands)
        if kind in UNARY:
            return self._operation(kind, UNARY[kind], (self._of(value.a, guarded),))
        if kind == "Cast":
            dtype = dtype_of(value)
            operand = self._of(value.value, guarded)
            return self._operation(("Cast", dtype), cast_to(dtype), (operand,))
        if kind == "Select":
            sides = (value.condition, value.true_value, value.false_value)
            return self._choose(sides, guarded)
        if kind == "Call":
            return self._call(value, guarded)
        raise Unevaluable(f"a {kind}")

    def _constant(self, value: Any) -> int:
        dtype = dtype_of(value)
        number = value.value
        key = ("constant", dtype, str(number))
        if key not in self._known:
            slot = self._known[key] = self._slot(False)
            kind = float if kind_of(value) == "FloatImm" else int
            self._formula.constants[slot] = np.array(kind(number)).astype(numpy_dtype(dtype))
        return self._known[key]

    def _operation(self, key: Any, function: Callable[..., Any], operands: tuple[int, ...]) -> int:
        whole = (key, operands)
        if whole not in self._known:
            varies = any(self._varies[i] for i in operands)
            slot = self._known[whole] = self._slot(varies)
            self._formula.operations[slot] = _Operation(function, operands, varies)
        return self._known[whole]

    def _choose(self, sides: Sequence[Any], guarded: bool) -> int:
        """Of a choice both sides are computed; the one that is not taken may read anything."""
        condition, left, right = sides
        operands = (self._of(condition, guarded), self._of(left, True), self._of(right, True))
        return self._operation("where", np.where, operands)

    def _call(self, call: Any, guarded: bool) -> int:
        name = operator_of(call)
        if name == "if_then_else":
            return self._choose(call.args, guarded)
        bits = name == "reinterpret"
        function = reinterpret_as(dtype_of(call)) if bits else function_of(name)
        operands = tuple(self._of(argument, guarded) for argument in call.args)
        return self._operation((name, dtype_of(call)), function, operands)

    def _load(self, load: Any, guarded: bool) -> int:
        key = hash(load.source)
        if key in self._state:
            if not same_indices(load.indices, self._stage.indices):
                raise Unevaluable("a block that reads elsewhere what it writes")
            return self._state[key]
        contents = self._contents.get(key)
        if contents is None:
            raise Unevaluable("a tensor that nothing was written to")
        operands = tuple(self._of(index, guarded) for index in load.indices)
        read = contents.read_near if guarded else contents.read
        return self._operation(("load", key, guarded), read, operands)
