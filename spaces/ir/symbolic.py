"""Symbolic dimensions of tensor programs: their names, their values, programs without them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from spaces.ir import rewrite, tvm_compat

NO_VALUES: Mapping[str, int] = MappingProxyType({})
"""The values for a program without symbols."""


def variables(node: Any) -> list[Any]:
    """The variables in an expression or the body of a program, each once, in order."""
    import tvm
    import tvm_ffi

    found: dict[Any, None] = {}

    def look(var: Any) -> None:
        found.setdefault(var)

    tvm_ffi.structural_walk(node, (tvm.ir.Var, look))
    return list(found)


def symbols(function: Any) -> dict[str, Any]:
    """The variables in the shapes of a PrimFunc's parameters, by name, in order."""
    found: dict[str, Any] = {}
    for param in function.params:
        for dim in tvm_compat.param_dims(param) or ():
            for var in variables(dim) if is_symbolic(dim) else ():
                found.setdefault(str(var.name), var)
    return found


def alone(function: Any) -> set[str]:
    """Names of the variables that are dimensions of a function's parameters by themselves."""
    import tvm

    dims = [dim for param in function.params for dim in tvm_compat.param_dims(param) or ()]
    return {str(dim.name) for dim in dims if isinstance(dim, tvm.ir.Var)}


def text_of(dim: Any) -> str:
    """An expression as people write it: `T // 2`."""
    import tvm

    # The printer would change names that it uses itself, such as T.
    plain = [(v, tvm.tirx.Var(f"__{v.name}", str(v.ty.dtype))) for v in variables(dim)]
    printed = rewrite.substitute(dim, plain).script(int_dtype=str(dim.ty.dtype))
    return str(printed).replace("T.", "").replace("__", "")


def is_symbolic(dim: Any) -> bool:
    """Whether a dimension is symbolic."""
    return tvm_compat.as_int(dim) is None


def value_of(dim: Any, values: Mapping[str, int]) -> int | None:
    """A dimension as a number; None where it holds a symbol without a value."""
    known = tvm_compat.as_int(dim)
    if known is not None or not values:
        return known
    import tvm

    analyzer = tvm.sym.Analyzer()
    for var in variables(dim):
        if str(var.name) in values:
            value = tvm.tirx.const(values[str(var.name)], str(var.ty.dtype))
            analyzer.bind(var, value)
    return tvm_compat.as_int(analyzer.simplify(dim))


def specialise(module: Any, values: Mapping[str, int]) -> Any:
    """A module's "main" specialised for one shape, with no symbol left in it.

    Args:
        values: values of its symbols, by name.

    Raises:
        ValueError: a symbol has no value.
    """
    import tvm
    from tvm.ir import IRModule
    from tvm_ffi import structural_map

    function = module["main"]
    known = symbols(function)
    if not known:
        return module
    missing = [name for name in known if name not in values]
    if missing:
        raise ValueError(f"dimension {missing[0]} has no value")
    analyzer = tvm.sym.Analyzer()
    numbers = {var: tvm.tirx.const(values[name], str(var.ty.dtype)) for name, var in known.items()}

    def folded(expression: Any) -> Any:
        parts = (expression.a, expression.b)
        whole = all(tvm_compat.as_int(part) is not None for part in parts)
        return analyzer.simplify(expression) if whole else expression

    replaced = (tvm.ir.Var, lambda var: numbers.get(var, var))
    made = structural_map(function, [replaced, (arithmetic(), folded)])
    return IRModule({"main": made})


def arithmetic() -> tuple[type, ...]:
    """Kinds of expressions that calculate with two others, `a` and `b`."""
    from tvm import tirx

    return (tirx.Add, tirx.Sub, tirx.Mul, tirx.FloorDiv, tirx.FloorMod, tirx.Max, tirx.Min)
