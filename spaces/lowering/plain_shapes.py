"""Tensor programs whose symbolic dimensions are variables alone.

A program over `16 * T` rows cannot be called by itself: nobody tells it T, and TVM does not solve
for it. For what it computes that does not matter, so each such expression becomes a variable of
its own. It is named after the expression, `T_x16` for `16 * T` and `T_x16_p3` for `16 * T + 3`,
which is how its values follow from those of T (`spaces.ir.derived_dims`). A program of a graph
that was told T besides its tensors is told no more where it does not need it.

What T itself is follows from such a dimension where that grows with every step of T. `T // 2` does
not: a program that needs T, and has it in no other dimension, cannot be helped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spaces.ir import rewrite, tvm_compat
from spaces.ir.derived_dims import affine, name_of
from spaces.ir.symbolic import alone, arithmetic, is_symbolic, symbols, text_of, variables
from spaces.lowering.relax_rewrite import builder_without, with_tir_calls
from tuner.errors import TunerError


def with_plain_shapes(module: Any) -> Any:
    """A module whose tensor programs have numbers and variables alone as dimensions.

    Calls from its graphs are adapted. Programs that cannot be helped stay as they are.
    """
    made = {name: (function, *_plain(function)) for name, function in tvm_compat.prim_funcs(module)}
    changed = {
        name: (plain, unneeded)
        for name, (function, plain, unneeded) in made.items()
        if not plain.same_as(function)
    }
    if not changed:
        return module
    if tvm_compat.has_relax(module):
        return _call_anew(module, changed)
    from tvm.ir import IRModule

    result = IRModule(module.functions, attrs=module.attrs)
    for name, (plain, _) in changed.items():
        result.update_func(result.get_global_var(name), plain)
    return result


def find_told(dims: Sequence[Any]) -> list[Any]:
    """The variables that a tensor's dimensions tell: those alone, and what follows from sums."""
    from tvm import tirx
    from tvm.ir import Var

    sizes = [dim for dim in dims if is_symbolic(dim)]
    known = [size for size in sizes if isinstance(size, Var)]
    sums = [(size, tirx.Var("dim", "int64")) for size in sizes if not isinstance(size, Var)]
    return [*known, *_solve(sums, {str(size.name) for size in known})]


def with_plain_inputs(module: Any) -> Any:
    """A module whose graph "main" takes inputs whose dimensions say what each variable is.

    A graph whose one input has `16 * T` rows cannot run: what T is follows from no input alone.
    Where another input has T rows it can, and checks that they fit.

    Raises:
        TunerError: it needs T, and no dimension tells it.
    """
    import tvm

    graph = module["main"]
    told = alone(graph)
    found = [(dim, var) for dim, var in _expressions(graph) if not _follows(dim, told)]
    if not found:
        return module
    plain = _in_terms_of(graph, found)
    if left := _solve(found, set(symbols(plain))):
        needed = rewrite.uses(plain.body, list(left))
        plain = _of_multiples(graph, found, left) if needed else plain
    _refuse_untold(graph, plain)
    result = tvm.ir.IRModule(module.functions, attrs=module.attrs)
    result.update_func(result.get_global_var("main"), plain)
    return result


def _of_multiples(graph: Any, found: list[tuple[Any, Any]], solved: Mapping[Any, Any]) -> Any:
    """A graph whose inputs have the dimensions that stand for some expressions, and which goes on
    with the expressions: with `4 * (T_x4 // 4)` rows where it had `4 * T`. So it is still seen that
    half of them are `2 * (T_x4 // 4)`, and that two halves are as many as there were."""
    from tvm import relax
    from tvm_ffi import structural_map

    inside: dict[Any, Any] = dict(solved)
    params, casts = [], []
    for param in graph.params:
        dims = tvm_compat.param_dims(param) or ()
        plain = [_stand_in(dim, found) for dim in dims]
        if all(new.same_as(old) for new, old in zip(plain, dims, strict=True)):
            params.append(param)
            continue
        dtype = tvm_compat.param_dtype(param)
        params.append(relax.Var(str(param.name), relax.TensorType(plain, dtype)))
        replaced = (type(graph.params[0]), lambda var: solved.get(var, var))
        exact = relax.TensorType([structural_map(dim, replaced) for dim in dims], dtype)
        inside[param] = relax.Var(f"{param.name}_exact", exact)
        casts.append(relax.MatchCast(inside[param], params[-1], exact))
    body = structural_map(graph.body, (type(graph.params[0]), lambda var: inside.get(var, var)))
    body = relax.SeqExpr([relax.BindingBlock(casts), *body.blocks], body.body)
    return relax.Function(params, body, graph.ret_ty, graph.is_pure, graph.attrs)


