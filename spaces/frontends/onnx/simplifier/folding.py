"""What follows from the constants of a graph alone, computed by ONNX's reference."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from spaces.frontends.onnx.node import STANDARD_DOMAINS
from spaces.frontends.onnx.simplifier.known_tensors import Array, KnownTensors, is_plain

_MOVES = frozenset(
    {
        *("Cast", "CastLike", "Concat", "ConstantOfShape", "Expand", "EyeLike", "Flatten"),
        *("Gather", "GatherElements", "GatherND", "Identity", "Range", "Reshape", "ScatterND"),
        *("Shape", "Size", "Slice", "Split", "Squeeze", "Tile", "Transpose", "Trilu"),
        *("Unsqueeze", "Where"),
    }
)
_ELEMENTWISE = frozenset(
    {
        *("Abs", "Add", "And", "Ceil", "Cos", "Div", "Equal", "Exp", "Floor", "Greater"),
        *("GreaterOrEqual", "Less", "LessOrEqual", "Log", "Max", "Min", "Mul", "Neg", "Not", "Or"),
        *("Pow", "Reciprocal", "Sin", "Sqrt", "Sub", "Xor"),
    }
)
_SUMS = frozenset(
    {
        "CumSum",
        "Einsum",
        "MatMul",
        "ReduceMax",
        "ReduceMean",
        "ReduceMin",
        "ReduceProd",
        "ReduceSum",
    }
)
"""Those that a half-precision type is too narrow for."""
_MOST = 1 << 26
"""Elements of a result: what is larger is made when the model runs."""


def with_computed_constants(
    nodes: Iterable[Any], known: KnownTensors, opsets: Sequence[Any], own: set[tuple[str, str]]
) -> list[Any]:
    """The nodes that depend on more than constants; what the others give is known then.

    Args:
        opsets: versions of ONNX that the graph is written in.
        own: operators that the model itself defines.
    """
    rest = []
    for node in nodes:
        is_standard = node.domain in STANDARD_DOMAINS and (node.domain, node.op_type) not in own
        if is_standard and node.op_type == "Constant" and known.add_node(node):
            continue
        found = _compute(node, known, opsets) if is_standard else None
        if found is None:
            rest.append(node)
            continue
        for name, array in zip(node.output, found, strict=True):
            if name:
                known.add(name, array)
    return rest


def _compute(node: Any, known: KnownTensors, opsets: Sequence[Any]) -> list[Array] | None:
    """What a node of constants gives; None where it is left to the importer."""
    import onnx
    from onnx.reference import ReferenceEvaluator

    given = {name: known.array(name) for name in node.input if name}
    feeds = {name: array for name, array in given.items() if array is not None}
    if len(feeds) < len(given) or not _is_safe(node, feeds):
        return None
    function = onnx.helper.make_function(
        "tuner", "one", [*feeds], [name for name in node.output if name], [node], opsets
    )
    try:
        with np.errstate(all="ignore"):
            made = ReferenceEvaluator(function).run(None, feeds, attributes={})
    except Exception:  # it raises whatever NumPy does; the importer says what is wrong
        return None
    results = dict(zip((name for name in node.output if name), map(np.asarray, made), strict=True))
    if not all(map(is_plain, results.values())):
        return None
    return [results.get(name, np.array(0)) for name in node.output]


def _is_safe(node: Any, feeds: Mapping[str, Array]) -> bool:
    """Whether the reference gives what ONNX says, and no more than fits into memory."""
    arrays = [feeds.get(name, np.array(0)) for name in node.input]
    kinds = {array.dtype.kind for array in feeds.values()}
    if node.op_type in _SUMS:
        return all(array.dtype != np.float16 for array in arrays)
    if node.op_type in _ELEMENTWISE:
        # Of integers NumPy divides by 0 without an error.
        divided = node.op_type in ("Div", "Pow", "Reciprocal") and bool(kinds & {"i", "u"})
        return not divided and len({array.dtype for array in feeds.values()}) == 1
    if node.op_type not in _MOVES:
        return False
    count = _COUNTS.get(node.op_type)
    return count is None or count(*arrays) <= _MOST


def _range_length(start: Array, limit: Array, step: Array) -> float:
    return abs(float(limit) - float(start)) / abs(float(step)) if float(step) else math.inf


_COUNTS: Mapping[str, Any] = MappingProxyType(
    {
        "ConstantOfShape": lambda shape: math.prod(map(int, shape.flat)),
        "Expand": lambda x, shape: x.size * math.prod(map(int, shape.flat)),
        "Range": _range_length,
        "Tile": lambda x, repeats: x.size * math.prod(map(int, repeats.flat)),
    }
)
"""How many elements an operator gives at most, where that may be more than it is given."""
