"""What operators give that go over no element: programs would not write their results at all."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from spaces.frontends.onnx.node import Node, Value, has_nothing
from spaces.frontends.onnx.sizes import shape_expression

_RESULTS: Mapping[str, float] = MappingProxyType(
    {
        "MatMul": 0,
        "MatMulInteger": 0,
        "ReduceL1": 0,
        "ReduceL2": 0,
        "ReduceLogSum": -math.inf,
        "ReduceLogSumExp": -math.inf,
        "ReduceMax": -math.inf,
        "ReduceMean": math.nan,
        "ReduceMin": math.inf,
        "ReduceProd": 1,
        "ReduceSum": 0,
        "ReduceSumSquare": 0,
    }
)
_UNKNOWN = frozenset(
    {"Gemm", "Conv", "ConvTranspose", "Einsum", "QLinearMatMul", "ArgMax", "ArgMin"}
    | {"AveragePool", "GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool", "LpPool", "MaxPool"}
    | {"RoiAlign", "GridSample"}
)


def over_nothing(node: Node, made: Value, builder: Any) -> Value:
    """What a node gives, if it goes over no element; else what was made of it.

    Raises:
        TunerError: nobody says what that is.
    """
    result = made.dims
    if result is None or has_nothing(result) or not _is_empty(node):
        return made
    if node.operator in _UNKNOWN:
        raise node.refused("it goes over no element")
    if node.operator not in _RESULTS:
        return made
    from tvm import relax

    number = _convert(_RESULTS[node.operator], made.dtype)
    whole = relax.op.broadcast_to(relax.const(number, made.dtype), shape_expression(result))
    return Value(expression=builder.emit(whole))


def _is_empty(node: Node) -> bool:
    """Whether an operand that it goes over has no element; others say along which axes."""
    first = 1 if node.operator.startswith(("Reduce", "Arg")) else 2
    shapes = [node.dims(place) for place in range(first)]
    return any(has_nothing(dims) for dims in shapes if dims is not None)


def _convert(number: float, dtype: str) -> float | int | bool:
    """The number, or the end of a type without an infinity that is next to it."""
    if dtype == "bool":
        return number > 0
    if "int" not in dtype:
        return number
    if math.isinf(number):
        ends = np.iinfo(dtype)
        return int(ends.min if number < 0 else ends.max)
    return int(number) if math.isfinite(number) else 0
