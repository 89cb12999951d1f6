"""Types: conversions between them, and bits taken for another type."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from spaces.frontends.onnx.converters.elementwise.casts import (
    BYTE_FLOATS,
    KEPT_IN,
    PLAIN,
    convert_to,
)
from spaces.frontends.onnx.converters.elementwise.folded import fold_known, read_known
from spaces.frontends.onnx.node import Convert, Node
from spaces.ir.element_types import NUMPY_FLOATS, numpy_dtype
from spaces.lowering.relax_rewrite import constant

_ROUNDED = frozenset({*NUMPY_FLOATS, "bfloat16"})
"""Floats that NumPy rounds to as ONNX says."""


def name_type(node: Node, number: int) -> str:
    """The element type that ONNX has under a number, as TVM calls it.

    Raises:
        TunerError: it is none that is converted to.
    """
    import onnx

    name = str(onnx.helper.tensor_dtype_to_np_dtype(number))
    if name not in PLAIN and name not in KEPT_IN:
        said = onnx.TensorProto.DataType.Name(number)
        raise node.refused(f"it converts to {said}, which is not supported")
    return name


def _cast(node: Node, builder: Any) -> Any:
    return _convert(node, builder, name_type(node, node.attributes["to"]))


def _cast_like(node: Node, builder: Any) -> Any:
    value, like = node.input(0), node.input(1)
    assert value is not None
    assert like is not None
    known = read_known(value)
    if known is not None and {value.kind, like.kind} <= _ROUNDED:
        return constant(known.astype(numpy_dtype(like.kind)))
    return _convert(node, builder, like.kind)


def _convert(node: Node, builder: Any, dtype: str) -> Any:
    value = node.input(0)
    assert value is not None
    mode = node.attributes.get("round_mode", b"up")
    return convert_to(
        builder,
        value.tensor(builder),
        dtype,
        value.kind,
        saturate=bool(node.attributes.get("saturate", 1)),
        round_mode=mode.decode() if isinstance(mode, bytes) else mode,
    )


def _bits(node: Node, builder: Any) -> Any:
    from tvm import topi

    value, dtype = node.input(0), name_type(node, node.attributes["to"])
    assert value is not None
    if any(kind in KEPT_IN and kind not in BYTE_FLOATS for kind in (value.kind, dtype)):
        raise node.refused("it takes bits of or for types of less than a byte")
    kept = KEPT_IN.get(dtype, dtype)
    if numpy_dtype(kept).itemsize != numpy_dtype(value.dtype).itemsize:
        raise node.refused(f"it takes bits of {value.dtype} for {dtype}, which has not as many")
    x = value.tensor(builder)
    if value.dtype == kept:
        return x
    if "bool" in (kept, value.dtype):
        return convert_to(builder, x, kept)
    return builder.emit_te(topi.reinterpret, x, kept, primfunc_name_hint="bits")


_CONVERSIONS: Mapping[str, Convert] = {"BitCast": _bits, "Cast": _cast, "CastLike": _cast_like}
CONVERSIONS: Mapping[str, Convert] = MappingProxyType(fold_known(_CONVERSIONS))
