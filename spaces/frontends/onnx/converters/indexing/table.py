"""Operators that choose or mark elements by their place or their order."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from spaces.frontends.onnx.converters.indexing.ordering import ORDERING
from spaces.frontends.onnx.converters.indexing.rows import ROWS
from spaces.frontends.onnx.converters.indexing.slicing import SLICING
from spaces.frontends.onnx.node import Convert, Node, has_nothing, require_shapes
from spaces.frontends.onnx.run_time_sizes import Read, compute_sizes
from spaces.frontends.onnx.sizes import Size


def _one_hot(node: Node, builder: Any) -> Any:
    """Places beyond the depth are of no class."""
    from tvm import relax, te, tirx

    dims = node.shape(0)
    axis = int(node.attributes.get("axis", -1))
    if not -len(dims) - 1 <= axis <= len(dims):
        raise node.refused(f"there is no axis {axis} of {len(dims) + 1} dimensions")
    axis %= len(dims) + 1
    depth = _depth(node, builder)
    places = builder.emit(relax.op.astype(node.tensor(0, builder), "int64"))

    def program(tensor: Any, values: Any) -> Any:
        def element(*index: Any) -> Any:
            place = tensor(*index[:axis], *index[axis + 1 :])
            here = index[axis].astype("int64")
            chosen = tirx.any(place == here, place == here - depth)
            return tirx.Select(chosen, values[1], values[0])

        return te.compute([*dims[:axis], depth, *dims[axis:]], element, name="one_hot")

    values = node.tensor(2, builder)
    return builder.emit_te(program, places, values, primfunc_name_hint="one_hot")


def _depth(node: Node, builder: Any) -> Size:
    sizes, array = node.sizes(1), node.array(1)
    if sizes is not None:
        return sizes.flat()[0]
    if array is not None:
        return int(array.flat[0])

    def calculate(read: Read) -> tuple[Read, Any]:
        return read, read(0) >= 0

    return compute_sizes(node, builder, [node.tensor(1, builder)], 1, calculate)[0]


def _eye_like(node: Node, builder: Any) -> Any:
    from onnx.helper import tensor_dtype_to_np_dtype
    from tvm import te

    dims = node.shape(0)
    if len(dims) != 2:
        raise node.refused(f"its operand has {len(dims)} dimensions")
    value = node.input(0)
    dtype = node.attributes.get("dtype")
    named = str(tensor_dtype_to_np_dtype(dtype)) if dtype else value.dtype if value else ""
    shift = int(node.attributes.get("k", 0))

    def program() -> Any:
        return te.compute(
            dims, lambda row, column: (column - row == shift).astype(named), name="eye"
        )

    return builder.emit_te(program, primfunc_name_hint="eye")


def _trilu(node: Node, builder: Any) -> Any:
    """TVM's own of what has elements."""
    return node.tensor(0, builder) if has_nothing(node.shape(0)) else None


INDEXING: Mapping[str, Convert] = MappingProxyType(
    require_shapes(
        {
            **ORDERING,
            **ROWS,
            **SLICING,
            "OneHot": _one_hot,
            "EyeLike": _eye_like,
            "Trilu": _trilu,
        }
    )
)
"""By operator."""
