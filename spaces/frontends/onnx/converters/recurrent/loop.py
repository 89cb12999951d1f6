"""One program that goes through a whole sequence, however long it is.

Unrolled steps are tuned, but their number has to be known. Here the steps of a cell are a loop of
TIR, written from the same formulas (`cells`): what these do with tensors is done for one element,
and each product with a state becomes a stage of its own. The sequences of a batch are independent,
and threads share them. The program has its schedule with it and is no task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spaces.frontends.onnx.converters.recurrent.cells import Change, Kind
from spaces.frontends.onnx.converters.recurrent.scalars import SCALARS
from spaces.frontends.onnx.sizes import Size
from spaces.ir import rewrite, tvm_compat

_SERIAL, _PARALLEL = 0, 1  # kinds of loops


@dataclass(frozen=True, slots=True)
class Way:
    """One direction of a node.

    Attributes:
        steps: numbers or symbols, as is `batch`.
        backwards: whether it begins at the end.
        functions: activations, in ONNX's order.
        attributes: of the node.
    """

    kind: Kind
    steps: Size
    batch: Size
    width: int
    dtype: str
    backwards: bool
    functions: Sequence[Change]
    attributes: Mapping[str, Any]


def loop_steps(
    builder: Any, way: Way, given: Any, weights: Any, biases: Any, holes: Any, states: Sequence[Any]
) -> tuple[Any, list[Any]]:
    """What each step shows, (steps, batch, width), and the last states, (1, batch, width).

    Args:
        given: what the inputs give, (steps, batch, gates * width).
        weights: of the state, (gates * width, width).
        biases: as in `cells.Cell`, and `holes` its peepholes; None without.
        states: before the first step.
    """
    from tvm import relax

    more = [operand for operand in (biases, holes) if operand is not None]
    program = _Program(way, biased=biases is not None, holed=holes is not None).function()
    matrix = builder.emit(relax.op.permute_dims(weights))
    last = relax.TensorType([1, way.batch, way.width], way.dtype)
    shown = relax.TensorType([way.steps, way.batch, way.width], way.dtype)
    found = builder.emit(
        relax.call_tir(
            builder.add_func(program, "steps"),
            [given, matrix, *more, *states],
            [shown, *[last] * len(states)],
        )
    )
    first, *rest = (
        builder.emit(relax.TupleGetItem(found, number)) for number in range(1 + len(states))
    )
    return first, rest


class _Gates:
    """Several gates of one element of a state."""

    def __init__(self, parts: Sequence[Any]) -> None:
        self.parts = list(parts)

    def __add__(self, other: _Gates) -> _Gates:
        return _Gates([a + b for a, b in zip(self.parts, other.parts, strict=True)])


def _pack(parts: Sequence[Any]) -> Any:
    """One gate alone, or several."""
    return parts[0] if len(parts) == 1 else _Gates(parts)


class _Program:
    """Writes the program. For the formulas it is the cell, whose tensors are one element each.

    Variables: the step, the row (which sequence of the batch), and the place in a state.
    """

    def __init__(self, way: Way, *, biased: bool, holed: bool) -> None:
        from tvm import tirx

        gates, width = way.kind.gates, way.width
        self._way, self._zero = way, tirx.const(0, "int64")
        self._stages: list[Any] = []
        self._kept: list[Any] = []
        self._own: list[Any] = []
        steps, batch = (
            size if isinstance(size, int) else tirx.Var(name, "int64")
            for size, name in ((way.steps, "steps"), (way.batch, "batch"))
        )
        self._steps, self._batch = steps, batch
        self._given = self._tensor("given", steps, batch, gates * width)
        self._matrix = self._tensor("matrix", width, gates * width)
        self._biases = self._tensor("biases", 2 * gates * width) if biased else None
        self._holes = self._tensor("holes", 3 * width) if holed else None
        number = range(way.kind.states)
        self._starts = [self._tensor(f"start{n}", 1, batch, width) for n in number]
        self._states = [self._tensor(f"state{n}", 1, batch, width) for n in number]
        self._shown = self._tensor("shown", steps, batch, width)
        self._step, self._row, self._place = (
            tirx.Var(name, "int64") for name in ("step", "row", "place")
        )

    def function(self) -> Any:
        """The PrimFunc."""
        from tvm import tirx
        from tvm.s_tir import SBlock, SBlockRealize

        here = (self._zero, self._row, self._place)
        started = [
            tirx.BufferStore(state, start[here], here)
            for state, start in zip(self._states, self._starts, strict=True)
        ]
        step = self._one_step()
        through = tirx.For(self._step, 0, self._steps, _SERIAL, step)
        body = tirx.SeqStmt([*map(self._each, started), through])
        rows = tirx.For(self._row, 0, self._batch, _PARALLEL, body)
        root = SBlockRealize([], True, SBlock([], [], [], "root", rows, alloc_buffers=self._kept))
        more = [tensor for tensor in (self._biases, self._holes) if tensor is not None]
        operands = [self._given, self._matrix, *more, *self._starts, self._shown, *self._states]
        function = tirx.PrimFunc(operands, root)
        for name in (tvm_compat.NO_ALIAS, tvm_compat.IS_SCHEDULED):
            function = function.with_attr(name, True)
        return function

    def _one_step(self) -> Any:
        """The stages of a step, and then what follows of them."""
        from tvm import tirx

        way, here = self._way, (self._zero, self._row, self._place)
        at = self._steps - 1 - self._step if way.backwards else self._step
        self._own = [state[here] for state in self._states]
        given = [self._given[at, self._row, self._gate(n)] for n in range(way.kind.gates)]
        found = way.kind.step(self)(self._own, _pack(given))
        names = [tirx.Var(f"next{n}", way.dtype) for n in range(len(found))]
        stores = [
            tirx.BufferStore(state, name, here)
            for state, name in zip(self._states, names, strict=True)
        ]
        stores.append(tirx.BufferStore(self._shown, names[0], (at, self._row, self._place)))
        bound = [tirx.Bind(name, value) for name, value in zip(names, found, strict=True)]
        return tirx.SeqStmt([*self._stages, self._each(tirx.SeqStmt([*bound, *stores]))])

    # What the formulas ask of a cell.

    @property
    def attributes(self) -> Mapping[str, Any]:
        return self._way.attributes

    @property
    def biases(self) -> Any:
        """All of them, for this element."""
        if self._biases is None:
            return None
        return _Gates([self._biases[self._gate(n)] for n in range(2 * self._way.kind.gates)])

    @property
    def peepholes(self) -> Any:
        """All of them, for this element."""
        if self._holes is None:
            return None
        return _Gates([self._holes[self._gate(n)] for n in range(3)])

    @property
    def emit(self) -> Change:
        """Gives the expression: nothing is bound."""
        return lambda expression: expression

    def gates(self, tensor: Any, first: int, number: int = 1) -> Any:
        """Some of the gates."""
        return _pack(tensor.parts[first : first + number])

    def rest(self, value: Any) -> Any:
        """What is left to one."""
        from tvm import tirx

        return tirx.const(1.0, self._way.dtype) - value

    def activated(self, number: int, value: Any) -> Any:
        """What an activation makes of a gate or several, which are clipped before."""
        if isinstance(value, _Gates):
            return _Gates([self.activated(number, part) for part in value.parts])
        most = self.attributes.get("clip", 0.0)
        return self.functions[number](SCALARS.clip(value, -most, most) if most else value)

    @property
    def functions(self) -> Sequence[Change]:
        return self._way.functions

    def product(self, first: int, number: int) -> Change:
        """A state, or what is made of one, times the weights of some gates: a stage."""

        def multiplied(state: Any) -> Any:
            source = self._source(state)
            found = self._allocate("product", self._batch, number * self._way.width)
            self._stages.append(self._product(source, found, first * self._way.width, number))
            return _pack([found[self._row, self._gate(n)] for n in range(number)])

        return multiplied

    def _source(self, state: Any) -> Any:
        """The tensor of all elements of a state; what is made of one is stored first."""
        from tvm import tirx

        for own, tensor in zip(self._own, self._states, strict=True):
            if state.same_as(own):
                return tensor
        kept = self._allocate("part", 1, self._batch, self._way.width)
        here = (self._zero, self._row, self._place)
        self._stages.append(self._each(tirx.BufferStore(kept, state, here)))
        return kept

    def _product(self, source: Any, into: Any, first: int, number: int) -> Any:
        from tvm import tirx

        width = self._way.width
        depth, column, start = (tirx.Var(n, "int64") for n in ("depth", "column", "column"))
        place = (self._row, column)
        product = source[self._zero, self._row, depth] * self._matrix[depth, column + first]
        added = tirx.BufferStore(into, into[place] + product, place)
        inner = tirx.For(column, 0, number * width, _SERIAL, added)
        zero = tirx.BufferStore(into, tirx.const(0.0, self._way.dtype), (self._row, start))
        return tirx.SeqStmt(
            [
                tirx.For(start, 0, number * width, _SERIAL, zero),
                tirx.For(depth, 0, width, _SERIAL, inner),
            ]
        )

    def _each(self, statement: Any) -> Any:
        """A statement for all elements of a state."""
        from tvm import tirx

        place = tirx.Var("place", "int64")
        loop = rewrite.substitute(statement, [(self._place, place)])
        return tirx.For(place, 0, self._way.width, _SERIAL, loop)

    def _gate(self, number: int) -> Any:
        """The place of this element in tensors that have one gate after the other."""
        return self._place + number * self._way.width

    def _allocate(self, name: str, *shape: Size) -> Any:
        self._kept.append(self._tensor(name, *shape))
        return self._kept[-1]

    def _tensor(self, name: str, *shape: Size) -> Any:
        from tvm.tirx import decl_buffer

        return decl_buffer(shape, self._way.dtype, name)
