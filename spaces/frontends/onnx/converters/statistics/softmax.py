"""Softmax and its logarithm, and which elements each of its sums is over."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from spaces.frontends.onnx.node import Convert, Node
from spaces.frontends.onnx.sizes import shape_expression
from spaces.frontends.precision import (
    in_type,
    wide_of,
)

_ONE_AXIS = 13
"""The version of ONNX from which such an operator looks along one axis. In an older one it looks
along all axes from that on, as if they were one."""


def along_one_axis(node: Node, builder: Any, make: Callable[[Any, int], Any]) -> Any:
    """What an operator makes of its operand along the axis, or the axes, that it looks along.

    Args:
        make: gives the result for a tensor and one axis of it.
    """
    from tvm import relax

    rank, tensor = node.rank(), node.tensor(0, builder)
    axis = int(node.attributes.get("axis", -1 if node.opset >= _ONE_AXIS else 1))
    if node.opset < _ONE_AXIS and axis == rank:  # all axes are before it
        axis, tensor = rank, builder.emit(relax.op.expand_dims(tensor, [rank]))
        found = make(tensor, axis)
        return builder.emit(relax.op.squeeze(found, [axis]))
    axis = node.axis_within(axis, rank)
    if node.opset >= _ONE_AXIS or (axis == 1 and rank == 2):
        return make(tensor, axis)
    dims = node.dims(0)
    if dims is None:
        raise node.refused("the shape of its operand 0 is not known")
    product = node.arithmetic.product
    flat = shape_expression([product(dims[:axis]), product(dims[axis:])])
    found = make(builder.emit(relax.op.reshape(tensor, flat)), 1)
    return builder.emit(relax.op.reshape(found, shape_expression(dims)))


def _softmax(node: Node, builder: Any) -> Any:
    from tvm import relax

    dtype = node.operand(0).dtype
    make = relax.op.nn.softmax if node.operator == "Softmax" else relax.op.nn.log_softmax

    def shares(tensor: Any, axis: int) -> Any:
        wide = in_type(builder, tensor, wide_of(dtype))
        return in_type(builder, builder.emit(make(wide, axis)), dtype)

    return along_one_axis(node, builder, shares)


SOFTMAXES: Mapping[str, Convert] = MappingProxyType({"LogSoftmax": _softmax, "Softmax": _softmax})