def _stand_in(dim: Any, found: list[tuple[Any, Any]]) -> Any:
    """The variable that stands for a dimension; the dimension itself where none does."""
    import tvm

    if not is_symbolic(dim) or isinstance(dim, tvm.ir.Var):
        return dim
    equal = tvm.sym.Analyzer().can_prove_equal
    return next((var for known, var in found if equal(dim, known)), dim)


def name_shape(param: Any) -> list[int | str] | None:
    """Like `names.param_shape`, with the name of what follows from a variable: `T_x16`."""
    dims = tvm_compat.param_dims(param)
    if dims is None:
        return None
    return [size if (size := tvm_compat.as_int(dim)) is not None else _name_of(dim) for dim in dims]


def _name_of(dim: Any) -> str:
    from tvm.ir import Var

    plain = "" if isinstance(dim, Var) else name_of(dim)
    return plain or tvm_compat.dim_name(dim)


def _follows(dim: Any, told: set[str]) -> bool:
    """Whether a dimension has a name, and is known where these variables are."""
    return bool(name_of(dim)) and {str(var.name) for var in variables(dim)} <= told


def _refuse_untold(before: Any, graph: Any) -> None:
    """Refuse a graph that needs a variable which its inputs do not tell any more."""
    told = set(symbols(graph))
    for param in before.params:
        for dim in tvm_compat.param_dims(param) or ():
            for var in variables(dim) if is_symbolic(dim) else ():
                if str(var.name) not in told and rewrite.uses(graph.body, [var]):
                    raise TunerError(
                        f"input {param.name} has the dimension {text_of(dim)}, and the model needs "
                        f"{var.name}, which does not follow from that: give it an input of which "
                        f"{var.name} is a dimension"
                    )


def _expressions(function: Any) -> list[tuple[Any, Any]]:
    """Dimensions of a function's parameters that are no variables, each with one to stand for
    it."""
    import tvm

    analyzer = tvm.sym.Analyzer()
    found: list[tuple[Any, Any]] = []
    taken = set(symbols(function))
    for param in function.params:
        for dim in tvm_compat.param_dims(param) or ():
            if not is_symbolic(dim) or isinstance(dim, tvm.ir.Var):
                continue
            if not any(analyzer.can_prove_equal(dim, known) for known, _ in found):
                found.append((dim, tvm.tirx.Var(_name(dim, taken), str(dim.ty.dtype))))
    return found


def _in_terms_of(function: Any, found: list[tuple[Any, Any]]) -> Any:
    """A function with what is a constant away from one of some dimensions written in terms of the
    variable for it, the nearest."""
    import tvm
    from tvm_ffi import structural_map

    analyzer = tvm.sym.Analyzer()

    def replaced(expression: Any) -> Any:
        near: list[tuple[int, Any]] = []
        for dim, var in found:
            if str(expression.ty.dtype) == str(dim.ty.dtype):
                away = tvm_compat.as_int(analyzer.simplify(expression - dim))
                near += [] if away is None else [(away, var)]
        if not near:
            return expression
        away, var = min(near, key=lambda pair: abs(pair[0]))
        return var + away if away else var

    kinds = (*arithmetic(), *{type(dim) for dim, _ in found})
    # The whole before its parts: of 16 * T + 3 they might be another dimension.
    return structural_map(function, (kinds, replaced), order="pre")


