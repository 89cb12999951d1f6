"""What one step of an `LSTM`, a `GRU` or an `RNN` computes.

Weights are made ready once, so that all steps share them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias

from spaces.frontends.onnx.converters.recurrent.scalars import SCALARS

Change: TypeAlias = Callable[[Any], Any]
Step: TypeAlias = Callable[[Sequence[Any], Any], list[Any]]
"""From states, and what a step's input gives, to the states that follow; the first is given out.
All are (1, batch, width), and gates lie side by side in the last axis."""


class Gated(Protocol):
    """What the formulas ask of a cell, whose tensors may be single elements; see `Cell`."""

    @property
    def attributes(self) -> Mapping[str, Any]: ...

    @property
    def biases(self) -> Any: ...

    @property
    def peepholes(self) -> Any: ...

    @property
    def functions(self) -> Sequence[Change]: ...

    @property
    def emit(self) -> Callable[[Any], Any]: ...

    def gates(self, tensor: Any, first: int, number: int = 1) -> Any:
        """Some of the gates of a tensor."""

    def product(self, first: int, number: int) -> Change:
        """A state times the weights of some gates."""

    def rest(self, tensor: Any) -> Any:
        """What is left to one."""

    def activated(self, number: int, tensor: Any) -> Any:
        """What an activation makes of a tensor, which is clipped before."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One direction of a node.

    Attributes:
        width: of a state.
        weights: of the state: (gates * width, width).
        biases: of the input's products, then of the state's, gate after gate; None without.
        peepholes: gate after gate; None without.
        functions: activations, in ONNX's order.
        attributes: of the node.
        emit: binds an expression.
    """

    width: int
    weights: Any
    biases: Any
    peepholes: Any
    functions: Sequence[Change]
    attributes: Mapping[str, Any]
    emit: Callable[[Any], Any]

    def gates(self, tensor: Any, first: int, number: int = 1) -> Any:
        """Some of the gates in the last axis of a tensor."""
        from tvm import relax

        axis = len(tensor.ty.shape.values) - 1
        ends = [first * self.width], [(first + number) * self.width]
        return self.emit(relax.op.strided_slice(tensor, [axis], *ends))

    def product(self, first: int, number: int) -> Change:
        """A state times the weights of some gates."""
        from tvm import relax

        ends = [first * self.width], [(first + number) * self.width]
        rows = self.emit(relax.op.strided_slice(self.weights, [0], *ends))
        matrix = self.emit(relax.op.permute_dims(rows))
        return lambda state: self.emit(relax.op.matmul(state, matrix))

    def rest(self, tensor: Any) -> Any:
        """What is left to one."""
        from tvm import relax

        return self.emit(relax.const(1.0, str(tensor.ty.dtype)) - tensor)

    def activated(self, number: int, tensor: Any) -> Any:
        """What an activation makes of a tensor, which is clipped before."""
        from tvm import relax

        most = self.attributes.get("clip", 0.0)
        bound = self.emit(relax.op.clip(tensor, -most, most) if most else tensor)
        return self.emit(self.functions[number](bound))


def _rnn(cell: Gated) -> Step:
    product = cell.product(0, 1)
    return lambda states, given: [cell.activated(0, given + product(states[0]))]


def _lstm(cell: Gated) -> Step:
    """Gates in ONNX's order: input, output, forget, cell."""
    product = cell.product(0, 4)
    holes = None if cell.peepholes is None else [cell.gates(cell.peepholes, n) for n in range(3)]

    def gate(total: Any, number: int, memory: Any) -> Any:
        seen = cell.gates(total, number)
        return cell.activated(0, seen if holes is None else seen + holes[number] * memory)

    def step(states: Sequence[Any], given: Any) -> list[Any]:
        state, memory = states
        total = cell.emit(given + product(state))
        taken = gate(total, 0, memory)
        coupled = cell.attributes.get("input_forget", 0)
        kept = cell.rest(taken) if coupled else gate(total, 2, memory)
        new = cell.activated(1, cell.gates(total, 3))
        memory = cell.emit(kept * memory + taken * new)
        shown = cell.emit(cell.functions[2](memory))
        return [cell.emit(gate(total, 1, memory) * shown), memory]

    return step


