"""Matrix products and convolutions of PyTorch in their own element types.

TVM's importer has them give float32. In a model of another type that does not fit what comes next,
or silently changes the type of the output.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from spaces.frontends.precision import in_type, wide_of
from spaces.ir import tvm_compat
from spaces.ir.element_types import HALVES, WIDE

Converter = Callable[[Any, Any], Any]
"""Gives an expression for a node and TVM's importer."""


def product_converters() -> dict[str, Converter]:
    """Converters by operator, for the importer's `custom_convert_map`."""
    return {
        "mm.default": _product,
        "bmm.default": _product,
        "matmul.default": _product,
        "addmm.default": _add_product,
        "baddbmm.default": _add_product,
        "convolution.default": _convolution,
    }


def _product(node: Any, importer: Any) -> Any:
    left, right = importer.retrieve_args(node)
    return _multiply(importer, left, right)


def _add_product(node: Any, importer: Any) -> Any:
    from tvm import relax

    addend, left, right = importer.retrieve_args(node)
    product = _multiply(importer, left, right)

    def scaled(value: Any, factor: float) -> Any:
        dtype = tvm_compat.param_dtype(value)
        return value if factor == 1 else relax.op.multiply(value, relax.const(factor, dtype))

    product = scaled(product, node.kwargs.get("alpha", 1))
    beta = node.kwargs.get("beta", 1)
    if beta == 0:  # then PyTorch does not read the addend, which may hold NaN
        return importer.block_builder.emit(product)
    addend = importer.block_builder.emit(scaled(addend, beta))
    return importer.block_builder.emit(relax.op.add(addend, importer.block_builder.emit(product)))


def _multiply(importer: Any, left: Any, right: Any) -> Any:
    from tvm import relax

    dtype = tvm_compat.param_dtype(left)
    product = importer.block_builder.emit(relax.op.matmul(left, right, out_dtype=wide_of(dtype)))
    return in_type(importer.block_builder, product, dtype)


def _convolution(node: Any, importer: Any) -> Any:
    from tvm import relax

    weight = importer.env[node.args[1]]
    dtype = tvm_compat.param_dtype(weight)
    if dtype == WIDE:
        return _stock_convolution(importer, node)
    if dtype not in HALVES:
        raise ValueError(f"convolutions in {dtype} are not supported")
    bias = node.args[2]
    node.update_arg(2, None)  # the importer would add it to a sum of another type
    try:
        result = in_type(importer.block_builder, _stock_convolution(importer, node), dtype)
    finally:
        node.update_arg(2, bias)
    if bias is None:
        return result
    spread = [1, -1] + [1] * (len(tvm_compat.param_dims(weight) or ()) - 2)
    bias = importer.block_builder.emit(relax.op.reshape(importer.env[bias], spread))
    return importer.block_builder.emit(relax.op.add(result, bias))


def _stock_convolution(importer: Any, node: Any) -> Any:
    """What TVM's importer makes of a convolution: a result in float32."""
    return tvm_compat.stock_converter(importer, "convolution.default")(node)
