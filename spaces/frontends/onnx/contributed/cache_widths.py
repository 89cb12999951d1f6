"""How wide the rows of a cache are, where a file leaves that open.

onnxruntime-genai's model builder does: its caches are "kv_cache_dim" wide, which is the width of a
head, unless they are quantized. What makes queries says how wide these are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_PAST = slice(3, 5)
"""The operands of `GroupQueryAttention` that are caches."""
_SAME = frozenset(
    {"Cast", "Identity", "RotaryEmbedding", "SimplifiedLayerNormalization"}
    | {"RMSNormalization", "LayerNormalization"}
)
"""What gives rows as wide as its first operand's."""


def find_cache_widths(graph: Any) -> Mapping[str, int]:
    """The widths of caches by the names that the graph's inputs have for them."""
    makers = {name: node for node in graph.node for name in node.output}
    weights = {tensor.name: tensor for tensor in graph.initializer}
    inputs = {value.name: value.type.tensor_type.shape.dim for value in graph.input}
    found = dict[str, int]()
    for node in graph.node:
        if node.op_type != "GroupQueryAttention":
            continue
        heads = _number(node, "num_heads") + (
            0 if node.input[1] else 2 * _number(node, "kv_num_heads")
        )
        whole = _find_width(node.input[0], makers, weights)
        for name in node.input[_PAST]:
            dims = inputs.get(name, ())
            if heads and whole and len(dims) == 4 and dims[3].dim_param:
                found[dims[3].dim_param] = whole // heads
    return found


def _find_width(name: str, makers: Mapping[str, Any], weights: Mapping[str, Any]) -> int:
    """How wide the rows of a value are; 0 where nothing says it."""
    while (node := makers.get(name)) is not None and node.op_type in _SAME:
        name = node.input[0]
    if node is None:
        return 0
    if node.op_type == "MatMulNBits":
        return _number(node, "N")
    if node.op_type == "Reshape":
        sizes = _constant(node.input[1], makers, weights)
        return 0 if sizes is None else max(0, int(sizes[-1]))
    if node.op_type not in ("Add", "Gemm", "MatMul"):
        return 0
    axis = -2 if _number(node, "transB") else -1
    known = [weights[name].dims for name in node.input if name in weights]
    return int(known[0][axis]) if known and len(known[0]) >= -axis else 0


def _number(node: Any, name: str) -> int:
    return next((int(a.i) for a in node.attribute if a.name == name), 0)


def _constant(name: str, makers: Mapping[str, Any], weights: Mapping[str, Any]) -> Any:
    """The elements of a constant; None of what is none."""
    from onnx.numpy_helper import to_array

    maker = makers.get(name)
    tensor = weights.get(name)
    if maker is not None and maker.op_type == "Constant":
        tensor = next((a.t for a in maker.attribute if a.name == "value"), None)
    return None if tensor is None else to_array(tensor).reshape(-1)
