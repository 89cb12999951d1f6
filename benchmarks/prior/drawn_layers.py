"""Draws layers of the kinds that networks are made of, with sizes of no network, as ONNX models.

Channels, sizes and kernels are drawn, so that no program stems from a network, an operator or a
recorded space of any benchmark; `benchmarks.prior.overlap` lists those that are equal by chance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto

_MOST_OPERATIONS = 4e8
_OPSET, _IR_VERSION = 17, 9


@dataclass
class _Graph:
    """A graph of layers that have nothing in common."""

    rng: np.random.Generator
    nodes: list[NodeProto] = field(default_factory=list)
    weights: list[TensorProto] = field(default_factory=list)
    inputs: list[ValueInfoProto] = field(default_factory=list)
    outputs: list[ValueInfoProto] = field(default_factory=list)

    def give(self, shape: Sequence[int]) -> str:
        """A new input."""
        from onnx import TensorProto, helper

        name = f"x{len(self.inputs)}"
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape)))
        return name

    def weigh(self, *shape: int) -> str:
        """A new constant, small enough for sums to stay small."""
        return self.keep(0.1 * self.rng.standard_normal(shape))

    def keep(self, values: Any) -> str:
        """A new constant of these values."""
        from onnx import numpy_helper

        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(values, dtype=np.float32), name))
        return name

    def apply(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """The output of a new node."""
        from onnx import helper

        name = f"y{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def draw(self, low: float, high: float, multiple: int = 1) -> int:
        """A whole number between two, small ones as likely as large ones."""
        drawn = float(np.exp(self.rng.uniform(np.log(low), np.log(high))))
        return max(multiple, round(drawn / multiple) * multiple)

    def pick(self, *values: int) -> int:
        """One of some numbers."""
        return int(self.rng.choice(values))


def draw_model(seed: int, layers: int) -> ModelProto:
    """A model of so many layers, each with an input and an output of its own."""
    from onnx import TensorProto, helper, shape_inference

    graph = _Graph(np.random.default_rng(seed))
    kinds, shares = zip(*_KINDS.items(), strict=True)
    for _ in range(layers):
        kind: Callable[[_Graph], str] = kinds[graph.rng.choice(len(kinds), p=shares)]
        output = kind(graph)
        graph.outputs.append(helper.make_tensor_value_info(output, TensorProto.FLOAT, None))
    made = helper.make_graph(graph.nodes, "drawn", graph.inputs, graph.outputs, graph.weights)
    opset = helper.make_opsetid("", _OPSET)
    model = helper.make_model(made, opset_imports=[opset], ir_version=_IR_VERSION)
    return shape_inference.infer_shapes(model)


def _channels(graph: _Graph, most: int) -> int:
    """A number of channels; of ten, nine divide by 4 or 8 as those of networks do."""
    return graph.draw(6, most, graph.pick(1, 4, 4, 4, 8, 8, 8, 8, 8, 8))


def _convolution(graph: _Graph) -> str:
    while True:
        inputs, outputs = _channels(graph, 700), _channels(graph, 700)
        size, kernel, stride = graph.draw(4, 120), graph.pick(1, 1, 1, 3, 3, 3, 5, 7), 1
        if kernel > 1 or graph.rng.random() < 0.1:
            stride = graph.pick(1, 1, 2)
        groups = graph.pick(1, 1, 1, 1, 1, 1, 1, 2, 4, 8)
        inputs, outputs = -(-inputs // groups) * groups, -(-outputs // groups) * groups
        side = -(-size // stride)
        operations = 2 * side**2 * outputs * inputs // groups * kernel**2
        if 1e6 < operations < _MOST_OPERATIONS:
            break
    return _convolve(graph, inputs, outputs, size, kernel, stride, groups)


def _depthwise(graph: _Graph) -> str:
    while True:
        channels, size = _channels(graph, 1000), graph.draw(4, 120)
        kernel, stride = graph.pick(3, 3, 3, 5, 5, 7), graph.pick(1, 1, 2)
        if 1e5 < 2 * channels * size**2 * kernel**2 < 1e8:
            break
    return _convolve(graph, channels, channels, size, kernel, stride, channels)


def _convolve(
    graph: _Graph, inputs: int, outputs: int, size: int, kernel: int, stride: int, groups: int
) -> str:
    convolved = graph.apply(
        "Conv",
        graph.give((1, inputs, size, size)),
        graph.weigh(outputs, inputs // groups, kernel, kernel),
        graph.weigh(outputs),
        group=groups, strides=[stride] * 2, pads=[kernel // 2] * 4,
    )  # fmt: skip
    done = (size + 2 * (kernel // 2) - kernel) // stride + 1
    return _end(graph, convolved, (1, outputs, done, done))


def _product(graph: _Graph) -> str:
    while True:
        m, n, k = graph.draw(1, 500), graph.draw(20, 2500, 4), graph.draw(20, 2500, 4)
        if 5e5 < 2 * m * n * k < _MOST_OPERATIONS:
            break
    product = graph.apply("MatMul", graph.give((1, m, k)), graph.weigh(k, n))
    return _end(graph, graph.apply("Add", product, graph.weigh(n)), (1, m, n))


def _batched(graph: _Graph) -> str:
    while True:
        b, m, n, k = (graph.draw(2, 16), *(graph.draw(10, 400) for _ in range(3)))
        if 5e5 < 2 * b * m * n * k < _MOST_OPERATIONS:
            break
    left, right = graph.give((b, m, k)), graph.give((b, n, k) if k % 2 else (b, k, n))
    if k % 2:
        right = graph.apply("Transpose", right, perm=[0, 2, 1])
    product = graph.apply("MatMul", left, right)
    return product if m % 2 else graph.apply("Softmax", product, axis=-1)


def _along_rows(graph: _Graph) -> str:
    """Norms, softmax, and a residual, of rows."""
    rows, columns = graph.draw(1, 1500), graph.draw(10, 2500, 2)
    x = graph.give((1, rows, columns))
    if (kind := graph.pick(0, 1, 2)) == 0:
        return graph.apply("Softmax", x, axis=-1)
    if kind == 1:
        x = graph.apply("Add", x, graph.give((1, rows, columns)))
    return graph.apply("LayerNormalization", x, graph.weigh(columns), graph.weigh(columns), axis=-1)


def _of_image(graph: _Graph) -> str:
    """What stands between convolutions."""
    channels, size = _channels(graph, 800), graph.draw(4, 80)
    shape = (1, channels, size, size)
    x = graph.give(shape)
    kind = graph.pick(0, 1, 2, 3, 4)
    if kind == 0:
        return graph.apply("GlobalAveragePool", x)
    if kind in (1, 2):
        kernel, stride = graph.pick(2, 3), graph.pick(1, 2)
        name = "MaxPool" if kind == 1 else "AveragePool"
        return graph.apply(name, x, kernel_shape=[kernel] * 2, strides=[stride] * 2)
    if kind == 3:
        scaled = graph.apply("Mul", x, graph.give((1, channels, 1, 1)))
        return graph.apply("Add", scaled, graph.give(shape))
    return graph.apply("Transpose", _end(graph, x, shape), perm=[0, 2, 3, 1])


def _end(graph: _Graph, x: str, shape: Sequence[int]) -> str:
    """What follows a product: nothing, a residual, an activation."""
    if graph.rng.random() < 0.25:
        x = graph.apply("Add", x, graph.give(shape))
    kind = graph.pick(0, 1, 1, 1, 2, 3, 4)
    if kind == 2:  # SiLU
        return graph.apply("Mul", x, graph.apply("Sigmoid", x))
    if kind == 4:  # GELU
        half = graph.apply("Erf", graph.apply("Mul", x, graph.keep(0.70710677)))
        return graph.apply("Mul", x, graph.apply("Add", half, graph.keep(1.0)))
    return graph.apply(("", "Relu", "", "HardSwish")[kind], x) if kind else x


_KINDS: dict[Callable[[_Graph], str], float] = {
    _convolution: 0.4,
    _depthwise: 0.15,
    _product: 0.2,
    _batched: 0.08,
    _along_rows: 0.07,
    _of_image: 0.1,
}
"""How much of the layers each kind is."""
