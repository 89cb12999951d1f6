"""Numbers that functions to fuse are told, moved to where TVM's FuseTIR takes them.

A range from `past` to `past + n` is told `past` as a number, and `n`, the size of what it gives, in
a shape in the last place. FuseTIR takes a function with both for one that defines a variable
twice. One that is told all of it by the shape is right.
"""

from __future__ import annotations

from typing import Any

from spaces.ir import tvm_compat
from spaces.lowering.relax_rewrite import builder_without, with_graphs


def tell_by_shapes(module: Any) -> Any:
    """A module between FuseOps and FuseTIR whose functions with a shape in the last place are told
    their numbers by it; calls of them are adapted."""
    from tvm.relax import Call
    from tvm.relax.expr_functor import PyExprMutator, mutator

    found = {
        str(var.name_hint): (function, numbers)
        for var, function in module.functions.items()
        if tvm_compat.is_relax_function(function) and (numbers := _find_numbers(function))
    }
    if not found:
        return module
    builder = builder_without(module, found)
    anew = {name: builder.add_func(_tell(f, n), name) for name, (f, n) in found.items()}

    @mutator
    class Caller(PyExprMutator):  # type: ignore[misc]
        def visit_call_(self, call: Any) -> Any:
            call = super().visit_call_(call)
            name = str(getattr(call.op, "name_hint", ""))
            if name not in anew or call.op.same_as(anew[name]):
                return call
            _, numbers = found[name]
            return Call(anew[name], _join(call.args, numbers, call.args[-1].values))

    result = builder.get()
    return with_graphs(result, Caller(result).visit_expr)


def _find_numbers(function: Any) -> list[int]:
    """Positions of the numbers among the parameters of a function whose last one is a shape."""
    from tvm.ir import PrimType
    from tvm.relax import ShapeType

    types = [param.ty for param in function.params]
    if not types or not isinstance(types[-1], ShapeType):
        return []
    return [place for place, kind in enumerate(types) if isinstance(kind, PrimType)]


def _tell(function: Any, numbers: list[int]) -> Any:
    """A function that is told the numbers in these places by its last parameter."""
    from tvm import relax

    last = function.params[-1]
    sizes = _join(function.params, numbers, last.ty.values)[-1].values
    kept = [p for place, p in enumerate(function.params[:-1]) if place not in numbers]
    params = [*kept, relax.Var(str(last.name), relax.ShapeType(sizes))]
    return relax.Function(params, function.body, function.ret_ty, function.is_pure, function.attrs)


def _join(given: Any, numbers: list[int], sizes: Any) -> list[Any]:
    """What is given without the numbers, and last of all a shape of the sizes and these."""
    from tvm import relax

    kept = [one for place, one in enumerate(given[:-1]) if place not in numbers]
    return [*kept, relax.ShapeExpr([*sizes, *(given[place] for place in numbers)])]
