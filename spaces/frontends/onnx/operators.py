"""Which operators are imported, and which of them have converters here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import MappingProxyType
from typing import Any

from spaces.frontends.onnx.contributed.registry import (
    ONE_MACHINES,
    convert_contributed,
    is_contributed,
)
from spaces.frontends.onnx.control_flow import CONTROL_FLOW
from spaces.frontends.onnx.converters.registry import CONVERTERS
from spaces.frontends.onnx.functions import schema_of
from spaces.frontends.onnx.node import STANDARD_DOMAINS, Node, describe_node
from spaces.frontends.onnx.sequences import SEQUENCES
from spaces.ir import tvm_compat

_FIRST = MappingProxyType({"Scan": 9})
"""Versions of ONNX below which an operator is another one."""
_OTHERS = frozenset({"Attention"})
"""Operators of ONNX that in TVM's importer are others of the same name."""


def convert_node(node: Any, seen: Node, builder: Any) -> list[Any] | None:
    """What a node gives, by a converter of ours; None where there is none that takes it."""
    if node.domain not in STANDARD_DOMAINS:
        found = convert_contributed(node, seen, builder) if is_contributed(node) else None
    else:
        convert = CONVERTERS.get(node.op_type)
        found = None if convert is None else convert(seen, builder)
    if found is None:
        return None
    return [builder.normalize(one) for one in (found if isinstance(found, list) else [found])]


def is_known_to_tvm(node: Any) -> bool:
    """Whether TVM's importer has a converter for a node; it looks at no domain itself."""
    ours = node.domain in STANDARD_DOMAINS and node.op_type not in _OTHERS
    return ours and node.op_type in tvm_compat.list_onnx_operators()


def unknown_operators(proto: Any) -> list[str]:
    """One node of each operator of a model that nothing here imports."""
    functions = {(f.domain, f.name) for f in proto.functions}
    opset = max((o.version for o in proto.opset_import if o.domain in STANDARD_DOMAINS), default=1)
    found: dict[str, str] = {}
    for node in _all_nodes([proto.graph, *proto.functions]):
        if (node.domain, node.op_type) not in functions and not _is_known(node, opset):
            found.setdefault(node.op_type, describe_node(node))
    return [*found.values()]


def _is_known(node: Any, opset: int) -> bool:
    if is_contributed(node):
        return True
    if node.domain == ONE_MACHINES or opset < _FIRST.get(node.op_type, 0):
        return False
    if is_known_to_tvm(node):
        return True
    ours = node.op_type in {*CONTROL_FLOW, *SEQUENCES, *CONVERTERS}
    return (node.domain in STANDARD_DOMAINS and ours) or schema_of(node, opset) is not None


def _all_nodes(graphs: Iterable[Any]) -> Iterator[Any]:
    """Those in the graphs of other nodes, too."""
    for graph in graphs:
        for node in graph.node:
            yield node
            yield from _all_nodes(a.g for a in node.attribute if a.HasField("g"))
