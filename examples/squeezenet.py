"""Writes the demo's network: squeezenet, with seeded random weights, as an ONNX file.

    python examples/squeezenet.py squeezenet.onnx

The test data of the `onnx` package holds the graph with constant weights, which would make every
output the same; random weights of the usual scale make an output error mean something. Any of the
package's other light networks can be named as a second argument.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import onnx.backend.test
from onnx import numpy_helper

_SUMMED = 0.2


def seeded_network(name: str = "squeezenet", seed: int = 0) -> onnx.ModelProto:
    """One of the light test networks of the `onnx` package, with random weights.

    Weights that are made by ConstantOfShape nodes are drawn anew: matrices and kernels with the
    variance that keeps activations at their size, vectors (biases, batch norm) from 0.5 to 1.5.
    The scale of what residual sums add up is small, or they would grow with the network's depth
    until its softmax says nothing but yes and no.
    """
    data = Path(onnx.backend.test.__file__).parent / "data" / "light"
    model = onnx.load(str(data / f"light_{name}.onnx"))
    rng = np.random.default_rng(seed)
    shapes = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}
    summed = _scales_before_sums(model.graph)
    kept = []
    for node in model.graph.node:
        if node.op_type == "ConstantOfShape" and node.input[0] in shapes:
            weight = _random_weight(tuple(int(n) for n in shapes[node.input[0]]), rng)
            weight = weight * np.float32(_SUMMED if node.output[0] in summed else 1.0)
            model.graph.initializer.append(numpy_helper.from_array(weight, node.output[0]))
        else:
            kept.append(node)
    del model.graph.node[:]
    model.graph.node.extend(kept)
    return model


def _scales_before_sums(graph: onnx.GraphProto) -> set[str]:
    """Names of the scales of batch norms that a sum takes as they are."""
    summed = {name for node in graph.node if node.op_type in ("Add", "Sum") for name in node.input}
    norms = (node for node in graph.node if node.op_type == "BatchNormalization")
    return {node.input[1] for node in norms if node.output[0] in summed}


def _random_weight(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    if len(shape) > 1:
        fan_in = int(np.prod(shape[1:]))
        weight = rng.standard_normal(shape) * np.sqrt(2 / max(1, fan_in))
    else:
        weight = 0.5 + rng.random(shape)
    return np.asarray(weight, dtype=np.float32)


def main() -> None:
    """Write the file named on the command line."""
    if len(sys.argv) not in (2, 3):
        sys.exit(f"usage: {sys.argv[0]} OUT.onnx [NETWORK]")
    path = Path(sys.argv[1])
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(seeded_network(*sys.argv[2:]), str(path))
    print(path)


if __name__ == "__main__":
    main()
