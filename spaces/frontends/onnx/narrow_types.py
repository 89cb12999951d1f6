"""Types of less than a byte and floats of 8 bits, whose numbers are kept in another type.

A graph knows which of its values they are, and hands them to operators that know them as well. Of
floats of 8 bits the codes are kept; inputs and outputs are such floats themselves.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from spaces.frontends.inputs import InputSpec
from spaces.frontends.onnx.converters.elementwise.casts import BYTE_FLOATS, KEPT_IN, PLAIN
from spaces.frontends.onnx.node import Node, Value
from spaces.ir.element_types import numpy_dtype
from tuner.errors import TunerError

_MOVES = frozenset(
    {"Concat", "Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Squeeze"}
    | {"Split", "Tile", "Transpose", "Unsqueeze"}
)
"""Operators that only move numbers."""
_KNOWING = (
    _MOVES
    | {"BitCast", "Cast", "CastLike", "DequantizeLinear", "QuantizeLinear"}
    | {"IsInf", "IsNaN", "Shape", "Size"}
)


def check_inputs(inputs: Iterable[InputSpec]) -> None:
    """Refuse a model with an input of a type that nothing here computes with."""
    for spec in inputs:
        if spec.dtype not in PLAIN and spec.dtype not in BYTE_FLOATS:
            raise TunerError(f"input {spec.name} is of {spec.dtype}, which is not supported")


def widen_array(array: Any) -> tuple[Any, str]:
    """An array in the type that it is kept in, and its own type if that is another."""
    name = str(array.dtype)
    if name in BYTE_FLOATS:
        return array.view("uint8"), name
    return (array.astype(numpy_dtype(KEPT_IN[name])), name) if name in KEPT_IN else (array, "")


def take_input(builder: Any, given: Any, dtype: str) -> Value:
    """An input of a model."""
    from tvm import topi

    if dtype not in BYTE_FLOATS:
        return Value(expression=given)
    codes = builder.emit_te(topi.reinterpret, given, "uint8", primfunc_name_hint="codes")
    return Value(expression=codes, narrow=dtype)


def give_output(builder: Any, name: str, value: Value) -> Any:
    """An output of a model.

    Raises:
        TunerError: it is of less than a byte.
    """
    from tvm import topi

    tensor = value.tensor(builder)
    if not value.narrow:
        return tensor
    if value.narrow not in BYTE_FLOATS:
        raise TunerError(f"output {name} is of {value.narrow}, which is not supported")
    return builder.emit_te(topi.reinterpret, tensor, value.narrow, primfunc_name_hint="numbers")


def check_narrow(node: Node) -> None:
    """Refuse a node with an operand that is kept in another type, which it does not know."""
    if node.operator in _KNOWING:
        return
    for number, value in enumerate(node.inputs):
        if value is not None and value.narrow:
            raise node.refused(f"its operand {number} is of {value.narrow}, which has to be cast")


def narrow_result(node: Node) -> str:
    """The type of what a node gives, if that is kept in another."""
    if node.operator in ("Cast", "BitCast"):
        return _name(node.attributes["to"])
    if node.operator in _MOVES:
        return _narrow(node, 0)
    if node.operator == "CastLike":
        return _narrow(node, 1)
    if node.operator == "QuantizeLinear":
        return _narrow(node, 2) or _name(node.attributes.get("output_dtype", 0))
    return ""


def _narrow(node: Node, number: int) -> str:
    value = node.input(number)
    return "" if value is None else value.narrow


def _name(number: int) -> str:
    import onnx

    name = str(onnx.helper.tensor_dtype_to_np_dtype(number)) if number else ""
    return name if name in KEPT_IN else ""
