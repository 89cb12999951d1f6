"""The largest and smallest elements, and where they are.

TVM starts a maximum of real numbers at the lowest finite one, which it then gives for a row of
nothing but -inf, and a place before the first. So the lowest finite number is moved up by a step
before, and what comes out is put right.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from spaces.frontends.onnx.converters.statistics.softmax import along_one_axis
from spaces.frontends.onnx.node import Convert, Node
from spaces.frontends.precision import (
    in_type,
    wide_of,
)
from spaces.ir.element_types import NUMPY_FLOATS

_LAST_INDEX = 12
"""The version of ONNX from which the last one of equals may be asked for."""


def extreme(builder: Any, tensor: Any, axes: list[int], *, keep: bool, largest: bool) -> Any:
    """The largest or smallest elements along axes, which stay or do not."""
    from tvm import relax

    reduce = relax.op.max if largest else relax.op.min
    dtype = str(tensor.ty.dtype)
    if dtype not in NUMPY_FLOATS:
        return builder.emit(reduce(tensor, axes, keep))
    last, near, infinite = _ends(dtype, largest=largest)
    moved = _replace(builder, tensor, last, near)
    found = builder.emit(reduce(moved, axes, keep))
    back = _replace(builder, found, near, last)
    empty = builder.emit(relax.op.equal(found, last))
    return builder.emit(relax.op.where(empty, infinite, back))


def _place(largest: bool) -> Convert:
    def place(node: Node, builder: Any) -> Any:
        from tvm import relax

        axis = node.axis_within(int(node.attributes.get("axis", 0)), node.rank())
        keep = bool(node.attributes.get("keepdims", 1))
        tensor = node.tensor(0, builder)
        last = node.opset >= _LAST_INDEX and node.attributes.get("select_last_index", 0)
        if not last:
            return _first_place(node, builder, tensor, axis, keep=keep, largest=largest)
        turned = builder.emit(relax.op.flip(tensor, axis))
        found = _first_place(node, builder, turned, axis, keep=keep, largest=largest)
        return builder.emit_te(_from_the_end, found, _length(node, tensor, axis))

    return place


def _first_place(
    node: Node, builder: Any, tensor: Any, axis: int, *, keep: bool, largest: bool
) -> Any:
    from tvm import relax

    if _length(node, tensor, axis) == 0:
        raise node.refused(f"there is nothing along its axis {axis}")
    tensor = in_type(builder, tensor, wide_of(str(tensor.ty.dtype)))
    dtype = str(tensor.ty.dtype)
    if dtype in NUMPY_FLOATS:
        last, near, _ = _ends(dtype, largest=largest)
        tensor = _replace(builder, tensor, last, near)
    find = relax.op.argmax if largest else relax.op.argmin
    found = builder.emit(find(tensor, axis, keep))
    return builder.emit(relax.op.maximum(found, relax.const(0, "int64")))


def _length(node: Node, tensor: Any, axis: int) -> Any:
    from spaces.ir import tvm_compat

    dims = tvm_compat.tensor_dims(tensor)
    if dims is None:
        raise node.refused("the shape of its operand 0 is not known")
    number = tvm_compat.as_int(dims[axis])
    return dims[axis] if number is None else number


def _from_the_end(places: Any, length: Any) -> Any:
    from tvm import te

    return te.compute(places.shape, lambda *at: length - 1 - places[at], name="from_the_end")


def _ends(dtype: str, *, largest: bool) -> tuple[Any, Any, Any]:
    """The lowest finite number, the next one, and the infinite one, or the highest ones."""
    from tvm import relax

    kind = np.dtype(dtype).type
    last = np.finfo(dtype).min if largest else np.finfo(dtype).max
    numbers = (last, np.nextafter(last, kind(0)), kind(-np.inf if largest else np.inf))
    first, second, third = (relax.const(number, dtype) for number in numbers)
    return first, second, third


def _replace(builder: Any, tensor: Any, old: Any, new: Any) -> Any:
    """A tensor with one number for another."""
    from tvm import relax

    found = builder.emit(relax.op.equal(tensor, old))
    return builder.emit(relax.op.where(found, new, tensor))


def _hardmax(node: Node, builder: Any) -> Any:
    from tvm import relax

    dtype = node.operand(0).dtype

    def marked(tensor: Any, axis: int) -> Any:
        if (length := _length(node, tensor, axis)) == 0:
            return tensor
        place = _first_place(node, builder, tensor, axis, keep=True, largest=True)
        numbers = builder.emit(relax.op.arange(0, length, 1, "int64"))
        spread = [length if n == axis else 1 for n in range(len(tensor.ty.shape.values))]
        numbers = builder.emit(relax.op.reshape(numbers, spread))
        return in_type(builder, builder.emit(relax.op.equal(numbers, place)), dtype)

    return along_one_axis(node, builder, marked)


EXTREMES: Mapping[str, Convert] = MappingProxyType(
    {"ArgMax": _place(largest=True), "ArgMin": _place(largest=False), "Hardmax": _hardmax}
)