def _gru(cell: Gated) -> Step:
    """Gates in ONNX's order: update, reset, hidden."""
    before = cell.attributes.get("linear_before_reset", 0)
    product = cell.product(0, 3 if before else 2)
    hidden = None if before else cell.product(2, 1)
    bias = None if cell.biases is None else cell.gates(cell.biases, 5)

    def step(states: Sequence[Any], given: Any) -> list[Any]:
        (state,) = states
        total = product(state)
        both = cell.activated(0, cell.gates(given, 0, 2) + cell.gates(total, 0, 2))
        update, reset = cell.gates(both, 0), cell.gates(both, 1)
        if hidden is None:
            own = cell.gates(total, 2)
            seen = reset * (own if bias is None else own + bias)
        else:
            seen = hidden(cell.emit(reset * state))
        new = cell.activated(1, cell.gates(given, 2) + seen)
        return [cell.emit(cell.rest(update) * new + update * state)]

    return step


def input_biases(cell: Cell, kind: Kind) -> Any:
    """What is added to the products of all inputs; None without. Those of the state are part of
    it, where nothing comes between."""
    from tvm import relax

    if cell.biases is None:
        return None
    both = [cell.gates(cell.biases, first, kind.gates) for first in (0, kind.gates)]
    total = cell.emit(both[0] + both[1])
    if not cell.attributes.get("linear_before_reset", 0):
        return total
    parts = [cell.gates(total, 0, 2), cell.gates(both[0], 2)]
    return cell.emit(relax.op.concat(parts, axis=0))


@dataclass(frozen=True, slots=True)
class Kind:
    """One of the operators.

    Attributes:
        gates: that its weights have.
        states: that it hands on.
        functions: its usual activations.
        step: of a cell.
    """

    gates: int
    states: int
    functions: tuple[str, ...]
    step: Callable[[Gated], Step]


KINDS = MappingProxyType(
    {
        "RNN": Kind(1, 1, ("Tanh",), _rnn),
        "GRU": Kind(3, 1, ("Sigmoid", "Tanh"), _gru),
        "LSTM": Kind(4, 2, ("Sigmoid", "Tanh", "Tanh"), _lstm),
    }
)


def activations(
    names: Sequence[str], alphas: Sequence[float], betas: Sequence[float]
) -> list[Change]:
    """Activations by ONNX's names.

    Args:
        alphas, betas: numbers for those that take some, in order; what is left has its usual ones.

    Raises:
        KeyError: one has another name.
    """
    left = iter(alphas), iter(betas)
    found: list[Callable[[Any], Any]] = []
    for name in names:
        change, *usual = _ACTIVATIONS[name]
        numbers = [next(given, one) for given, one in zip(left, usual, strict=False)]
        found.append(partial(_change, change, numbers))
    return found


def _change(change: Callable[..., Any], numbers: Sequence[float], tensor: Any) -> Any:
    from tvm import relax, tirx
    from tvm.ir import PrimType

    dtype = str(tensor.ty.dtype)
    if isinstance(tensor.ty, PrimType):
        return change(SCALARS, tensor, *(tirx.const(number, dtype) for number in numbers))
    return change(relax.op, tensor, *(relax.const(number, dtype) for number in numbers))


_ACTIVATIONS: Mapping[str, tuple[Any, ...]] = MappingProxyType(
    {
        "Relu": (lambda op, x: op.nn.relu(x),),
        "Tanh": (lambda op, x: op.tanh(x),),
        "Sigmoid": (lambda op, x: op.sigmoid(x),),
        "Softsign": (lambda op, x: x / op.add(op.abs(x), op.ones_like(x)),),
        "Softplus": (lambda op, x: op.nn.softplus(x),),
        "Affine": (lambda op, x, a, b: a * x + b, 1.0, 0.0),
        "LeakyRelu": (lambda op, x, a: op.where(x > op.zeros_like(x), x, a * x), 0.01),
        "ThresholdedRelu": (lambda op, x, a: op.where(x > a, x, op.zeros_like(x)), 1.0),
        "ScaledTanh": (lambda op, x, a, b: a * op.tanh(b * x), 1.0, 1.0),
        "HardSigmoid": (lambda op, x, a, b: op.clip(a * x + b, 0, 1), 0.2, 0.5),
        "Elu": (
            lambda op, x, a: op.where(x > op.zeros_like(x), x, a * (op.exp(x) - op.ones_like(x))),
            1.0,
        ),
    }
)
"""Each with the numbers that it takes, as they usually are."""
