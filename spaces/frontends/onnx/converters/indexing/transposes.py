"""Transposes that move nothing in memory."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from spaces.frontends.onnx.node import Convert, Node
from spaces.frontends.onnx.sizes import shape_expression


def _transpose(node: Node, builder: Any) -> Any:
    """A reshape, where all axes but those of size 1 stay in order; it costs nothing at run time."""
    from tvm import relax

    value, dims = node.input(0), node.dims(0)
    if value is None or dims is None:
        return None
    order = [int(axis) for axis in node.attributes.get("perm", range(len(dims))[::-1])]
    if sorted(order) != [*range(len(dims))]:
        return None
    long = [axis for axis in order if not (isinstance(dims[axis], int) and dims[axis] == 1)]
    if long != sorted(long):
        return None
    shape = [dims[axis] for axis in order]
    return relax.op.reshape(value.tensor(builder), shape_expression(shape))


TRANSPOSES: Mapping[str, Convert] = MappingProxyType({"Transpose": _transpose})
