"""Products in halves, of which a CPU makes floats first: rows before, weights in the product.

A CPU without instructions for halves multiplies in float32. Rows become float32 in the program that
writes them, once; weights stay halves in memory and are widened by what reads them (see
`spaces.lowering.weights.unpacking`), which halves the bytes that a product with few rows waits for.
"""

from __future__ import annotations

from typing import Any

from spaces.ir import tvm_compat
from spaces.ir.element_types import HALVES
from spaces.lowering.relax_rewrite import with_graphs
from spaces.lowering.weights.constants import UNPACKS

_PRODUCTS = ("relax.matmul", "relax.nn.conv1d", "relax.nn.conv2d", "relax.nn.conv3d")
_WIDE = "float32"


def widen_products(module: Any) -> Any:
    """A module in which products of halves that are summed in float32 are products of float32."""
    from tvm import relax
    from tvm.relax.dpl import is_op, rewrite_call, wildcard

    builder = relax.BlockBuilder(module)

    def changed(call: Any, _found: Any) -> Any:
        if tvm_compat.operator_name(call) not in _PRODUCTS or not _is_narrow(call):
            return call
        operands = [_widen(builder, operand) for operand in call.args]
        return relax.Call(call.op, operands, call.attrs, call.ty_args)

    def rewrite(graph: Any) -> Any:
        for name in _PRODUCTS:
            graph = rewrite_call(is_op(name)(wildcard(), wildcard()), changed, graph)
        return graph

    widened = with_graphs(module, rewrite)
    for variable, function in builder.get().functions.items():
        if variable not in widened.functions:
            widened[variable] = function
    return widened


def _is_narrow(call: Any) -> bool:
    types = [str(operand.ty.dtype) for operand in call.args]
    return str(call.ty.dtype) == _WIDE and all(kind in HALVES for kind in types)


def _widen(builder: Any, operand: Any) -> Any:
    """An operand in float32; of a constant by a program of its own, so that it stays narrow."""
    from tvm import relax, te

    if not tvm_compat.is_constant(operand):
        return relax.op.astype(operand, _WIDE)
    narrow = te.placeholder([*operand.ty.shape.values], str(operand.ty.dtype), "narrow")
    wide = te.compute(narrow.shape, lambda *place: narrow(*place).astype(_WIDE), "widened")
    program = te.create_prim_func([narrow, wide]).without_attr(tvm_compat.GLOBAL_SYMBOL)
    program = program.with_attr({UNPACKS: True, tvm_compat.NO_ALIAS: True})
    variable = builder.add_func(program, "widened")
    return relax.call_tir(variable, [operand], relax.TensorType(operand.ty.shape, _WIDE))
