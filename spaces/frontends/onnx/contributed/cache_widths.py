"""How wide the rows of a cache are, where a file leaves that open.

onnxruntime-genai's model builder does: its caches are "kv_cache_dim" wide, which is the width of a
head, unless they are quantized. What makes queries says how wide these are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spaces.frontends.onnx.simplifier.known_tensors import KnownTensors
from spaces.frontends.onnx.simplifier.padding import attributes_of

_PAST = slice(3, 5)
"""The operands of `GroupQueryAttention` that are caches."""
_SAME = frozenset(
    {"Cast", "Identity", "RotaryEmbedding", "SimplifiedLayerNormalization"}
    | {"RMSNormalization", "LayerNormalization"}
)
"""What gives rows as wide as its first operand's."""


def find_cache_widths(graph: Any) -> Mapping[str, int]:
    """The widths of caches by the names that the graph's inputs have for them."""
    attending = [node for node in graph.node if node.op_type == "GroupQueryAttention"]
    if not attending:
        return {}
    known = KnownTensors(graph)
    for node in graph.node:
        if node.op_type == "Constant":
            known.add_node(node)
    makers = {name: node for node in graph.node for name in node.output}
    inputs = {value.name: value.type.tensor_type.shape.dim for value in graph.input}
    found = dict[str, int]()
    for node in attending:
        said = attributes_of(node)
        heads = said.get("num_heads", 0)
        heads += 0 if node.input[1] else 2 * said.get("kv_num_heads", 0)
        whole = _find_width(node.input[0], makers, known)
        for name in node.input[_PAST]:
            dims = inputs.get(name, ())
            if heads and whole and len(dims) == 4 and dims[3].dim_param:
                found[dims[3].dim_param] = whole // heads
    return found


def _find_width(name: str, makers: Mapping[str, Any], known: KnownTensors) -> int:
    """How wide the rows of a value are; 0 where nothing says it."""
    while (node := makers.get(name)) is not None and node.op_type in _SAME:
        name = node.input[0]
    if node is None:
        return 0
    said = attributes_of(node)
    if node.op_type == "MatMulNBits":
        return int(said.get("N", 0))
    if node.op_type == "Reshape":
        sizes = known.array(node.input[1])
        return 0 if sizes is None else max(0, int(sizes[-1]))
    if node.op_type not in ("Add", "Gemm", "MatMul"):
        return 0
    axis = -2 if said.get("transB", 0) else -1
    shapes = [dims for name in node.input if (dims := known.dims(name)) is not None]
    return shapes[0][axis] if shapes and len(shapes[0]) >= -axis else 0
