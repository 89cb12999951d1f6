"""Matrix products in types whose sums are accumulated in float32.

Those of other types are for TVM's importer, but for factors that are no whole numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from spaces.frontends.onnx.node import Convert, Node
from spaces.frontends.precision import in_type
from spaces.ir.element_types import HALVES, WIDE, is_float


def _product(node: Node, builder: Any) -> Any:
    from tvm import relax

    dtype = node.operand(0).dtype
    if dtype not in HALVES:
        return None
    pair = (node.tensor(number, builder) for number in (0, 1))
    return in_type(builder, builder.emit(relax.op.matmul(*pair, out_dtype=WIDE)), dtype)


def _general_product(node: Node, builder: Any) -> Any:
    from tvm import relax

    dtype, emit = node.operand(0).dtype, builder.emit
    alpha, beta = (float(node.attributes.get(name, 1.0)) for name in ("alpha", "beta"))
    is_whole = alpha.is_integer() and beta.is_integer()
    if dtype not in HALVES and (is_float(dtype) or is_whole):
        return None
    wide = WIDE if is_float(dtype) else "float64"
    pair = []
    for number, name in enumerate(("transA", "transB")):
        factor = node.tensor(number, builder)
        turned = bool(node.attributes.get(name, 0))
        pair.append(emit(relax.op.permute_dims(factor, [1, 0])) if turned else factor)
    if not is_float(dtype):
        pair = [in_type(builder, factor, wide) for factor in pair]
    found = emit(relax.op.matmul(*pair, out_dtype=wide))
    if alpha != 1.0:
        found = emit(relax.op.multiply(found, relax.const(alpha, wide)))
    if (addend := node.input(2)) is not None and beta != 0.0:
        term = in_type(builder, addend.tensor(builder), wide)
        term = term if beta == 1.0 else emit(relax.op.multiply(term, relax.const(beta, wide)))
        found = emit(relax.op.add(found, term))
    return in_type(builder, found, dtype)


def _einsum(node: Node, builder: Any) -> Any:
    from tvm import topi

    dtype = node.operand(0).dtype
    if dtype not in HALVES:
        return None
    wide = [
        in_type(builder, node.tensor(number, builder), WIDE) for number in range(len(node.inputs))
    ]
    equation = node.attributes["equation"]
    text = equation.decode() if isinstance(equation, bytes) else equation
    return in_type(builder, builder.emit_te(topi.einsum, text, *wide), dtype)


PRODUCTS: Mapping[str, Convert] = MappingProxyType(
    {"Einsum": _einsum, "Gemm": _general_product, "MatMul": _product}
)
