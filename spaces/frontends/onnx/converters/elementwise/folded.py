"""Nodes whose operands are all known, worked out by ONNX's reference while a model is imported.

Other converters may need such a value, as a bound or a number of elements.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from spaces.frontends.onnx.node import Convert, Node, Value
from spaces.lowering.relax_rewrite import constant

NUMPY_TYPES = frozenset(
    ["bool", "float16", "float32", "float64"]
    + [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
)
_MOST = 4096
"""Elements of an operand that are worked out one node at a time; a pass folds larger ones."""


def fold_known(table: Mapping[str, Convert]) -> Mapping[str, Convert]:
    """The same converters, for operands that are not all known."""
    return MappingProxyType({name: _fold(convert) for name, convert in table.items()})


def _fold(convert: Convert) -> Convert:
    def converted(node: Node, builder: Any) -> Any:
        found = _work_out(node)
        return convert(node, builder) if found is None else found

    return converted


def _work_out(node: Node) -> list[Any] | None:
    import onnx.reference

    if any(value is not None and value.narrow for value in node.inputs):
        return None
    arrays = {f"i{n}": read_known(v) for n, v in enumerate(node.inputs) if v is not None}
    if not arrays or any(array is None for array in arrays.values()):
        return None
    helper = onnx.helper
    operands = [f"i{n}" if v is not None else "" for n, v in enumerate(node.inputs)]
    results = [f"o{n}" for n in range(len(node.outputs))]
    attributes = {k: v for k, v in node.attributes.items() if k != "tvm_custom"}
    proto = helper.make_node(node.operator, operands, results, **attributes)
    graph = helper.make_graph(
        [proto],
        "one",
        [_describe(name, array) for name, array in arrays.items()],
        [helper.make_empty_tensor_value_info(name) for name in results],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", node.opset)])
    try:
        with np.errstate(all="ignore"):
            found = onnx.reference.ReferenceEvaluator(model).run(None, arrays)
    except Exception:  # what the reference does not take is for the converter
        return None
    if any(str(np.asarray(array).dtype) not in NUMPY_TYPES for array in found):
        return None
    return [constant(np.asarray(array)) for array in found]


def _describe(name: str, array: Any) -> Any:
    from onnx import helper

    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_value_info(name, kind, array.shape)


def read_known(value: Value) -> np.ndarray[Any, Any] | None:
    """What a value holds, if that is known and not large."""
    array = value.array
    small = array is not None and array.size <= _MOST and value.dtype in NUMPY_TYPES
    return array if small else None
