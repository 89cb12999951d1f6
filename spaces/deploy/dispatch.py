"""Several kernels of one program behind one function, which calls the right one for each shape.

The decision is code of the function: comparisons of its symbolic dimensions with numbers, then a
call within the same library. Every kernel computes every shape, so a wrong decision costs time and
nothing else. Copies of kernels that are specialised for one shape are called for just that shape.
Shapes with a dimension of 0 never reach kernels, which divide by dimensions: where anything is to
be written at all, as for a sum over nothing, the program without a schedule does it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spaces.ir import tvm_compat
from spaces.ir.symbolic import symbols
from tuner.dynamic.dispatch_tree import Leaf, Tree


def make_dispatcher(
    name: str,
    functions: Sequence[Any],
    tree: Tree,
    empty: Any = None,
    copies: Sequence[tuple[Mapping[str, int], Any]] = (),
) -> dict[str, Any]:
    """PrimFuncs by their names: the dispatcher under `name`, and the functions that it calls.

    Args:
        functions: scheduled PrimFuncs of one program, by the numbers of the tree's leaves; their
            parameters are alike.
        tree: decision tree over dimensions, by their names in the program.
        empty: the program without a schedule; None where a shape with a dimension of 0 leaves
            nothing to write.
        copies: functions that compute one shape alone, each with its shape, which is tested first.
            They have the same parameters.

    Raises:
        ValueError: the tree asks for a dimension that the program does not have.
    """
    import tvm

    kernels = {f"{name}_kernel{number}": f for number, f in enumerate(functions)}
    if empty is not None:
        kernels[f"{name}_empty"] = empty
    first = functions[0]
    dims = symbols(first)
    calls = [_call(f"{name}_kernel{number}", first.params) for number in range(len(functions))]
    body = _branches(tree, calls, dims)
    for number, (shape, function) in enumerate(copies):
        kernels[f"{name}_copy{number}"] = function
        here = tvm.tirx.all(*(var == shape[dim] for dim, var in dims.items()))
        body = tvm.tirx.IfThenElse(here, _call(f"{name}_copy{number}", first.params), body)
    nothing = [tvm.tirx.EQ(var, tvm.tirx.const(0, str(var.ty.dtype))) for var in dims.values()]
    if nothing:
        done = tvm.tirx.Evaluate(tvm.tirx.const(0, "int32"))
        plain = done if empty is None else _call(f"{name}_empty", first.params)
        body = tvm.tirx.IfThenElse(tvm.tirx.any(*nothing), plain, body)
    body = _under_a_root(body)
    made = {name: tvm.tirx.PrimFunc(first.params, body, first.ret_type, first.attrs), **kernels}
    return {symbol: _public(symbol, function) for symbol, function in made.items()}


def _under_a_root(body: Any) -> Any:
    """A body within a root block, as any program has: TVM tests all programs of a graph for mere
    reshapes, and takes a root block for granted."""
    from tvm.s_tir import SBlock, SBlockRealize

    return SBlockRealize([], True, SBlock([], [], [], "root", body))


def _call(symbol: str, arguments: Sequence[Any]) -> Any:
    import tvm

    return tvm.tirx.Evaluate(tvm.tirx.call_cpacked(symbol, *arguments))


def _public(symbol: str, function: Any) -> Any:
    """A function under this name. One that may alias would slow down all others of its library."""
    function = function.with_attr(tvm_compat.GLOBAL_SYMBOL, symbol).with_attr(
        tvm_compat.NO_ALIAS, True
    )
    return function.with_attr(tvm_compat.IS_SCHEDULED, True)


def _branches(tree: Tree, calls: Sequence[Any], dims: Mapping[str, Any]) -> Any:
    import tvm

    if isinstance(tree, Leaf):
        return calls[tree.kernel]
    if tree.dim not in dims:
        raise ValueError(f"the program has no dimension {tree.dim}")
    var = dims[tree.dim]
    bound = tvm.tirx.const(tree.bound, str(var.ty.dtype))
    below, above = _branches(tree.below, calls, dims), _branches(tree.above, calls, dims)
    return tvm.tirx.IfThenElse(var <= bound, below, above)
