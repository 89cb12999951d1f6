"""Reductions: what is done to each element, how they are reduced, what is done to the result."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from spaces.frontends.onnx.converters.statistics.axes_at_run_time import reduce_at_run_time
from spaces.frontends.onnx.converters.statistics.extremes import extreme
from spaces.frontends.onnx.node import Convert, Node
from spaces.frontends.onnx.sizes import Size, shape_expression
from spaces.frontends.precision import (
    in_type,
    wide_of,
)
from spaces.ir.element_types import is_float, numpy_dtype

_AXES_ARE_OPERANDS = MappingProxyType({"ReduceSum": 13})
"""Versions of ONNX from which axes are an operand."""
_SINCE = 18
_REAL = "float64"
"""The type that roots and logarithms of integers are computed in."""


@dataclass(frozen=True, slots=True)
class Reduction:
    """A reduction.

    Attributes:
        before: name of Relax's operator on each element; `after` of that on the result.
        kind: which reduction of `_reduced` it is.
        of_nothing: the result for no elements.
    """

    kind: str
    of_nothing: float
    before: str = ""
    after: str = ""

    @property
    def is_real(self) -> bool:
        """Whether the result of integers is computed with real numbers."""
        return bool(self.after) or self.kind == "log_sum_exp"


_REDUCTIONS: Mapping[str, Reduction] = MappingProxyType(
    {
        "ReduceL1": Reduction("sum", 0.0, before="abs"),
        "ReduceL2": Reduction("sum", 0.0, before="square", after="sqrt"),
        "ReduceLogSum": Reduction("sum", -math.inf, after="log"),
        "ReduceLogSumExp": Reduction("log_sum_exp", -math.inf),
        "ReduceMax": Reduction("max", -math.inf),
        "ReduceMean": Reduction("mean", math.nan),
        "ReduceMin": Reduction("min", math.inf),
        "ReduceProd": Reduction("prod", 1.0),
        "ReduceSum": Reduction("sum", 0.0),
        "ReduceSumSquare": Reduction("sum", 0.0, before="square"),
    }
)


def _reduce(node: Node, builder: Any) -> Any:
    reduction, data, rank = _REDUCTIONS[node.operator], node.operand(0), node.rank()
    keep = bool(node.attributes.get("keepdims", 1))
    axes = _axes(node, rank)
    if axes is not None and any(d == 0 for d in _sizes(node, axes)):
        return _of_nothing(node, reduction, axes, keep)
    wide = _REAL if reduction.is_real and not is_float(data.dtype) else wide_of(data.dtype)
    wide = "int8" if data.dtype == "bool" else wide
    tensor = in_type(builder, data.tensor(builder), wide)
    if reduction.before:
        tensor = builder.emit(_elementwise(reduction.before, tensor))
    if axes is None:
        step = _step(node, builder, reduction)
        tensor = reduce_at_run_time(node, builder, tensor, step, keepdims=keep)
    elif axes:
        tensor = _step(node, builder, reduction)(tensor, axes, keep)
    if reduction.after:
        tensor = builder.emit(_elementwise(reduction.after, tensor))
    return in_type(builder, tensor, data.dtype)


def _step(node: Node, builder: Any, reduction: Reduction) -> Callable[[Any, list[int], bool], Any]:
    """How a tensor is reduced along some axes, which may stay."""
    from tvm import relax

    def reduced(tensor: Any, axes: list[int], keep: bool) -> Any:
        if reduction.kind in ("max", "min"):
            return extreme(builder, tensor, axes, keep=keep, largest=reduction.kind == "max")
        if reduction.kind == "log_sum_exp":
            return _log_sum_exp(builder, tensor, axes, keep)
        if reduction.kind == "mean" and not is_float(str(tensor.ty.dtype)):
            return _whole_mean(node, builder, tensor, axes, keep)
        return builder.emit(getattr(relax.op, reduction.kind)(tensor, axes, keep))

    return reduced


def _elementwise(name: str, tensor: Any) -> Any:
    from tvm import relax

    return (
        relax.op.multiply(tensor, tensor) if name == "square" else getattr(relax.op, name)(tensor)
    )


def _log_sum_exp(builder: Any, tensor: Any, axes: list[int], keep: bool) -> Any:
    """The largest element is taken off before, the largest number for an infinite one."""
    from tvm import relax

    emit, dtype = builder.emit, str(tensor.ty.dtype)
    largest = emit(relax.op.max(tensor, axes, True))
    finite = relax.const(np.finfo(dtype).max, dtype)
    largest = emit(relax.op.minimum(largest, finite))
    shares = emit(relax.op.exp(emit(relax.op.subtract(tensor, largest))))
    total = emit(relax.op.log(emit(relax.op.sum(shares, axes, True))))
    found = emit(relax.op.add(total, largest))
    return found if keep else emit(relax.op.squeeze(found, axes))


def _whole_mean(node: Node, builder: Any, tensor: Any, axes: list[int], keep: bool) -> Any:
    """Of integers: their sum, divided and rounded towards zero."""
    from tvm import relax, tirx

    dims = tensor.ty.shape
    if dims is None:
        raise node.refused("the number of its elements is not known")
    wide = in_type(builder, tensor, "int64")
    total = builder.emit(relax.op.sum(wide, axes, keep))
    count = math.prod([dims.values[axis] for axis in axes], start=tirx.const(1, "int64"))
    mean = builder.emit_te(_divide, total, count, primfunc_name_hint="mean")
    return in_type(builder, mean, str(tensor.ty.dtype))


def _divide(total: Any, count: Any) -> Any:
    from tvm import te, tirx

    return te.compute(total.shape, lambda *at: tirx.truncdiv(total[at], count), name="mean")


def _axes(node: Node, rank: int) -> list[int] | None:
    """The axes that are reduced, in order; None where only a run knows them."""
    listed = node.attributes.get("axes")
    if node.opset >= _AXES_ARE_OPERANDS.get(node.operator, _SINCE) and listed is None:
        value = node.input(1)
        if value is not None and (known := node.numbers(1)) is None:
            return None
        listed = [] if value is None else known
        if not listed and node.attributes.get("noop_with_empty_axes", 0):
            return []
    return sorted({node.axis_within(int(a), rank) for a in listed or range(rank)})


def _sizes(node: Node, axes: Sequence[int]) -> list[Size]:
    dims = node.dims(0)
    return [] if dims is None else [dims[axis] for axis in axes]


def _of_nothing(node: Node, reduction: Reduction, axes: Sequence[int], keep: bool) -> Any:
    """The result where there are no elements to reduce."""
    from tvm import relax

    dtype, dims = node.operand(0).dtype, node.dims(0) or []
    value = reduction.of_nothing
    kind = numpy_dtype(dtype)
    if dtype == "bool":
        value = value > 0
    elif kind.kind in "iu":
        if math.isnan(value):
            raise node.refused("it is the mean of no integers")
        limits = np.iinfo(kind)
        value = int(min(max(value, limits.min), limits.max))
    kept = [1 if n in axes else d for n, d in enumerate(dims) if keep or n not in axes]
    return relax.op.broadcast_to(relax.const(value, dtype), shape_expression(kept))


def _global_average(node: Node, builder: Any) -> Any:
    """In a narrow type; any other is for TVM's importer."""
    from tvm import relax

    dtype = node.operand(0).dtype
    if wide_of(dtype) == dtype:
        return None
    wide = in_type(builder, node.tensor(0, builder), wide_of(dtype))
    mean = builder.emit(relax.op.mean(wide, [*range(2, node.rank())], True))
    return in_type(builder, mean, dtype)


REDUCTIONS: Mapping[str, Convert] = MappingProxyType(
    {**dict.fromkeys(_REDUCTIONS, _reduce), "GlobalAveragePool": _global_average}
)
