"""No converter of TVM's gets what it does not honour."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from spaces.frontends.onnx.honoured.elementwise import ELEMENTWISE
from spaces.frontends.onnx.honoured.layers import LAYERS
from spaces.frontends.onnx.honoured.rows import ANY, Row, Values
from spaces.frontends.onnx.honoured.tensors import TENSORS
from spaces.frontends.onnx.node import Node, Value
from spaces.ir import tvm_compat

HONOURED: Mapping[str, Row] = MappingProxyType({**ELEMENTWISE, **LAYERS, **TENSORS})
"""By operator. None of another one is left to TVM."""
NEWEST = 28
"""Version of ONNX's operators that the table was written for."""
_SWITCHES = frozenset(
    {"align_corners", "allowzero", "antialias", "broadcast", "ceil_mode", "center_point_box"}
    | {"count_include_pad", "detect_negative", "detect_positive", "exclude_outside", "exclusive"}
    | {"fmod", "input_forget", "interleaved", "inverse", "is_causal", "keepdims", "largest"}
    | {"layout", "linear_before_reset", "new_axis", "noop_with_empty_axes", "onesided", "periodic"}
    | {"reverse", "saturate", "select_last_index", "sorted", "storage_order", "transA", "transB"}
    | {"upper"}
)
"""Attributes that are 0 or 1. Programs do not agree on what others would mean."""
_NAMES = MappingProxyType(
    {
        "float32": "float",
        "float64": "double",
        "float8_e8m0fnu": "float8e8m0",
        "float6_e2m3fn": "float6e2m3",
        "float6_e3m2fn": "float6e3m2",
        "float4_e2m1fn": "float4e2m1",
    }
)
"""Types of elements as schemas write them, where that is another name."""


def check_honoured(node: Node) -> None:
    """See that TVM's converter of an operator honours all of a node.

    Raises:
        TunerError: it does not; the one line says what of it.
    """
    found = HONOURED.get(node.operator)
    if found is None:
        raise node.refused("its operator is not taken")
    schema = _schema(node)
    strange = schema is None or schema.since_version > NEWEST or schema.deprecated
    if node.opset < found.since or strange:
        raise node.refused(f"it is not taken in opset {node.opset}")
    for why in _find_unhonoured(node, found, schema):
        raise node.refused(why)


def check_version(node: Node) -> None:
    """See that a node is one of its version of ONNX, whoever converts it.

    Raises:
        TunerError: it has an attribute that its version does not know or that is out of its range,
            operands of two types where its version has one, or of a type that no version takes.
    """
    if (schema := _schema_of_version(node)) is None:
        return
    for name, value in node.attributes.items():
        if name not in schema.attributes:
            raise node.refused(f"its attribute {name} is not known in opset {node.opset}")
        if name in _SWITCHES and value not in (0, 1):
            raise node.refused(f"its {name} is {value}, which is neither 0 nor 1")
    types: dict[str, str] = {}
    for number, value in enumerate(node.inputs if len(schema.inputs) else ()):
        formal = _formal(schema, number)
        if value is None or not value.is_tensor or not formal.is_homogeneous:
            continue
        if (other := types.setdefault(formal.type_str, value.kind)) != value.kind:
            raise node.refused(f"its input {formal.name} is {value.kind}, and not {other}")
        allowed = formal.types | _formal(_newest(node), number).types
        kind = _NAMES.get(value.kind, value.kind.replace("_", ""))
        if f"tensor({kind})" not in allowed:
            raise node.refused(f"its input {formal.name} is not taken in {value.kind}")


def with_defaults(node: Node) -> Node:
    """A node with the defaults of its own version, where those of the newest one are others."""
    schema = _schema_of_version(node)
    changed = {} if schema is None else _find_changed_defaults(node, schema)
    return replace(node, attributes={**changed, **node.attributes}) if changed else node


def not_computed(node: Node) -> list[str]:
    """Why there are no more outputs, of each of those after the last that TVM's converter
    computes."""
    if node.operator not in HONOURED or (schema := _schema(node)) is None:
        return []
    given = HONOURED[node.operator].gives[0]
    formals = [] if _variadic(schema.outputs, given) else schema.outputs
    names = [formal.name for formal in formals[given : len(node.outputs)]]
    return [f"its output {name} is not computed" for name in names]


def _find_changed_defaults(node: Node, schema: Any) -> dict[str, Any]:
    newest = _defaults(_newest(node))
    return {n: d for n, d in _defaults(schema).items() if d != newest.get(n, d)}


def _find_unhonoured(node: Node, found: Row, schema: Any) -> Iterator[str]:
    if found.limit is not None and (why := found.limit(node)) is not None:
        yield why
    defaults = _defaults(schema)
    for name, value in node.attributes.items():
        if name not in schema.attributes:
            yield f"its attribute {name} is not known in opset {node.opset}"
        elif not _is_taken(value, found.attributes.get(name, ()), defaults.get(name)):
            yield f"its attribute {name}{_text(value)} is not taken"
    for number, value in enumerate(node.inputs):
        if value is not None:
            yield from _of_operand(found, schema, number, value)


def _of_operand(found: Row, schema: Any, number: int, value: Value) -> Iterator[str]:
    more = _variadic(schema.inputs, number)
    if not more and number >= min(len(found.operands), len(schema.inputs)):
        yield f"its input {number} is not taken"
        return
    types = found.operands[min(number, len(found.operands) - 1)]
    name = _formal(schema, number).name
    if not types:
        yield f"its input {name} is not taken"
    elif value.dtype not in types:
        yield f"its input {name} is not taken in {value.dtype}"
    elif number in found.known and not _is_known(value):
        yield f"its input {name} has to be a constant"


def _is_known(value: Value) -> bool:
    constant = value.expression is not None and tvm_compat.is_constant(value.expression)
    return constant or value.numbers is not None


def _is_taken(value: Any, values: Values, default: Any) -> bool:
    if values is ANY or _plain(value) == _plain(default):
        return True
    return _plain(value) in values


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    return tuple(value) if isinstance(value, list) else value


def _text(value: Any) -> str:
    plain = _plain(value)
    return f"={plain}" if isinstance(plain, str | int | float) else ""


def _variadic(formal: Any, number: int) -> bool:
    last = formal[len(formal) - 1] if len(formal) else None
    return last is not None and number >= len(formal) - 1 and "Variadic" in str(last.option)


def _formal(schema: Any, number: int) -> Any:
    """What a schema says of an operand; the last one may stand for any number of them."""
    return schema.inputs[min(number, len(schema.inputs) - 1)]


def _schema_of_version(node: Node) -> Any | None:
    import onnx

    try:
        return onnx.defs.get_schema(node.operator, node.opset)
    except onnx.defs.SchemaError:
        return None


def _schema(node: Node) -> Any | None:
    """What ONNX says of an operator in a node's version, or in its first one where that is
    younger and TVM's converter takes it all the same."""
    found = _schema_of_version(node)
    young = found is None and node.opset >= HONOURED[node.operator].since
    return _newest(node) if young else found


def _newest(node: Node) -> Any:
    import onnx

    return onnx.defs.get_schema(node.operator)


def _defaults(schema: Any) -> dict[str, Any]:
    import onnx

    return {
        name: onnx.helper.get_attribute_value(attribute.default_value)
        for name, attribute in schema.attributes.items()
        if attribute.default_value.type
    }
