"""Sums of PyTorch, and what is made of sums, accumulated in float32 where elements are halves.

TVM's importer adds halves up as halves: of 8192 ones it makes 2048, since 2049 is none, and a
softmax over as many is four times too large. PyTorch adds up in float32 and rounds the result. Of
running sums of booleans, which count, TVM's importer makes booleans.
"""

from __future__ import annotations

from typing import Any

from spaces.frontends.precision import in_type
from spaces.frontends.pytorch.products import Converter
from spaces.ir import tvm_compat
from spaces.ir.element_types import HALVES, WIDE

_SUMS = (
    *("sum.default", "sum.dim_IntList", "mean.default", "mean.dim", "var.correction"),
    *("std.correction", "linalg_vector_norm.default", "prod.default", "cumprod.default"),
    *("_softmax.default", "softmax.int", "_log_softmax.default", "log_softmax.int"),
    *("layer_norm.default", "native_layer_norm.default", "native_group_norm.default"),
    *(f"{kind}avg_pool{n}d.default" for kind in ("", "adaptive_", "_adaptive_") for n in (1, 2, 3)),
)


def sum_converters() -> dict[str, Converter]:
    """Converters by operator, for the importer's `custom_convert_map`."""
    known = tvm_compat.list_torch_operators()
    return {
        "cumsum.default": _running_sum,
        "amax.default": _extreme,
        "amin.default": _extreme,
        **{name: _widened(name) for name in _SUMS if name in known},
    }


def _widened(name: str) -> Converter:
    """What TVM's importer does for an operator, of halves in float32."""

    def convert(node: Any, importer: Any) -> Any:
        dtype = _find_type(node)
        if dtype not in HALVES:
            return tvm_compat.stock_converter(importer, name)(node)
        given = {one: importer.env[one] for one in node.all_input_nodes}
        said = node.kwargs
        importer.env.update(
            {one: in_type(importer.block_builder, value, WIDE) for one, value in given.items()}
        )
        node.kwargs = {key: value for key, value in said.items() if key != "dtype"}
        try:
            found = tvm_compat.stock_converter(importer, name)(node)
        finally:
            importer.env.update(given)
            node.kwargs = said
        return _narrowed(importer.block_builder, found, dtype)

    return convert


def _narrowed(builder: Any, found: Any, dtype: str) -> Any:
    """One result, or several, in an element type."""
    from tvm import relax

    if isinstance(found, relax.Tuple):
        return relax.Tuple([in_type(builder, field, dtype) for field in found.fields])
    return in_type(builder, found, dtype)


def _running_sum(node: Any, importer: Any) -> Any:
    from tvm import relax

    dtype, given = _find_type(node), importer.env[node.args[0]]
    wide = in_type(importer.block_builder, given, WIDE if dtype in HALVES else dtype)
    found = importer.block_builder.emit(relax.op.cumsum(wide, node.args[1]))
    return in_type(importer.block_builder, found, dtype)


def _extreme(node: Any, importer: Any) -> Any:
    """The largest or the least number along some axes, or of all."""
    from tvm import relax

    x, axes, keeps = (*node.args, [], False)[:3] if len(node.args) < 3 else node.args
    pick = relax.op.max if "amax" in str(node.target) else relax.op.min
    keeps = bool(node.kwargs.get("keepdim", keeps))
    return importer.block_builder.emit(pick(importer.env[x], axis=[*axes] or None, keepdims=keeps))


def _find_type(node: Any) -> str:
    """The element type that PyTorch says a node, or the first of its results, has."""
    value = node.meta["val"]
    first = value[0] if isinstance(value, tuple) else value
    return str(first.dtype).removeprefix("torch.")