def _solve(found: list[tuple[Any, Any]], known: set[str]) -> dict[Any, Any]:
    """What the variables of some dimensions are, in terms of those that stand for these.

    Args:
        known: names of variables that are dimensions themselves.
    """
    import tvm

    solved: dict[Any, Any] = {}
    for dim, var in found:
        straight = affine(dim)
        if straight is not None and str(straight[0].name) not in known:
            inside, times, plus = straight
            solved.setdefault(inside, tvm.tirx.floordiv(var - plus, times))
    return {**solved, **_solve_sums(found, known)}


def _solve_sums(found: list[tuple[Any, Any]], known: set[str]) -> dict[Any, Any]:
    """What is left of such sums without the other terms, which are known: of `past + n` with n
    rows the `past` before them."""
    import tvm

    solved: dict[Any, Any] = {}
    equal = tvm.sym.Analyzer().can_prove_equal
    for dim, var in found:
        inside = variables(dim)
        unknown = [v for v in inside if str(v.name) not in known]
        if len(inside) < 2 or len(unknown) != 1:
            continue
        (left,) = unknown
        others = rewrite.substitute(dim, [(left, tvm.tirx.const(0, str(left.ty.dtype)))])
        if equal(dim, left + others):
            solved.setdefault(left, var - others)
    return solved


def _plain(function: Any) -> tuple[Any, list[int]]:
    """A PrimFunc with plain dimensions, and the positions of parameters that it lost."""
    import tvm
    from tvm_ffi import structural_map

    found = _expressions(function)
    scalars = [i for i, p in enumerate(function.params) if tvm_compat.param_dims(p) is None]
    if not found and not scalars:
        return function, []

    made = _in_terms_of(function, found) if found else function
    body = made.body
    known = symbols(made)
    if left := _solve(found, set(known)):
        body = structural_map(body, (tvm.ir.Var, lambda var: left.get(var, var)))
    needed = _used(made.params, body)
    unneeded = [i for i in scalars if not any(made.params[i].same_as(v) for v in needed)]
    told = [made.params[i] for i in scalars]
    lost = [v for dim, _ in found for v in variables(dim) if str(v.name) not in known]
    if any(v.same_as(n) and not any(v.same_as(t) for t in told) for v in lost for n in needed):
        return function, []
    if not found and not unneeded:
        return function, []
    params = [p for i, p in enumerate(made.params) if i not in unneeded]
    return tvm.tirx.PrimFunc(params, body, made.ret_type, made.attrs), unneeded


def _name(dim: Any, taken: set[str]) -> str:
    """A name that says what a dimension is, where that can be said; one that is free."""
    name = name_of(dim) or "dim"
    unique, number = name, 1
    while unique in taken:
        number += 1
        unique = f"{name}_{number}"
    taken.add(unique)
    return unique


def _used(params: Any, body: Any) -> list[Any]:
    """Variables that the body of a PrimFunc holds and no shape of its parameters defines."""
    import tvm

    dims = [d for p in params for d in tvm_compat.param_dims(p) or ()]
    defined = [d for d in dims if isinstance(d, tvm.ir.Var)]
    return [v for v in variables(body) if not any(v.same_as(d) for d in defined)]


def _call_anew(module: Any, changed: Mapping[str, tuple[Any, list[int]]]) -> Any:
    """The module with other programs, its calls leaving out what these no longer take."""
    from tvm import relax

    builder = builder_without(module, changed)
    programs = {
        name: (builder.add_func(plain, name), unneeded)
        for name, (plain, unneeded) in changed.items()
    }

    def adapted(call: Any) -> Any:
        program = programs.get(str(call.args[0].name_hint))
        if program is None or call.args[0].same_as(program[0]):  # asked again after a change
            return call
        var, unneeded = program
        fields = [a for i, a in enumerate(call.args[1].fields) if i not in unneeded]
        arguments = [var, relax.Tuple(fields), *call.args[2:]]
        return relax.Call(call.op, arguments, call.attrs, call.ty_args)

    return with_tir_calls(builder.get(), adapted)
