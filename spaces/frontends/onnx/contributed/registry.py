"""Which operators onnxruntime's tools write that ONNX does not have, and what they are made of.

Its optimiser writes fused operators where `graph_optimization_level` is ORT_ENABLE_EXTENDED, its
quantizer those of 8-bit integers. What it makes of them is documented in its file of contributed
operators.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from spaces.frontends.onnx.contributed.as_onnx import AS_ONNX
from spaces.frontends.onnx.contributed.attention import ATTENTION
from spaces.frontends.onnx.contributed.elementwise import ELEMENTWISE
from spaces.frontends.onnx.contributed.grouped_attention import GROUPED_ATTENTION
from spaces.frontends.onnx.contributed.normalization import NORMALIZATION
from spaces.frontends.onnx.contributed.packed import PACKED
from spaces.frontends.onnx.contributed.quantized import QUANTIZED
from spaces.frontends.onnx.contributed.text import OPSET, Write
from spaces.frontends.onnx.node import STANDARD_DOMAINS, Node

DOMAIN = "com.microsoft"
ONE_MACHINES = "com.microsoft.nchwc"
"""Operators of a file that is meant for the machine that wrote it."""
_OPERATORS: Mapping[str, Write] = MappingProxyType(
    {
        **AS_ONNX,
        **ATTENTION,
        **ELEMENTWISE,
        **GROUPED_ATTENTION,
        **NORMALIZATION,
        **QUANTIZED,
    }
)
_AMONG_ONNX = frozenset({"SimplifiedLayerNormalization"})
"""Those that are written as if they were ONNX's own."""


def list_contributed() -> list[str]:
    """The names of all that are known here."""
    return sorted([*_OPERATORS, *PACKED])


def is_contributed(node: Any) -> bool:
    """Whether a node of a protobuf is of an operator that is known here."""
    if node.domain in STANDARD_DOMAINS:
        return node.op_type in _AMONG_ONNX
    return node.domain == DOMAIN and (node.op_type in _OPERATORS or node.op_type in PACKED)


def find_contributed(node: Any, seen: Node) -> Any | None:
    """What a node is made of, as a `FunctionProto`; None of any other node, and of those that
    ONNX's operators cannot tell.

    Raises:
        TunerError: it says something of which nobody knows what it is made of.
    """
    if not is_contributed(node) or node.op_type in PACKED:
        return None
    import onnx

    body = _OPERATORS[node.op_type](seen)
    return onnx.parser.parse_function(
        f'<domain: "{DOMAIN}", opset_import: ["": {OPSET}]> {node.op_type} {body}'
    )


def convert_contributed(node: Any, seen: Node, builder: Any) -> Any | None:
    """What a node on packed weights gives, as an expression; None of any other node."""
    return PACKED[node.op_type](seen, builder) if node.op_type in PACKED else None
