"""Graphs made simpler before they are imported."""

from __future__ import annotations

from typing import Any

from spaces.frontends.onnx.node import STANDARD_DOMAINS
from spaces.frontends.quiet_import import hushed


def split_sums(proto: Any) -> None:
    """Turn each `Sum` of several tensors into additions, in place.

    The importer stacks the tensors and reduces the stack, which copies them and keeps the
    addition of a residual block from being fused with its convolution.
    """
    import onnx

    nodes = []
    for node in proto.graph.node:
        if node.op_type != "Sum" or node.domain not in STANDARD_DOMAINS or len(node.input) < 2:
            nodes.append(node)
            continue
        left = node.input[0]
        for number, right in enumerate(node.input[1:], start=1):
            last = number == len(node.input) - 1
            out = node.output[0] if last else f"{node.output[0]}/partial{number}"
            nodes.append(onnx.helper.make_node("Add", [left, right], [out], name=node.name))
            left = out
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)


def simplified(proto: Any) -> Any | None:
    """A simplified copy of a graph; None where that fails or the outputs would change."""
    import onnxslim

    copy = type(proto)()
    copy.CopyFrom(proto)
    try:
        with hushed():
            simple = onnxslim.slim(copy)
    except Exception:  # it may raise anything on graphs it does not know
        return None
    if simple is None or _outputs(simple) != _outputs(proto):
        return None
    wanted = {i.name for i in proto.graph.input}
    return simple if {i.name for i in simple.graph.input} <= wanted else None


def _outputs(proto: Any) -> list[tuple[str, int]]:
    """Names and element types. Shapes may become better known and are checked by the importer."""
    return [(o.name, o.type.tensor_type.elem_type) for o in proto.graph.output]
