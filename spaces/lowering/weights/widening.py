"""Products in halves, of which a CPU makes floats first, in the product.

A CPU without instructions for halves multiplies in float32. Weights stay halves in memory and are
widened by what reads them (see `spaces.lowering.weights.unpacking`), which halves the bytes that a
product with few rows waits for; so are rows.
"""

from __future__ import annotations

from typing import Any

from spaces.ir import tvm_compat
from spaces.ir.element_types import HALVES, WIDE
from spaces.lowering.relax_rewrite import with_graphs
from spaces.lowering.weights.constants import UNPACKS, unpacks

_PRODUCTS = ("relax.matmul", "relax.nn.conv1d", "relax.nn.conv2d", "relax.nn.conv3d")
WIDENS = "tuner.widens"
"""Attribute of a program that makes float32 of halves that a run computes."""
_PATTERN, _OPAQUE = "op_pattern", 8
"""TVM's attribute for what a program may be fused with, and its number for nothing."""


def widen_products(module: Any) -> Any:
    """A module in which products of halves that are summed in float32 are products of float32."""
    from tvm import relax
    from tvm.relax.analysis import get_var2val
    from tvm.relax.dpl import is_op, rewrite_call, wildcard

    builder = relax.BlockBuilder(module)
    graphs = [f for f in module.functions.values() if tvm_compat.is_relax_function(f)]
    values = {var: value for graph in graphs for var, value in get_var2val(graph).items()}

    def is_weight(operand: Any) -> bool:
        made = values.get(operand)
        return tvm_compat.is_constant(operand) or (made is not None and unpacks(module, made))

    def changed(call: Any, _found: Any) -> Any:
        if tvm_compat.operator_name(call) not in _PRODUCTS or not _is_narrow(call):
            return call
        operands = [_widen(builder, o, UNPACKS if is_weight(o) else WIDENS) for o in call.args]
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
    return str(call.ty.dtype) == WIDE and all(kind in HALVES for kind in types)


def _widen(builder: Any, operand: Any, kind: str) -> Any:
    """An operand in float32, by a program of its own that a product can take in.

    Args:
        kind: the program's attribute.
    """
    from tvm import te

    def widened(narrow: Any) -> Any:
        return te.compute(narrow.shape, lambda *place: narrow(*place).astype(WIDE), name="widened")

    return builder.call_te(
        widened, operand, primfunc_name_hint="widened", primfunc_attrs={kind: True}
    )


def keep_apart(module: Any) -> Any:
    """A module whose programs that widen operands are fused with nothing by TVM's FuseOps.

    Fused with what rounds to bfloat16, a program would not round: TVM computes in float32 inside of
    a program, and leaves out a conversion there and back.
    """
    from tvm.ir import IRModule

    def mark(function: Any) -> Any:
        apart = tvm_compat.attribute(function, WIDENS) is not None
        return function.with_attr(_PATTERN, _OPAQUE) if apart else function

    functions = {variable: mark(f) for variable, f in module.functions.items()}
    return IRModule(functions, attrs=module.attrs, global_infos=module.global_infos)
