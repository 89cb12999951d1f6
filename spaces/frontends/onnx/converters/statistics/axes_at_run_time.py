"""Reductions along axes that only a run knows, as those that are inputs of a model.

Each axis in turn is reduced, and its result spread along it again, where it is asked for. What is
left holds each result as often as elements were reduced to it; the first of each is taken out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from spaces.frontends.onnx.node import Node
from spaces.frontends.onnx.sizes import shape_expression
from spaces.frontends.precision import in_type

_OPAQUE = 8
"""TVM's number for programs that are not fused with others."""


def reduce_at_run_time(
    node: Node,
    builder: Any,
    tensor: Any,
    step: Callable[[Any, list[int], bool], Any],
    *,
    keepdims: bool,
) -> Any:
    """A tensor reduced along the axes that operand 1 holds.

    Args:
        step: reduces a tensor along axes, which stay or do not.

    Raises:
        TunerError: it is not known how many axes there are, or how large the tensor is.
    """
    from tvm import relax

    emit, dims, listed = builder.emit, node.dims(0), node.dims(1)
    if dims is None or listed is None or len(listed) != 1 or not isinstance(listed[0], int):
        raise node.refused("only a run knows how many axes it has, or its shape")
    rank, shape = len(dims), shape_expression(dims)
    axes = in_type(builder, node.tensor(1, builder), "int64")
    one = relax.const(1, "int64")
    counted = []
    for axis in range(rank):
        asked = _is_asked_for(builder, axes, axis, rank)
        spread = emit(relax.op.broadcast_to(step(tensor, [axis], True), shape))
        tensor = emit(relax.op.where(asked, spread, tensor))
        size = emit(relax.op.shape_to_tensor(shape_expression([dims[axis]])))
        counted.append(emit(relax.op.where(asked, one, size)))
    sizes = counted[0] if rank == 1 else emit(relax.op.concat(counted, 0))
    # Fused with what is before it, it would move to where its sizes are not known yet.
    alone = {"primfunc_attrs": {"op_pattern": _OPAQUE}}
    first = builder.emit_te(_front, tensor, _symbols(builder, sizes, rank), **alone)
    if keepdims:
        return first
    left = rank - listed[0]
    shape = _symbols(builder, _keep(builder, axes, sizes, rank, left), left)
    return emit(relax.op.reshape(first, relax.ShapeExpr(shape)))


def _front(tensor: Any, shape: Any) -> Any:
    """The elements of a tensor from its front, in a shape."""
    from tvm import te

    return te.compute(shape, lambda *at: tensor[at], name="front")


def _is_asked_for(builder: Any, axes: Any, axis: int, rank: int) -> Any:
    """Whether an axis is among others, which may be counted from the end."""
    from tvm import relax

    emit = builder.emit
    wrapped = emit(relax.op.floor_mod(axes, relax.const(rank, "int64")))
    same = emit(relax.op.equal(wrapped, relax.const(axis, "int64")))
    number = emit(relax.op.max(in_type(builder, same, "int8"), [0], True))
    return in_type(builder, number, "bool")


def _keep(builder: Any, axes: Any, sizes: Any, rank: int, number: int) -> Any:
    """The sizes of the axes that are not among others, in order."""
    from tvm import relax

    emit = builder.emit
    flags = [
        in_type(builder, _is_asked_for(builder, axes, axis, rank), "int64") for axis in range(rank)
    ]
    flags = [
        emit(relax.op.add(emit(relax.op.multiply(f, relax.const(rank, "int64"))),
                          relax.const(n, "int64")))
        for n, f in enumerate(flags)
    ]  # fmt: skip
    keys = flags[0] if rank == 1 else emit(relax.op.concat(flags, 0))
    order = emit(relax.op.argsort(keys, 0, False, "int64"))
    front = emit(relax.op.strided_slice(order, [0], [0], [number]))
    return emit(relax.op.take(sizes, front, 0))


def _symbols(builder: Any, sizes: Any, rank: int) -> list[Any]:
    """Symbols for sizes that a run computes."""
    from tvm import relax, tirx

    found = builder.emit(relax.op.tensor_to_shape(sizes))
    names = [tirx.Var(f"left_{n}", "int64") for n in range(rank)]
    builder.match_cast(found, relax.ShapeType(values=names))
    return names
