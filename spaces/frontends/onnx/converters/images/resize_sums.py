"""Images resized axis by axis: sums of elements that tables name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from spaces.frontends.onnx.converters.images.resize_tables import (
    Axis,
    Method,
    Table,
    make_known_table,
    run_time_table,
)
from spaces.frontends.onnx.node import Node
from spaces.ir.element_types import is_float


def by_tables(node: Node, builder: Any, tensor: Any, axes: Sequence[Axis], method: Method) -> Any:
    """A tensor whose axes are resized, one after the other."""
    from tvm import relax

    dtype = str(tensor.ty.dtype)
    if method.mode != "nearest" and dtype not in ("float64", "float32"):
        tensor = builder.emit(relax.op.astype(tensor, "float32"))
    tables = []
    for axis in axes:
        if method.antialias and not axis.known:
            raise node.refused("antialias of sizes that are not known")
        table = (
            make_known_table(axis, method) if axis.known else run_time_table(builder, axis, method)
        )
        tables.append((axis, table))
    for axis, table in tables:
        if table.weights is None:
            tensor = builder.emit(relax.op.take(tensor, _flat(builder, table.places), axis.axis))
        else:
            tensor = _weigh(builder, tensor, axis.axis, table)
    tensor = _convert(builder, tensor, dtype)
    beyond = [(axis.axis, table.outside) for axis, table in tables if table.outside is not None]
    if not beyond:
        return tensor
    value = float(node.attributes.get("extrapolation_value", 0.0))
    return _extrapolate(builder, tensor, beyond, value)


def _flat(builder: Any, places: Any) -> Any:
    from tvm import relax

    if isinstance(places, np.ndarray):
        return relax.const(places.reshape(-1), "int32")
    return builder.emit(relax.op.squeeze(places, axis=[1]))


def _tensor(found: Any) -> Any:
    from tvm import relax

    return relax.const(found, str(found.dtype)) if isinstance(found, np.ndarray) else found


def _convert(builder: Any, tensor: Any, dtype: str) -> Any:
    from tvm import relax

    if str(tensor.ty.dtype) == dtype:
        return tensor
    if not is_float(dtype):
        tensor = builder.emit(relax.op.trunc(tensor))
    return builder.emit(relax.op.astype(tensor, dtype))


def _weigh(builder: Any, tensor: Any, axis: int, table: Table) -> Any:
    """Sums of elements along an axis, each with its weight."""
    from tvm import te

    def weighed_sum(data: Any, places: Any, weights: Any) -> Any:
        wanted, terms = places.shape
        term = te.reduce_axis((0, terms), name="term")
        shape = [*data.shape[:axis], wanted, *data.shape[axis + 1 :]]

        def one(*index: Any) -> Any:
            i = index[axis]
            place = (*index[:axis], places[i, term], *index[axis + 1 :])
            return te.sum(weights[i, term].astype(data.dtype) * data[place], axis=term)

        return te.compute(shape, one, name="resized")

    return builder.emit_te(weighed_sum, tensor, _tensor(table.places), _tensor(table.weights))


def _extrapolate(builder: Any, tensor: Any, beyond: Sequence[tuple[int, Any]], value: float) -> Any:
    from tvm import te, tirx

    axes = [axis for axis, _ in beyond]

    def extrapolated(data: Any, *outside: Any) -> Any:
        def one(*index: Any) -> Any:
            out = [o[index[axis]] for axis, o in zip(axes, outside, strict=True)]
            condition = out[0] if len(out) == 1 else tirx.any(*out)
            return tirx.Select(condition, tirx.const(value, data.dtype), data[index])

        return te.compute(data.shape, one, name="extrapolated")

    return builder.emit_te(extrapolated, tensor, *[_tensor(outside) for _, outside in beyond])
