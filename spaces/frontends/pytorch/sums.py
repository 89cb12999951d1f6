"""Sums of PyTorch, and what is made of sums, accumulated in float32 where elements are halves.

TVM's importer adds halves up as halves: of 8192 ones it makes 2048, since 2049 is none, and a
softmax over as many is four times too large. PyTorch adds up in float32 and rounds the result. Of
running sums of booleans, which count, TVM's importer makes booleans.
"""

from __future__ import annotations

from typing import Any

from spaces.frontends.precision import WIDE, in_type
from spaces.frontends.pytorch.products import Converter
from spaces.ir import tvm_compat
from spaces.ir.element_types import HALVES

_SUMS = (
    *("sum.default", "sum.dim_IntList", "mean.default", "mean.dim", "var.correction"),
    *("std.correction", "linalg_vector_norm.default", "prod.default", "cumprod.default"),
    *("_softmax.default", "softmax.int", "_log_softmax.default", "log_softmax.int"),
    *(f"{kind}avg_pool{n}d.default" for kind in ("", "adaptive_", "_adaptive_") for n in (1, 2, 3)),
)


def sum_converters() -> dict[str, Converter]:
    """Converters by operator, for the importer's `custom_convert_map`."""
    known = tvm_compat.list_torch_operators()
    return {
        "cumsum.default": _running_sum,
        **{name: _widened(name) for name in _SUMS if name in known},
    }


def _widened(name: str) -> Converter:
    """What TVM's importer does for an operator, of halves in float32."""

    def convert(node: Any, importer: Any) -> Any:
        dtype, given = _find_type(node), importer.env[node.args[0]]
        if dtype not in HALVES:
            return tvm_compat.stock_converter(importer, name)(node)
        said = node.kwargs
        importer.env[node.args[0]] = in_type(importer.block_builder, given, WIDE)
        node.kwargs = {key: value for key, value in said.items() if key != "dtype"}
        try:
            found = tvm_compat.stock_converter(importer, name)(node)
        finally:
            importer.env[node.args[0]], node.kwargs = given, said
        return in_type(importer.block_builder, found, dtype)

    return convert


def _running_sum(node: Any, importer: Any) -> Any:
    from tvm import relax

    dtype, given = _find_type(node), importer.env[node.args[0]]
    wide = in_type(importer.block_builder, given, WIDE if dtype in HALVES else dtype)
    found = importer.block_builder.emit(relax.op.cumsum(wide, node.args[1]))
    return in_type(importer.block_builder, found, dtype)


def _find_type(node: Any) -> str:
    """The element type that PyTorch says a node has."""
    return str(node.meta["val"].dtype).removeprefix("torch.")
