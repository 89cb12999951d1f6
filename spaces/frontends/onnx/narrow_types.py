"""Types of less than a byte, whose numbers are kept in a wider type.

A graph knows which of its values they are, and hands them to operators that know them as well.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from spaces.frontends.inputs import InputSpec
from spaces.frontends.onnx.converters.casts import CONVERTED, NARROW
from spaces.frontends.onnx.node import Node
from spaces.ir.element_types import numpy_dtype
from tuner.errors import TunerError

_MOVES = frozenset(
    {"Concat", "Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Squeeze"}
    | {"Split", "Tile", "Transpose", "Unsqueeze"}
)
"""Operators that only move numbers."""
_KNOWING = _MOVES | {"BitCast", "Cast", "CastLike", "DequantizeLinear", "QuantizeLinear"}


def check_inputs(inputs: Iterable[InputSpec]) -> None:
    """Refuse a model with an input of a type that nothing here computes with."""
    for spec in inputs:
        if spec.dtype not in CONVERTED:
            raise TunerError(f"input {spec.name} is of {spec.dtype}, which is not supported")


def kept(array: Any) -> tuple[Any, str]:
    """An array in the type that it is kept in, and its own type if that is narrower."""
    name = str(array.dtype)
    return (array.astype(numpy_dtype(NARROW[name])), name) if name in NARROW else (array, "")


def check_narrow(node: Node) -> None:
    """Refuse a node with an operand of less than a byte that it does not know."""
    if node.operator in _KNOWING:
        return
    for number, value in enumerate(node.inputs):
        if value is not None and value.narrow:
            raise node.refused(f"its operand {number} is {value.narrow}: cast it before")


def narrow_result(node: Node) -> str:
    """The type of what a node gives, if that is less than a byte."""
    if not any(value is not None and value.narrow for value in node.inputs):
        said = node.attributes.get("to", 0) if node.operator == "Cast" else 0
        if node.operator == "QuantizeLinear":
            said = node.attributes.get("output_dtype", 0)
        return _name(said)
    if node.operator in _MOVES:
        return _narrow(node, 0)
    if node.operator == "CastLike":
        return _narrow(node, 1)
    if node.operator == "QuantizeLinear":
        return _narrow(node, 2) or _name(node.attributes.get("output_dtype", 0))
    return _name(node.attributes["to"]) if node.operator == "Cast" else ""


def _narrow(node: Node, number: int) -> str:
    value = node.input(number)
    return "" if value is None else value.narrow


def _name(number: int) -> str:
    import onnx

    name = str(onnx.helper.tensor_dtype_to_np_dtype(number)) if number else ""
    return name if name in NARROW else ""
