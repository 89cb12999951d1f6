"""Tensor programs whose indices all have 64 bits.

A `ShapeVar` has 64 bits, as Relax requires, and the plain numbers of a tensor expression have 32:
`te.placeholder((16 * T, 768))` mixes them, which many of TVM's schedule primitives refuse.
"""

from __future__ import annotations

from typing import Any

from spaces.ir import tvm_compat
from spaces.ir.symbolic import symbols

_NARROW, _WIDE = "int32", "int64"


def with_wide_indices(module: Any) -> Any:
    """A module in which no program with symbolic dimensions mixes indices of 32 and 64 bits.

    Programs that compute with integers of 32 bits stay as they are.
    """
    changed = {
        name: wide
        for name, function in tvm_compat.prim_funcs(module)
        if (wide := _widen(function)) is not None
    }
    if not changed:
        return module
    from tvm.ir import IRModule

    result = IRModule(module.functions, attrs=module.attrs)
    for name, function in changed.items():
        result.update_func(result.get_global_var(name), function)
    return result


def _widen(function: Any) -> Any | None:
    """A function with indices of 64 bits; None where nothing is mixed, or it cannot be widened."""
    if not any(_type(var) == _WIDE for var in symbols(function).values()):
        return None
    import tvm
    from tvm import tirx
    from tvm_ffi import structural_map

    data = {tvm_compat.param_dtype(p) for p in function.params}
    if _NARROW in data | _types(function, tvm.ir.TensorLoad) | _types(function, tirx.Cast):
        return None
    fresh: dict[Any, Any] = {}

    def variable(var: Any) -> Any:
        if _type(var) != _NARROW:
            return var
        return fresh.setdefault(var, tirx.Var(str(var.name), _WIDE))

    def number(value: Any) -> Any:
        return tirx.IntImm(_WIDE, value.value) if _type(value) == _NARROW else value

    def pair(expression: Any) -> Any:
        return type(expression)(expression.a, expression.b)

    def choice(expression: Any) -> Any:
        return tirx.Select(expression.condition, expression.true_value, expression.false_value)

    changes = [
        (tvm.ir.Var, variable),
        (tirx.IntImm, number),
        (_pairs(), pair),
        (tirx.Select, choice),
    ]
    made = structural_map(function, changes)
    return None if made.same_as(function) or _NARROW in _types(made, tvm.ir.Expr) else made


def _types(function: Any, kind: type) -> set[str]:
    """Element types of the expressions of one kind."""
    import tvm_ffi

    found: set[str] = set()

    def look(node: Any) -> None:
        found.add(_type(node))

    tvm_ffi.structural_walk(function, (kind, look))
    return found


def _type(expression: Any) -> str:
    return str(getattr(getattr(expression, "ty", None), "dtype", ""))


def _pairs() -> tuple[type, ...]:
    from tvm import tirx as t

    arithmetic = (t.Add, t.Sub, t.Mul, t.Div, t.Mod, t.FloorDiv, t.FloorMod, t.Min, t.Max)
    return (*arithmetic, t.EQ, t.NE, t.LT, t.LE, t.GT, t.GE)
