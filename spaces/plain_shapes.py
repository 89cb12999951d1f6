"""Tensor programs whose symbolic dimensions are variables alone.

A program over `16 * T` rows cannot be called by itself: nobody tells it T, and TVM does not solve
for it. For what it computes that does not matter, so each such expression becomes a variable of
its own. It is named after the expression, `T_x16` for `16 * T` and `T_x16_p3` for `16 * T + 3`,
which is how its values follow from those of T (`spaces.inputs.derived`). A program of a graph
that was told T besides its tensors is told no more where it does not need it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from spaces import names
from spaces.dims import is_open, symbols, value_of


def with_plain_shapes(module: Any) -> Any:
    """A module whose tensor programs have numbers and variables alone as dimensions.

    Calls from its graphs are adapted. Programs that cannot be helped stay as they are.
    """
    from tvm.ir import IRModule

    plain, dropped = {}, {}
    for name, function in names.prim_funcs(module):
        made, unneeded = _plain(function)
        if not made.same_as(function):
            plain[name], dropped[name] = made, unneeded
    if not plain:
        return module
    result = IRModule(module.functions, attrs=module.attrs)
    for name, function in plain.items():
        result.update_func(result.get_global_var(name), function)
    return _with_fewer_arguments(result, {n: d for n, d in dropped.items() if d})


def with_plain_inputs(module: Any) -> Any:
    """A module whose graph "main" takes inputs with numbers and variables alone as dimensions.

    A graph whose one input has `16 * T` rows cannot run: what T is follows from no input alone.
    """
    import tvm
    from tvm_ffi import structural_map

    graph = module["main"]
    found = _expressions(graph)
    if not found:
        return module
    graph = structural_map(graph, (tuple({type(dim) for dim, _ in found}), _replacing(found)))
    known = symbols(graph)
    left: dict[Any, Any] = {}
    for dim, var in found:
        for name, inside in variables(dim).items():
            plus, one = (value_of(dim, {name: n}) or 0 for n in (0, 1))
            if name not in known and one > plus:
                left[inside] = tvm.tirx.floordiv(var - plus, one - plus)
    if left:
        graph = structural_map(graph, (tvm.ir.Var, lambda var: left.get(var, var)))
    result = tvm.ir.IRModule(module.functions, attrs=module.attrs)
    result.update_func(result.get_global_var("main"), graph)
    return result


def _expressions(function: Any) -> list[tuple[Any, Any]]:
    """Dimensions of a function's parameters that are no variables, each with one to stand for
    it."""
    import tvm

    analyzer = tvm.sym.Analyzer()
    found: list[tuple[Any, Any]] = []
    taken = set(symbols(function))
    for param in function.params:
        for dim in names.param_dims(param) or ():
            if not is_open(dim) or isinstance(dim, tvm.ir.Var):
                continue
            if not any(analyzer.can_prove_equal(dim, known) for known, _ in found):
                found.append((dim, tvm.tirx.Var(_named(dim, taken), str(dim.ty.dtype))))
    return found


def _replacing(found: list[tuple[Any, Any]]) -> Callable[[Any], Any]:
    import tvm

    analyzer = tvm.sym.Analyzer()

    def replaced(expression: Any) -> Any:
        for dim, var in found:
            if analyzer.can_prove_equal(expression, dim):
                return var
        return expression

    return replaced


def _plain(function: Any) -> tuple[Any, list[int]]:
    """A PrimFunc with plain dimensions, and the positions of parameters that it lost."""
    import tvm
    from tvm_ffi import structural_map

    found = _expressions(function)
    scalars = [i for i, p in enumerate(function.params) if names.param_dims(p) is None]
    if not found and not scalars:
        return function, []

    kinds = tuple({type(dim) for dim, _ in found})
    made = structural_map(function, (kinds, _replacing(found))) if found else function
    needed = _used(made)
    unneeded = [i for i in scalars if not any(made.params[i].same_as(v) for v in needed)]
    if not found and not unneeded:
        return function, []
    params = [p for i, p in enumerate(made.params) if i not in unneeded]
    return tvm.tirx.PrimFunc(params, made.body, made.ret_type, made.attrs), unneeded


def _named(dim: Any, taken: set[str]) -> str:
    """A name that says what a dimension is, where that can be said; one that is free."""
    name = _affine_name(dim) or "dim"
    unique, number = name, 1
    while unique in taken:
        number += 1
        unique = f"{name}_{number}"
    taken.add(unique)
    return unique


def _affine_name(dim: Any) -> str:
    """`T_x16_p3` for `16 * T + 3`; empty for what is not of that form."""
    inside = variables(dim)
    if len(inside) != 1:
        return ""
    (name,) = inside
    plus, one, two = (value_of(dim, {name: n}) or 0 for n in (0, 1, 2))
    times = one - plus
    if times < 1 or plus < 0 or two != 2 * times + plus:
        return ""
    return f"{name}_x{times}" + (f"_p{plus}" if plus else "")


def variables(dim: Any) -> dict[str, Any]:
    """The variables that a dimension holds, by name."""
    import tvm
    import tvm_ffi

    inside: dict[str, Any] = {}

    def look(var: Any) -> None:
        inside[str(var.name)] = var

    tvm_ffi.structural_walk(dim, (tvm.ir.Var, look))
    return inside


def _used(function: Any) -> list[Any]:
    """Variables that a PrimFunc's body or the shapes of its tensors hold and no shape defines."""
    import tvm
    import tvm_ffi

    held: list[Any] = []

    def look(var: Any) -> None:
        held.append(var)

    tvm_ffi.structural_walk(function.body, (tvm.ir.Var, look))
    dims = [d for p in function.params for d in names.param_dims(p) or ()]
    defined = [d for d in dims if isinstance(d, tvm.ir.Var)]
    return [v for v in held if not any(v.same_as(d) for d in defined)]


def _with_fewer_arguments(module: Any, dropped: Mapping[str, list[int]]) -> Any:
    """The module with calls that leave out what their programs no longer take."""
    if not dropped or not names.has_relax(module):
        return module
    from tvm import relax
    from tvm.relax.dpl import is_op, rewrite_call

    from spaces.graph import with_graphs

    def adapted(call: Any, _found: Any) -> Any:
        positions = dropped.get(str(call.args[0].name_hint))
        if positions is None:
            return call
        kept = [a for i, a in enumerate(call.args[1].fields) if i not in positions]
        return relax.Call(
            call.op, [call.args[0], relax.Tuple(kept), *call.args[2:]], call.attrs, call.ty_args
        )

    pattern = is_op("relax.call_tir")(varg_default_wildcard=True)
    return with_graphs(module, lambda graph: rewrite_call(pattern, adapted, graph))
