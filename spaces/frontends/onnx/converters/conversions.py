"""Types: conversions between them, and bits taken for another type."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from spaces.frontends.onnx.converters.casts import CONVERTED, NARROW, converted_to
from spaces.frontends.onnx.converters.folded import folded
from spaces.frontends.onnx.node import Convert, Node
from spaces.ir.element_types import numpy_dtype


def named_type(node: Node, number: int) -> str:
    """The element type that ONNX has under a number, as TVM calls it.

    Raises:
        TunerError: it is none that is converted to.
    """
    import onnx

    name = str(onnx.helper.tensor_dtype_to_np_dtype(number))
    if name not in CONVERTED and name not in NARROW:
        said = onnx.TensorProto.DataType.Name(number)
        raise node.refused(f"it converts to {said}, which is not supported")
    return name


def _cast(node: Node, builder: Any) -> Any:
    return _converted(node, builder, named_type(node, node.attributes["to"]))


def _cast_like(node: Node, builder: Any) -> Any:
    like = node.input(1)
    assert like is not None
    return _converted(node, builder, like.narrow or like.dtype)


def _converted(node: Node, builder: Any, dtype: str) -> Any:
    from tvm import relax

    value = node.input(0)
    assert value is not None
    if value.dtype not in CONVERTED:
        raise node.refused(f"it converts from {value.dtype}, which is not supported")
    mode = node.attributes.get("round_mode", b"up")
    tensor = value.tensor(builder)
    if value.narrow == dtype or value.dtype == dtype:
        return relax.op.astype(tensor, value.dtype)
    return converted_to(
        builder,
        tensor,
        dtype,
        saturate=bool(node.attributes.get("saturate", 1)),
        round_mode=mode.decode() if isinstance(mode, bytes) else mode,
    )


def _bits(node: Node, builder: Any) -> Any:
    from tvm import topi

    value, dtype = node.input(0), named_type(node, node.attributes["to"])
    assert value is not None
    if value.narrow or dtype in NARROW:
        raise node.refused("it takes bits of or for types of less than a byte")
    if numpy_dtype(dtype).itemsize != numpy_dtype(value.dtype).itemsize:
        raise node.refused(f"it takes bits of {value.dtype} for {dtype}, which has not as many")
    x = value.tensor(builder)
    if value.dtype == dtype:
        return x
    if "bool" in (dtype, value.dtype):
        return converted_to(builder, x, dtype)
    return builder.emit_te(topi.reinterpret, x, dtype, primfunc_name_hint="bits")


_CONVERSIONS: Mapping[str, Convert] = {"BitCast": _bits, "Cast": _cast, "CastLike": _cast_like}
CONVERSIONS: Mapping[str, Convert] = MappingProxyType(folded(_CONVERSIONS))
