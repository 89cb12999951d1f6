"""The constants of a graph: which operands of its programs are, and which stay packed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spaces.ir import tvm_compat
from spaces.lowering.relax_rewrite import tir_calls, with_tir_calls

UNPACKS = "tuner.unpacks"
"""Attribute of a tensor program that makes floats of packed or narrow numbers, or multiplies them.

What follows from constants alone is computed while a model is lowered, so weights of 4 bits would
become floats of 32, eight times as large. Operands of such programs are parameters of the graph
while passes that fold constants are at work.
"""
GRAPH = "main"
"""The graph whose weights these are."""


def mark_constants(module: Any) -> Any:
    """Have each program of a graph name its parameters that are constants.

    This does what `AttachAttrLayoutFreeBuffers` does, except that programs keep their names, and
    programs without constants stay as they are. A program that is called both with and without
    constants becomes two; the second one gets a number after its name.
    """
    from tvm import relax

    kinds: dict[str, list[tuple[int, ...]]] = {}
    for call in tir_calls(module):
        seen = kinds.setdefault(str(call.args[0].name_hint), [])
        if (constants := _constants(call)) not in seen:
            seen.append(constants)
    builder = relax.BlockBuilder(module)
    more: dict[tuple[str, tuple[int, ...]], Any] = {}
    for name, (first, *others) in kinds.items():
        builder.update_func(module.get_global_var(name), _mark(module[name], first))
        for constants in others:
            more[name, constants] = builder.add_func(_mark(module[name], constants), name)
    marked = builder.get()
    return _redirect(marked, more) if more else marked


def _constants(call: Any) -> tuple[int, ...]:
    """Positions of the operands of a call that are constants."""
    return tuple(
        i for i, operand in enumerate(call.args[1].fields) if tvm_compat.is_constant(operand)
    )


def _mark(function: Any, constants: Sequence[int]) -> Any:
    return function.with_attr(tvm_compat.LAYOUT_FREE, list(constants)) if constants else function


def _redirect(module: Any, wanted: Mapping[tuple[str, tuple[int, ...]], Any]) -> Any:
    """The module with calls redirected, by the program that they call and their constants."""
    from tvm import relax

    def redirect(call: Any) -> Any:
        other = wanted.get((str(call.args[0].name_hint), _constants(call)))
        if other is None:
            return call
        return relax.Call(call.op, [other, *call.args[1:]], call.attrs, call.ty_args)

    return with_tir_calls(module, redirect)


def hold_packed(module: Any, name: str) -> tuple[Any, Mapping[str, Any]]:
    """A module that is given its packed weights as last parameters, and what these hold by name.

    Args:
        name: what their names begin with, where no other parameter's does.
    """
    if not any(unpacks(module, call) for call in tir_calls(module)):
        return module, {}
    from tvm import relax
    from tvm.ir import IRModule

    taken = [str(param.name) for param in module[GRAPH].params]
    while any(known.startswith(name) for known in taken):
        name += "_"
    held: dict[str, Any] = {}
    variables: dict[Any, Any] = {}

    def hold(operand: Any) -> Any:
        if not tvm_compat.is_constant(operand):
            return operand
        if operand not in variables:
            own = f"{name}_{len(held)}"
            variables[operand], held[own] = relax.Var(own, operand.ty), operand.value
        return variables[operand]

    def change(call: Any) -> Any:
        if not unpacks(module, call):
            return call
        operands = relax.Tuple([hold(operand) for operand in call.args[1].fields])
        return relax.Call(call.op, [call.args[0], operands, *call.args[2:]], call.attrs,
                          call.ty_args)  # fmt: skip

    changed = with_tir_calls(module, change, GRAPH)
    functions = dict(changed.functions.items())
    variable = changed.get_global_var(GRAPH)
    graph = functions[variable]
    params = [*graph.params, *variables.values()]
    functions.pop(variable)
    whole = relax.Function(params, graph.body, graph.ret_ty, attrs=graph.attrs)
    result = IRModule(functions, attrs=changed.attrs, global_infos=changed.global_infos)
    result[GRAPH] = whole
    return result, held


def give_packed(module: Any, held: Mapping[str, Any]) -> Any:
    """A module that has these as constants again, not as parameters."""
    if not held:
        return module
    from tvm.relax.transform import BindParams

    return BindParams(GRAPH, dict(held))(module)


def unpacks(module: Any, call: Any) -> bool:
    """Whether a call is one of a tensor program with that attribute."""
    if not tvm_compat.is_call_tir(call):
        return False
    return tvm_compat.attribute(module[call.args[0]], UNPACKS) is not None
