"""Functions that all rewrites of a module's graphs need: to inspect graphs and write them anew."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from spaces.ir import tvm_compat


def with_graphs(module: Any, rewrite: Callable[[Any], Any], only: str = "") -> Any:
    """A module with each of its graphs rewritten; its tensor programs stay.

    Args:
        only: name of the one that is rewritten; empty for all.
    """
    return _with_named_graphs(module, lambda name, f: rewrite(f) if only in ("", name) else f)


def _with_named_graphs(module: Any, rewrite: Callable[[str, Any], Any]) -> Any:
    from tvm.ir import IRModule

    functions = {
        gv: rewrite(str(gv.name_hint), f) if tvm_compat.is_relax_function(f) else f
        for gv, f in module.functions.items()
    }
    return IRModule(functions, attrs=module.attrs, global_infos=module.global_infos)


def constant(array: Any) -> Any:
    """A constant of an array's own element type; TVM makes 32 bits of 64 unless told."""
    from tvm import relax

    return relax.const(array, str(array.dtype))


SUMMING = frozenset(
    {"relax.matmul"}
    | {f"relax.nn.conv{n}d{kind}" for n in (1, 2, 3) for kind in ("", "_transpose")}
)
"""Operators that add up products of their two operands."""
FUSES, FUSES_FREELY, FUSES_AFTER, FUSES_NOTHING = "op_pattern", 2, 4, 8
"""TVM's attribute for what a tensor program may be fused with: what is before and after one that
only moves elements, what follows one that sums; for some, nothing."""


def sum_in(call: Any, operands: Sequence[Any], dtype: str) -> Any:
    """A call of an operator of `SUMMING` with other operands, whose sums, and result, are of a
    type."""
    import tvm
    from tvm import relax

    about = call.attrs.__tvm_ffi_type_info__
    same = {field.name: getattr(call.attrs, field.name) for field in about.fields}
    attributes = tvm.ir.make_node(about.type_key, **{**same, "out_dtype": dtype})
    return relax.Call(call.op, [*operands], attributes, call.ty_args)


def with_weighted_calls(module: Any, name: str, change: Callable[[Any, Any, Any], Any]) -> Any:
    """A module with its graphs' calls of an operator changed whose second operand is a constant.

    Args:
        change: gives an expression for a call and its two operands.
    """
    from tvm.relax.dpl import is_const, is_op, rewrite_call, wildcard

    first, second = wildcard(), is_const()

    def changed(call: Any, found: Any) -> Any:
        if tvm_compat.operator_name(call) != name:
            return call  # a variable bound to one
        return change(call, found[first], found[second])

    return with_graphs(module, lambda g: rewrite_call(is_op(name)(first, second), changed, g))


def tir_calls(module: Any) -> list[Any]:
    """Calls of a module's graphs to tensor programs, in order."""
    from tvm.relax.analysis import post_order_visit

    found: list[Any] = []
    for _, function in sorted(module.functions.items(), key=lambda pair: str(pair[0].name_hint)):
        if tvm_compat.is_relax_function(function):
            post_order_visit(
                function, lambda e: found.append(e) if tvm_compat.is_call_tir(e) else None
            )
    return found


def with_tir_calls(module: Any, change: Callable[[Any], Any], only: str = "") -> Any:
    """A module with its graphs' calls to tensor programs changed.

    Args:
        change: gives a call for a call; it may be called again with a call that it gave.
        only: as of `with_graphs`.
    """
    from tvm.relax.dpl import is_op, rewrite_call

    def changed(call: Any, _found: Any) -> Any:
        return (
            change(call) if tvm_compat.is_call_tir(call) else call
        )  # else a variable bound to one

    pattern = is_op("relax.call_tir")(varg_default_wildcard=True)
    return with_graphs(module, lambda graph: rewrite_call(pattern, changed, graph), only)


def builder_without(module: Any, gone: Container[str]) -> Any:
    """A `relax.BlockBuilder` of a module without some functions, which can then be added anew.

    A function of another type needs a new variable, since the old variable has the old type.
    """
    from tvm.ir import IRModule
    from tvm.relax import BlockBuilder

    kept = {gv: f for gv, f in module.functions.items() if str(gv.name_hint) not in gone}
    return BlockBuilder(IRModule(kept, attrs=module.attrs, global_infos=module.global_infos))


def write_anew(builder: Any, function: Any, emit: Callable[[], Any]) -> Any:
    """A function with the parameters and attributes of another.

    Args:
        builder: a fresh `relax.BlockBuilder`.
        emit: emits the bindings into one dataflow block, and returns the result.
    """
    name = "main"
    with builder.function(name, list(function.params)):
        with builder.dataflow():
            result = builder.emit_output(emit())
        builder.emit_func_output(result)
    return tvm_compat.with_attrs_of_graph(builder.get()[name], function)


def straight_bindings(function: Any) -> list[Any] | None:
    """The bindings of a straight graph; None of a graph with anything else in it."""
    from tvm import relax

    if not isinstance(function.body, relax.SeqExpr):
        return None
    found = [b for block in function.body.blocks for b in block.bindings]
    odd = (relax.Function, relax.If, relax.SeqExpr)
    plain = all(isinstance(b, relax.VarBinding) and not isinstance(b.value, odd) for b in found)
    dataflow = all(isinstance(block, relax.DataflowBlock) for block in function.body.blocks)
    return found if plain and dataflow else None


