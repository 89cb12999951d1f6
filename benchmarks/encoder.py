"""Writes one layer of a transformer's encoder, of the size of BERT-base, as an ONNX file.

    python -m benchmarks.encoder encoder.onnx
    python -m benchmarks.encoder encoder.onnx --sequence 2048
    python -m benchmarks.encoder open-encoder.onnx --open      # the dimension `sequence` stays open

Weights are drawn from a seed, with the variance that keeps activations at their size. The graph is
what exporters write: attention over 12 heads, GELU by the error function, layer norms after the
residual sums.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_OPSET = 17


class DrawnGraph:
    """Nodes and weights so far, these drawn from a seed."""

    def __init__(self, seed: int) -> None:
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self._rng = np.random.default_rng(seed)

    def call(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """An operator; the name of its output."""
        out = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [out], **attributes))
        return out

    def keep(self, array: Any) -> str:
        """A weight; its name."""
        name = f"weight_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def number(self, value: float) -> str:
        """A scalar."""
        return self.keep(np.array(value, np.float32))

    def linear(self, data: str, inputs: int, outputs: int) -> str:
        """A dense layer with bias."""
        scale = 1 / math.sqrt(inputs)
        weight = (self._rng.standard_normal((inputs, outputs)) * scale).astype(np.float32)
        bias = (self._rng.standard_normal(outputs) * 0.1).astype(np.float32)
        return self.call("Add", self.call("MatMul", data, self.keep(weight)), self.keep(bias))

    def convolution(
        self, data: str, inputs: int, outputs: int, kernel: int, *, stride: int = 1, groups: int = 1
    ) -> str:
        """One that keeps an image's size but for its stride, with bias."""
        shape = (outputs, inputs // groups, kernel, kernel)
        scale = math.sqrt(2 / math.prod(shape[1:]))
        weight = (self._rng.standard_normal(shape) * scale).astype(np.float32)
        bias = (self._rng.standard_normal(outputs) * 0.1).astype(np.float32)
        operands = (data, self.keep(weight), self.keep(bias))
        pads, strides = [kernel // 2] * 4, [stride] * 2
        return self.call("Conv", *operands, pads=pads, strides=strides, group=groups)

    def model(self, name: str, result: str, given: list[Any], made: list[Any]) -> onnx.ModelProto:
        """Of one input `x` to one result, which have these sizes."""
        inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, given)]
        outputs = [helper.make_tensor_value_info(result, TensorProto.FLOAT, made)]
        graph = helper.make_graph(self.nodes, name, inputs, outputs, self.weights)
        opset = [helper.make_opsetid("", _OPSET)]
        model = helper.make_model(graph, opset_imports=opset, ir_version=8)
        onnx.checker.check_model(model)
        return model

    def norm(self, data: str, width: int) -> str:
        """A layer norm over the last axis."""
        scale = (0.5 + self._rng.random(width)).astype(np.float32)
        shift = (self._rng.standard_normal(width) * 0.1).astype(np.float32)
        weights = (self.keep(scale), self.keep(shift))
        return self.call("LayerNormalization", data, *weights, axis=-1, epsilon=1e-12)


def encoder(
    sequence: int | None = 128,
    width: int = 768,
    heads: int = 12,
    inner: int = 3072,
    seed: int = 0,
    layers: int = 1,
) -> onnx.ModelProto:
    """The layer, or several, for a batch of one; its input `x` and output are [1, sequence, width].

    Args:
        sequence: None leaves it open, under this name.
    """
    graph, data = DrawnGraph(seed), "x"
    for _ in range(layers):
        attended = _attention(graph, data, sequence, width, heads)
        first = graph.norm(graph.call("Add", attended, data), width)
        widened = _gelu(graph, graph.linear(first, width, inner))
        narrowed = graph.linear(widened, inner, width)
        data = graph.norm(graph.call("Add", narrowed, first), width)
    shape = [1, sequence or "sequence", width]
    return graph.model("encoder", data, shape, shape)


def _attention(graph: DrawnGraph, data: str, sequence: int | None, width: int, heads: int) -> str:
    size, tokens = width // heads, sequence or -1
    split = graph.keep(np.array([1, tokens, heads, size], np.int64))
    merged = graph.keep(np.array([1, tokens, width], np.int64))

    def head(perm: list[int]) -> str:
        projected = graph.linear(data, width, width)
        return graph.call("Transpose", graph.call("Reshape", projected, split), perm=perm)

    query, key, value = head([0, 2, 1, 3]), head([0, 2, 3, 1]), head([0, 2, 1, 3])
    scores = graph.call("Div", graph.call("MatMul", query, key), graph.number(math.sqrt(size)))
    mixed = graph.call("MatMul", graph.call("Softmax", scores, axis=-1), value)
    joined = graph.call("Reshape", graph.call("Transpose", mixed, perm=[0, 2, 1, 3]), merged)
    return graph.linear(joined, width, width)


def _gelu(graph: DrawnGraph, data: str) -> str:
    error = graph.call("Erf", graph.call("Div", data, graph.number(math.sqrt(2))))
    grown = graph.call("Mul", data, graph.call("Add", error, graph.number(1.0)))
    return graph.call("Mul", grown, graph.number(0.5))


def main() -> None:
    """Write the file named on the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.encoder")
    parser.add_argument("out", type=Path, metavar="OUT.onnx")
    parser.add_argument("--sequence", type=int, default=128, metavar="N")
    parser.add_argument("--open", action="store_true", help="leave it open")
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(encoder(None if options.open else options.sequence), str(options.out))
    print(options.out)


if __name__ == "__main__":
    main()
