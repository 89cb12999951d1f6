"""`LSTM`, `GRU` and `RNN`: networks that go through a sequence, step by step.

What the inputs give is one product for all steps. The rest is done for each step (`cells`): a
product with the state, and what the gates make of it. A few steps are unrolled, and share their
programs; many, and those whose number only the run knows, are one program (`loop`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from spaces.frontends.onnx.converters.recurrent.cells import (
    KINDS,
    Cell,
    Kind,
    activations,
    input_biases,
)
from spaces.frontends.onnx.converters.recurrent.loop import Way, loop_steps
from spaces.frontends.onnx.node import Convert, Node
from spaces.frontends.onnx.sizes import Size, shape_expression
from spaces.frontends.onnx.steps import MOST_STEPS, join_pieces, pieces

_INPUT, _WEIGHTS, _STATE_WEIGHTS, _BIASES, _LENGTHS, _STATE, _MEMORY, _PEEPHOLES = range(8)
_DIRECTIONS = MappingProxyType({"forward": (1,), "reverse": (-1,), "bidirectional": (1, -1)})


@dataclass(frozen=True, slots=True)
class _Layer:
    """A node, its sequence first in all that follows.

    Attributes:
        inputs: (steps, batch, input width).
    """

    node: Node
    builder: Any
    kind: Kind
    steps: Size
    batch: Size
    width: int
    inputs: Any

    def operand(self, number: int, direction: int) -> Any:
        """A direction's part of an operand that has one for each, an axis of 1 before it; None
        where it is left out."""
        from tvm import relax

        value = self.node.input(number)
        if value is None:
            return None
        part = relax.op.strided_slice(value.tensor(self.builder), [0], [direction], [direction + 1])
        return self.builder.emit(part)

    def weights(self, number: int, direction: int) -> Any:
        """The same without the axis."""
        from tvm import relax

        part = self.operand(number, direction)
        return None if part is None else self.builder.emit(relax.op.squeeze(part, [0]))

    def start(self, number: int, direction: int) -> Any:
        """A state before the first step: (1, batch, width)."""
        from tvm import relax

        value = self.node.input(number)
        if value is None:
            shape = shape_expression([1, self.batch, self.width])
            return self.builder.emit(relax.op.zeros(shape, str(self.inputs.ty.dtype)))
        if not self.node.attributes.get("layout", 0):
            return self.operand(number, direction)
        turned = relax.op.permute_dims(value.tensor(self.builder), [1, 0, 2])
        cut = relax.op.strided_slice(self.builder.emit(turned), [0], [direction], [direction + 1])
        return self.builder.emit(cut)


def _recurrent(node: Node, builder: Any) -> list[Any]:
    """All outputs: each step's, and the last ones."""
    directions = _DIRECTIONS[_text(node.attributes.get("direction", "forward"))]
    layer = _layer(node, builder)
    functions = _functions(node, layer.kind, len(directions))
    every, last = [], []
    for number, stride in enumerate(directions):
        shown, states = _through(layer, number, stride, functions[number])
        every.append(shown)
        last.append(states)
    return _laid_out(layer, every, last)


def _layer(node: Node, builder: Any) -> _Layer:
    from tvm import relax

    kind, value = KINDS[node.operator], node.input(_INPUT)
    dims, weights = node.dims(_INPUT), node.dims(_STATE_WEIGHTS)
    if value is None or dims is None or weights is None or not isinstance(weights[2], int):
        raise node.refused("the shapes of its input and its weights have to be known")
    batch_first = node.attributes.get("layout", 0)
    steps, batch = dims[:2] if not batch_first else dims[1::-1]
    if isinstance(steps, int) and steps < 1:
        raise node.refused("its sequence has no steps")
    lengths = node.sizes(_LENGTHS)
    whole = lengths is not None and all(node.arithmetic.equal(n, steps) for n in lengths.flat())
    if node.input(_LENGTHS) is not None and not whole:
        raise node.refused("its sequences have lengths that are not known to be the whole input's")
    inputs = value.tensor(builder)
    if batch_first:
        inputs = builder.emit(relax.op.permute_dims(inputs, [1, 0, 2]))
    return _Layer(node, builder, kind, steps, batch, weights[2], inputs)


def _functions(node: Node, kind: Kind, directions: int) -> list[list[Any]]:
    """The activations of each direction."""
    given = node.attributes.get("activations", kind.functions * directions)
    alphas, betas = (node.attributes.get(f"activation_{n}", ()) for n in ("alpha", "beta"))
    try:
        found = activations([_text(name) for name in given], alphas, betas)
    except KeyError as error:
        raise node.refused(f"the importer does not know its activation {error}") from error
    number = len(kind.functions)
    return [found[n * number : (n + 1) * number] for n in range(directions)]


def _text(name: bytes | str) -> str:
    return name.decode() if isinstance(name, bytes) else name


def _through(
    layer: _Layer, direction: int, stride: int, functions: Sequence[Any]
) -> tuple[list[Any], list[Any]]:
    """What each step shows, in the order of the sequence, in one piece or in many; and the last
    states."""
    from tvm import relax

    emit = layer.builder.emit
    weights, biases, peepholes = (
        layer.weights(number, direction) for number in (_STATE_WEIGHTS, _BIASES, _PEEPHOLES)
    )
    cell = Cell(
        width=layer.width,
        weights=weights,
        biases=biases,
        peepholes=peepholes,
        functions=functions,
        attributes=layer.node.attributes,
        emit=emit,
    )
    matrix = emit(relax.op.permute_dims(layer.weights(_WEIGHTS, direction)))
    given = emit(relax.op.matmul(layer.inputs, matrix))
    added = input_biases(cell, layer.kind)
    given = given if added is None else emit(relax.op.add(given, added))
    states = [layer.start(number, direction) for number in (_STATE, _MEMORY)[: layer.kind.states]]
    if not isinstance(layer.steps, int) or layer.steps > MOST_STEPS:
        way = Way(
            layer.kind, layer.steps, layer.batch, layer.width, str(given.ty.dtype), stride < 0,
            functions, layer.node.attributes,
        )  # fmt: skip
        whole, states = loop_steps(layer.builder, way, given, weights, biases, peepholes, states)
        return [whole], states
    step = layer.kind.step(cell)
    shown = []
    for part in pieces(layer.builder, given, 0, layer.steps)[::stride]:
        states = step(states, part)
        shown.append(states[0])
    return shown[::stride], states


def _laid_out(
    layer: _Layer, every: Sequence[Sequence[Any]], last: Sequence[Sequence[Any]]
) -> list[Any]:
    """The outputs as the node's layout has them."""
    from tvm import relax

    builder, emit = layer.builder, layer.builder.emit
    batch_first = layer.node.attributes.get("layout", 0)
    ways = [emit(relax.op.expand_dims(join_pieces(builder, way, 0), 1)) for way in every]
    shown = join_pieces(builder, ways, 1)
    states = [join_pieces(builder, ways, 0) for ways in zip(*last, strict=True)]
    if not batch_first:
        return [shown, *states]
    return [
        emit(relax.op.permute_dims(shown, [2, 0, 1, 3])),
        *(emit(relax.op.permute_dims(state, [1, 0, 2])) for state in states),
    ]


RECURRENT: Mapping[str, Convert] = MappingProxyType(dict.fromkeys(KINDS, _recurrent))
