"""Marks of the operands of a graph's programs that are constants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spaces.ir import tvm_compat
from spaces.lowering.relax_rewrite import tir_calls, with_tir_calls


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
