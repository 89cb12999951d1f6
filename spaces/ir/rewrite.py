"""Functions to rewrite tensor programs with: to compare, replace and copy their nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import Parameter, Signature
from typing import Any

from spaces.ir import tvm_compat

_CALLBACK = Signature([Parameter(name, Parameter.POSITIONAL_ONLY) for name in ("node", "mutator")])


def with_prim_funcs(module: Any, change: Callable[[Any], Any]) -> Any:
    """A module with each of its tensor programs changed; all else stays."""
    from tvm.ir import IRModule

    functions = {
        gv: change(f) if tvm_compat.is_prim_func(f) else f for gv, f in module.functions.items()
    }
    return IRModule(functions, attrs=module.attrs, global_infos=module.global_infos)


def substitute(expression: Any, values: Sequence[tuple[Any, Any]]) -> Any:
    """An expression with values in place of variables."""
    import tvm
    from tvm_ffi import structural_mutate

    def look(var: Any, _mutator: Any = None) -> Any:
        return next((value for known, value in values if var.same_as(known)), var)

    if isinstance(expression, tvm.ir.Var):
        return look(expression)
    if isinstance(expression, tvm.tirx.IntImm):
        return expression
    # This runs hundreds of times in a build, and half of it is looking up a function's parameters.
    setattr(look, "__signature__", _CALLBACK)  # noqa: B010 - functions have no such attribute
    return structural_mutate(expression, [(tvm.ir.Var, look)])


def place_in_loops(realize: Any, expression: Any) -> Any:
    """An expression of a block's axes, in terms of the loops around its realisation."""
    axes = zip(realize.block.iter_vars, realize.iter_values, strict=True)
    return substitute(expression, [(axis.var, value) for axis, value in axes])


def growth(analyzer: Any, expression: Any, variable: Any) -> int | None:
    """The growth of an expression with each step of a variable; None where that is not one
    number."""
    after = substitute(expression, [(variable, variable + constant(1, variable))])
    return tvm_compat.as_int(analyzer.simplify(after - expression))


def bind_loop(analyzer: Any, loop: Any) -> None:
    """Have an analyzer know the range of a loop's variable."""
    import tvm

    analyzer.bind(loop.loop_var, tvm.ir.Range.from_min_extent(loop.min, loop.extent))


def is_among(node: Any, others: Sequence[Any]) -> bool:
    """Whether a node is one of others, the same object and not only an equal one."""
    return any(node.same_as(other) for other in others)


def uses(expression: Any, variables: Sequence[Any]) -> bool:
    """Whether any of the variables occurs in an expression."""
    import tvm
    import tvm_ffi

    def look(var: Any) -> Any:
        if any(var.same_as(known) for known in variables):
            return tvm_ffi.VisitInterrupt(var)
        return None

    return tvm_ffi.structural_walk(expression, (tvm.ir.Var, look)) is not None


def uncast(expression: Any) -> Any:
    """An expression without the casts around it."""
    from tvm.tirx import Cast

    while isinstance(expression, Cast):
        expression = expression.value
    return expression


def find_product(store: Any) -> Any:
    """The product that a step of a sum adds to what it stores, without casts around it; None where
    a statement is no such step."""
    from tvm import tirx
    from tvm.ir import TensorLoad

    if not isinstance(store, tirx.BufferStore) or not isinstance(store.value, tirx.Add):
        return None
    own, product = store.value.a, uncast(store.value.b)
    if not isinstance(own, TensorLoad) or not own.source.same_as(store.buffer):
        return None
    return product if isinstance(product, tirx.Mul) else None


def conjuncts(condition: Any) -> list[Any]:
    """The parts of a condition that must all hold."""
    from tvm.tirx import And

    if isinstance(condition, And):
        return [*conjuncts(condition.a), *conjuncts(condition.b)]
    return [condition]


def conjunction(conditions: Sequence[Any]) -> Any:
    """A condition that holds where all of the conditions do."""
    from tvm.tirx import And

    whole = None
    for condition in conditions:
        whole = condition if whole is None else And(whole, condition)
    return True if whole is None else whole


def constant(value: int, like: Any) -> Any:
    """A number of the same type as an expression."""
    from tvm import tirx

    return tirx.const(value, str(like.ty.dtype))


def cast(kind: str, value: Any) -> Any:
    """An expression, or a whole number, in an element type."""
    from tvm import tirx

    if isinstance(value, int):
        return tirx.const(value, kind)
    return value if str(value.ty.dtype) == kind else tirx.Cast(kind, value)


def bind(variable: Any, value: Any) -> tuple[Any, Any]:
    """A variable, and what stands for it in its type."""
    return variable, cast(str(variable.ty.dtype), value)


def reads(expression: Any) -> bool:
    """Whether an expression reads a tensor."""
    import tvm_ffi
    from tvm.ir import TensorLoad

    visit = (TensorLoad, tvm_ffi.VisitInterrupt)
    return tvm_ffi.structural_walk(expression, visit) is not None


def copy_loop(
    loop: Any, body: Any, *, var: Any = None, extent: Any = None, marks: Any = None
) -> Any:
    """A copy of a loop around another body.

    Args:
        var: its loop variable; None keeps its own.
        extent: its extent; None keeps its own.
        marks: its annotations; None keeps its own.
    """
    from tvm.tirx import For

    var = loop.loop_var if var is None else var
    extent = loop.extent if extent is None else extent
    marks = loop.annotations if marks is None else marks
    return For(var, loop.min, extent, loop.kind, body, loop.thread_binding, marks)


def change_block(
    block: Any,
    *,
    axes: Any = None,
    reads: Any = None,
    writes: Any = None,
    body: Any = None,
    buffers: Any = None,
) -> Any:
    """A copy of a block with some parts changed; None keeps a part.

    Args:
        reads: regions that it reads, `writes` those that it writes.
        buffers: buffers that it allocates.
    """
    from tvm.s_tir import SBlock

    return SBlock(
        block.iter_vars if axes is None else axes,
        block.reads if reads is None else reads,
        block.writes if writes is None else writes,
        block.name_hint,
        block.body if body is None else body,
        block.init,
        block.alloc_buffers if buffers is None else buffers,
        block.match_buffers,
        block.annotations,
    )


def copy_block(block: Any) -> Any:
    """A copy of a block with new axes: no axis may be in a program twice."""
    from tvm.tirx import IterVar, Var

    fresh = [
        IterVar(axis.dom, Var(str(axis.var.name), axis.var.ty), axis.iter_type)
        for axis in block.iter_vars
    ]
    values = [(old.var, new.var) for old, new in zip(block.iter_vars, fresh, strict=True)]
    return change_block(
        block,
        axes=fresh,
        reads=[substitute(region, values) for region in block.reads],
        writes=[substitute(region, values) for region in block.writes],
        body=substitute(block.body, values),
    )


def renew_variables(statement: Any) -> Any:
    """A copy of a statement with new loop variables and axes: none may be in a program twice."""
    import tvm
    from tvm.tirx import For, Var
    from tvm_ffi import structural_mutate

    def loop(node: Any, mutator: Any) -> Any:
        var = Var(str(node.loop_var.name), node.loop_var.ty)
        body = substitute(mutator.mutate(node.body), [(node.loop_var, var)])
        return copy_loop(node, body, var=var)

    def block(node: Any, _mutator: Any) -> Any:
        return copy_block(node)

    return structural_mutate(statement, [(For, loop), (tvm.s_tir.SBlock, block)])
