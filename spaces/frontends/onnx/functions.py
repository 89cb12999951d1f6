"""Operators that are graphs of others: those that a model defines, and those that ONNX does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from spaces.frontends.onnx.node import STANDARD_DOMAINS, Value
from spaces.ir.element_types import numpy_dtype
from spaces.ir.tvm_compat import as_int

_PREVIEW = "ai.onnx.preview"
"""The domain of operators that ONNX may still change; it has one version."""


def find_definition(node: Any, values: Iterable[Value | None], opset: int) -> Any | None:
    """What ONNX says that a node of one of its operators is made of, as a `FunctionProto`; None
    where it says nothing.

    Args:
        values: operands, whose types it depends on.
        opset: that the node is written in.
    """
    import onnx

    schema = schema_of(node, opset)
    if schema is None:
        return None
    function = onnx.FunctionProto()
    if versions := [v for v in schema.function_opset_versions if v <= opset]:
        function.ParseFromString(schema.get_function_with_opset_version(max(versions)))
        return function
    versions = [v for v in schema.context_dependent_function_opset_versions if v <= opset]
    if not versions:
        return None
    types = [_type_of(value).SerializeToString() for value in values]
    function.ParseFromString(
        schema.get_context_dependent_function_with_opset_version(
            max(versions), node.SerializeToString(), types
        )
    )
    return function


def schema_of(node: Any, opset: int) -> Any | None:
    """What ONNX says of an operator that it defines by others; None of any other."""
    import onnx

    domain = "" if node.domain in STANDARD_DOMAINS else node.domain
    if domain not in ("", _PREVIEW) or not onnx.defs.has(node.op_type, domain):
        return None
    try:
        schema = onnx.defs.get_schema(node.op_type, opset if domain == "" else 1, domain)
    except onnx.defs.SchemaError:  # the operator is younger
        return None
    return schema if schema.has_function or schema.has_context_dependent_function else None


def nodes_of(function: Any, call: Any, opset: int) -> Iterator[Any]:
    """The nodes of a function with the attributes that it is called with. Each is named after the
    call.

    Args:
        call: the node that is one of this function.
        opset: that the call is written in.
    """
    given = {attribute.name: attribute for attribute in call.attribute}
    schema = schema_of(call, opset)
    usual = {} if schema is None else {n: a.default_value for n, a in schema.attributes.items()}
    usual |= {attribute.name: attribute for attribute in function.attribute_proto}
    known = {name: value for name, value in usual.items() if value.type} | given
    for node in function.node:
        made = _with_attributes(node, known)
        made.name = f"{call.name or call.output[0]}/{node.name or node.output[0]}"
        yield made


def _with_attributes(node: Any, known: Mapping[str, Any]) -> Any:
    """A copy of a node, with values for attributes that refer to those of its function."""
    copy = type(node)()
    copy.CopyFrom(node)
    del copy.attribute[:]
    for attribute in node.attribute:
        referred = attribute.ref_attr_name
        if referred and referred not in known:
            continue
        made = copy.attribute.add()
        made.CopyFrom(known[referred] if referred else attribute)
        made.name = attribute.name
        inner = [_with_attributes(one, known) for one in made.g.node] if made.HasField("g") else []
        if inner:
            del made.g.node[:]
            made.g.node.extend(inner)
    return copy


def _type_of(value: Value | None) -> Any:
    import onnx

    if value is None:
        return onnx.TypeProto()
    dtype = onnx.helper.np_dtype_to_tensor_dtype(numpy_dtype(value.dtype))
    dims = value.dims
    return onnx.helper.make_tensor_type_proto(dtype, dims and [as_int(d) for d in dims])


def opset_of(proto: Any) -> int:
    """Of a model or a function; 0 where it says nothing of ONNX's own operators."""
    versions = [o.version for o in proto.opset_import if o.domain in STANDARD_DOMAINS]
    return int(versions[0]) if versions else 0
