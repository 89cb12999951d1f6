"""Weights that stay packed while a graph is lowered.

What follows from constants alone is computed while a model is lowered, so weights of 4 bits would
become floats of 32, eight times as large. Programs that unpack say so (`UNPACKS`), and their
operands are parameters of the graph while passes that fold constants are at work.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spaces.ir import tvm_compat
from spaces.lowering.relax_rewrite import tir_calls, with_tir_calls

UNPACKS = "tuner.unpacks"
"""Attribute of a tensor program that makes numbers of packed ones."""
_GRAPH = "main"


def hold_packed(module: Any) -> tuple[Any, Mapping[str, Any]]:
    """A module that is given its packed weights as last parameters, and what these hold by name."""
    if not any(_unpacks(module, call) for call in tir_calls(module)):
        return module, {}
    from tvm import relax
    from tvm.ir import IRModule

    held: dict[str, Any] = {}
    variables: dict[Any, Any] = {}

    def hold(operand: Any) -> Any:
        if not tvm_compat.is_constant(operand):
            return operand
        if operand not in variables:
            name = f"packed_weight_{len(held)}"
            variables[operand], held[name] = relax.Var(name, operand.ty), operand.value
        return variables[operand]

    def change(call: Any) -> Any:
        if not _unpacks(module, call):
            return call
        operands = relax.Tuple([hold(operand) for operand in call.args[1].fields])
        return relax.Call(call.op, [call.args[0], operands, *call.args[2:]], call.attrs,
                          call.ty_args)  # fmt: skip

    changed = with_tir_calls(module, change)
    functions = dict(changed.functions.items())
    variable = changed.get_global_var(_GRAPH)
    graph = functions[variable]
    params = [*graph.params, *variables.values()]
    functions.pop(variable)
    whole = relax.Function(params, graph.body, graph.ret_ty, attrs=graph.attrs)
    result = IRModule(functions, attrs=changed.attrs, global_infos=changed.global_infos)
    result[_GRAPH] = whole
    return result, held


def give_packed(module: Any, held: Mapping[str, Any]) -> Any:
    """A module with these as constants again; programs that nobody calls are left out."""
    if not held:
        return module
    from tvm.relax.transform import BindParams

    return BindParams(_GRAPH, dict(held))(module)


def _unpacks(module: Any, call: Any) -> bool:
    return tvm_compat.attribute(module[call.args[0]], UNPACKS) is not None
