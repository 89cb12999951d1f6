"""Symbolic dimensions of tensor programs: their names, their values, programs without them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from spaces import names

NO_VALUES: Mapping[str, int] = MappingProxyType({})
"""Of the symbols of a program that has none."""


def symbols(function: Any) -> dict[str, Any]:
    """The variables that the shapes of a PrimFunc's parameters hold, by name, in order."""
    import tvm
    import tvm_ffi

    found: dict[str, Any] = {}

    def look(var: Any) -> None:
        found.setdefault(str(var.name), var)

    for param in function.params:
        for dim in names.param_dims(param) or ():
            if names.known_int(dim) is None:
                tvm_ffi.structural_walk(dim, (tvm.ir.Var, look))
    return found


def is_open(dim: Any) -> bool:
    """Whether a dimension is symbolic."""
    return names.known_int(dim) is None


def value_of(dim: Any, values: Mapping[str, int]) -> int | None:
    """A dimension as a number; None where it holds a symbol without a value."""
    known = names.known_int(dim)
    if known is not None or not values:
        return known
    import tvm
    import tvm_ffi

    analyzer = tvm.sym.Analyzer()
    bound: list[Any] = []

    def look(var: Any) -> None:
        name = str(var.name)
        if name in values and not any(var.same_as(known) for known in bound):
            bound.append(var)
            analyzer.bind(var, tvm.tirx.const(values[name], str(var.ty.dtype)))

    tvm_ffi.structural_walk(dim, (tvm.ir.Var, look))
    return names.known_int(analyzer.simplify(dim))


def closed(module: Any, values: Mapping[str, int]) -> Any:
    """A module's "main" for one shape: no symbol is left in it.

    Its dimensions are numbers and variables, see `spaces.plain_shapes`.

    Args:
        values: of its symbols, by name.

    Raises:
        ValueError: a symbol has no value.
    """
    from tvm.ir import IRModule

    function = module["main"]
    known = symbols(function)
    if not known:
        return module
    missing = [name for name in known if name not in values]
    if missing:
        raise ValueError(f"dimension {missing[0]} has no value")
    fixed = {}
    for param in function.params:
        dims = names.param_dims(param)
        if dims is not None and any(is_open(d) for d in dims):
            fixed[param] = _closed_buffer(param, dims, values)
    return IRModule({"main": function.specialize(fixed)})


def _closed_buffer(param: Any, dims: Any, values: Mapping[str, int]) -> Any:
    import tvm

    shape = [
        tvm.tirx.const(value_of(d, values), str(d.ty.dtype)) if is_open(d) else d for d in dims
    ]
    return tvm.tirx.decl_buffer(
        shape,
        names.param_dtype(param),
        str(param.name),
        elem_offset=param.elem_offset,
        data_alignment=param.data_alignment,
        offset_factor=param.offset_factor,
    )