@dataclass(frozen=True, slots=True)
class Uses:
    """What is bound to the variables of a graph, and who reads them.

    Attributes:
        values: by variable.
        users: the values that read a variable; None is whoever calls the graph.
    """

    values: Mapping[Any, Any]
    users: Mapping[Any, Sequence[Any]]

    def only_user(self, var: Any) -> Any:
        """The value that alone reads a variable; None where there are others."""
        users = self.users.get(var, ())
        return users[0] if len(users) == 1 else None


def read_uses(graph: Any) -> Uses:
    """The variables of a graph."""
    from tvm import relax
    from tvm.relax.analysis import get_var2val

    users = defaultdict[Any, list[Any]](list)
    values = dict(get_var2val(graph).items())
    for value in values.values():
        for var in variables(value):
            users[var].append(value)
    ends = [graph.body.body] if isinstance(graph.body, relax.SeqExpr) else [graph.body]
    for var in (var for end in ends for var in variables(end)):
        users[var].append(None)
    return Uses(values, users)


Write: TypeAlias = Callable[[Any, Callable[[Any], Any]], Any]
"""Writes a call anew, given a `relax.BlockBuilder` and what gives the new form of an expression."""


def with_calls(graph: Any, changes: Sequence[tuple[Any, Write]]) -> Any:
    """A graph with some of its calls written anew, whatever else is in it."""
    if not changes:
        return graph
    from tvm.relax.expr_functor import PyExprMutator, mutator

    @mutator
    class Writer(PyExprMutator):  # type: ignore[misc]
        def visit_call_(self, call: Any) -> Any:
            for old, write in changes:
                if old.same_as(call):
                    return write(self.builder_, self.visit_expr)
            return super().visit_call_(call)

    return Writer().visit_expr(graph)


def hold_checks(module: Any) -> tuple[Any, Mapping[str, Any]]:
    """A module whose graphs are straight where only checks of sizes come first, and the block of
    these by the name of the graph."""
    from tvm import relax

    checks: dict[str, Any] = {}

    def without(name: str, graph: Any) -> Any:
        blocks = [*graph.body.blocks] if isinstance(graph.body, relax.SeqExpr) else []
        if len(blocks) < 2 or isinstance(blocks[0], relax.DataflowBlock):
            return graph
        values = [binding.value for binding in blocks[0].bindings]
        sizes = (relax.ShapeExpr, relax.Var)
        if not all(isinstance(v, sizes) and isinstance(v.ty, relax.ShapeType) for v in values):
            return graph
        checks[name] = blocks[0]
        return _with_blocks(graph, blocks[1:])

    return _with_named_graphs(module, without), checks


def give_checks(module: Any, checks: Mapping[str, Any]) -> Any:
    """A module whose graphs have these blocks first again."""

    def give(name: str, graph: Any) -> Any:
        return _with_blocks(graph, [checks[name], *graph.body.blocks]) if name in checks else graph

    return _with_named_graphs(module, give)


def _with_blocks(graph: Any, blocks: Sequence[Any]) -> Any:
    from tvm import relax

    body = relax.SeqExpr([*blocks], graph.body.body)
    return relax.Function(graph.params, body, graph.ret_ty, graph.is_pure, attrs=graph.attrs)


def replace_vars(expression: Any, by: Any) -> Any:
    """A graph's expression with some variables replaced."""
    from tvm import relax

    if isinstance(expression, relax.Var):
        return by.get(expression, expression)
    if isinstance(expression, relax.Tuple):
        return relax.Tuple([replace_vars(field, by) for field in expression.fields])
    if isinstance(expression, relax.TupleGetItem):
        return relax.TupleGetItem(replace_vars(expression.tuple_value, by), expression.index)
    if isinstance(expression, relax.Call):
        arguments = [replace_vars(argument, by) for argument in expression.args]
        return relax.Call(expression.op, arguments, expression.attrs, expression.ty_args)
    return expression


def variables(expression: Any) -> list[Any]:
    """The variables that an expression reads, each once; not those of shapes within it."""
    from tvm.ir import PrimType
    from tvm.relax.analysis import free_vars

    return [var for var in free_vars(expression) if not isinstance(var.ty, PrimType)]


def rank(expression: Any) -> int | None:
    """Number of dimensions of a tensor; None where it is unknown, and of anything else."""
    dims = tvm_compat.tensor_dims(expression)
    return None if dims is None else len(dims)


def same_dims(dims: Sequence[Any], others: Sequence[Any]) -> bool:
    """Whether two shapes are known to be equal."""
    from tvm import sym

    equal = sym.Analyzer().can_prove_equal
    return len(dims) == len(others) and all(map(equal, dims, others))


def tensor_bytes(expression: Any) -> int:
    """Size of a tensor, symbolic dimensions taken as 1; 0 of anything else."""
    dims = tvm_compat.tensor_dims(expression)
    if dims is None:
        return 0
    return math.prod(tvm_compat.as_int(d) or 1 for d in dims) * tvm_compat.tensor_itemsize(
        expression
    )
