"""Running sums and products."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from spaces.frontends.onnx.node import Convert, Node
from spaces.frontends.precision import (
    in_type,
    wide_of,
)


def _running(node: Node, builder: Any) -> Any:
    from tvm import relax

    dtype, rank = node.operand(0).dtype, node.rank()
    tensor = in_type(builder, node.tensor(0, builder), wide_of(dtype))
    if (numbers := _axis(node)) is not None:
        found = _along(node, builder, tensor, node.axis_within(numbers, rank))
        return in_type(builder, found, dtype)
    where = builder.emit(relax.op.reshape(in_type(builder, node.tensor(1, builder), "int64"), []))
    # Only a run knows the axis: all are tried, and one is taken.
    found = tensor
    for axis in range(rank):
        asked = [builder.emit(relax.op.equal(where, _whole(n))) for n in (axis, axis - rank)]
        either = builder.emit(relax.op.logical_or(*asked))
        one = _along(node, builder, tensor, axis)
        found = builder.emit(relax.op.where(either, one, found))
    return in_type(builder, found, dtype)


def _axis(node: Node) -> int | None:
    from spaces.ir import tvm_compat

    numbers, value = node.numbers(1), node.operand(1)
    if numbers is None and tvm_compat.is_constant(value.expression):
        numbers = [int(n) for n in value.expression.value.numpy().flat]
    if numbers is not None and len(numbers) != 1:
        raise node.refused(f"it has {len(numbers)} axes")
    return None if numbers is None else numbers[0]


def _whole(number: int) -> Any:
    from tvm import relax

    return relax.const(number, "int64")


def _along(node: Node, builder: Any, tensor: Any, axis: int) -> Any:
    """Running sums or products along an axis, from either end, each element's own in it or not."""
    from tvm import relax

    make = relax.op.cumsum if node.operator == "CumSum" else relax.op.cumprod
    exclusive, turned = (bool(node.attributes.get(key, 0)) for key in ("exclusive", "reverse"))
    if turned:
        tensor = builder.emit(relax.op.flip(tensor, axis))
    found = builder.emit(make(tensor, axis, exclusive=exclusive))
    return builder.emit(relax.op.flip(found, axis)) if turned else found


RUNNING: Mapping[str, Convert] = MappingProxyType({"CumProd": _running, "CumSum": _running})
