"""Programs that make floats of packed weights, moved into the products that read these.

TVM's FuseOps fuses what follows a product and nothing that precedes one. Apart, a program of its
own would write all of a weight as floats, each time, for a product that reads them once.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Any

from spaces.ir import tvm_compat
from spaces.lowering.relax_rewrite import FUSES, FUSES_AFTER, replace_vars, straight_bindings
from spaces.lowering.weights.constants import GRAPH, unpacks
from spaces.lowering.weights.widening import WIDENS


@dataclass(frozen=True, slots=True)
class _Program:
    """A call of a graph, as the calls to tensor programs that it stands for.

    Attributes:
        params: of a function that makes these calls, one for each operand.
        bindings: its calls, in order.
        result: the variable that it returns.
    """

    params: tuple[Any, ...]
    operands: tuple[Any, ...]
    bindings: tuple[Any, ...]
    result: Any


def unpack_in_products(module: Any, packed: Container[str], *, matrices_alone: bool = False) -> Any:
    """A module between FuseOps and FuseTIR in which products unpack their weights themselves.

    Args:
        packed: names of the parameters that hold packed weights.
        matrices_alone: whether only weights of two dimensions are, and no kernels of convolutions.
    """
    bindings = _list_bindings(module[GRAPH])
    programs = {b.var: found for b in bindings if (found := _read(module, b)) is not None}
    made = {
        var: program
        for var, program in programs.items()
        if _is_widening(module, program)
        or (
            any(unpacks(module, b.value) for b in program.bindings)
            and all(_is_packed(operand, packed) for operand in program.operands)
        )
    }
    if matrices_alone:
        made = {var: program for var, program in made.items() if len(var.ty.shape.values) == 2}
    return _write(module, bindings, programs, made) if made else module


def _list_bindings(graph: Any) -> list[Any]:
    """The bindings of a graph's dataflow."""
    from tvm import relax

    blocks = [b for b in graph.body.blocks if isinstance(b, relax.DataflowBlock)]
    found = [binding for block in blocks for binding in block.bindings]
    return [binding for binding in found if isinstance(binding, relax.VarBinding)]


def _is_widening(module: Any, program: _Program) -> bool:
    """Whether a program makes float32 of one operand and does nothing else."""
    calls = [b.value for b in program.bindings if tvm_compat.is_call_tir(b.value)]
    if len(calls) != 1 or len(program.operands) != 1:
        return False
    return tvm_compat.attribute(module[calls[0].args[0]], WIDENS) is not None


def _is_packed(operand: Any, packed: Container[str]) -> bool:
    from tvm import relax

    if tvm_compat.is_constant(operand):
        return True
    return isinstance(operand, relax.Var) and str(operand.name) in packed


def _read(module: Any, binding: Any) -> _Program | None:
    """What a binding computes, as calls of tensor programs; None where it is anything else."""
    from tvm import relax

    call = binding.value
    if tvm_compat.is_call_tir(call):
        if len(call.args) != 2:
            return None  # it is told numbers
        operands = tuple(call.args[1].fields)
        return _one_call(call, operands, [operand.ty for operand in operands], binding.var.ty)
    function = _callee(module, call)
    inside = None if function is None else straight_bindings(function)
    if function is None or inside is None or not isinstance(function.body.body, relax.Var):
        return None
    if not all(tvm_compat.is_call_tir(b.value) or _is_name(b) for b in inside):
        return None
    return _Program(tuple(function.params), tuple(call.args), tuple(inside), function.body.body)


def _one_call(
    call: Any, operands: Sequence[Any], kinds: Sequence[Any], result_kind: Any
) -> _Program:
    """The program that makes a call with operands and a result of some types."""
    from tvm import relax

    params = [relax.Var(f"p{i}", kind) for i, kind in enumerate(kinds)]
    given = [
        operand if _is_number(operand) else param
        for operand, param in zip(operands, params, strict=True)
    ]
    told = [param for param, one in zip(params, given, strict=True) if param.same_as(one)]
    known = [one for one in operands if not _is_number(one)]
    if numbers := [one for one in operands if _is_number(one)]:
        told.append(relax.Var("sizes", relax.ShapeType(numbers)))  # which says what they are
        known.append(relax.ShapeExpr(numbers))
    inner = relax.Call(call.op, [call.args[0], relax.Tuple(given)], call.attrs, [result_kind])
    result = relax.DataflowVar("result", result_kind)
    return _Program(tuple(told), tuple(known), (relax.VarBinding(result, inner),), result)


def _is_number(operand: Any) -> bool:
    """Whether an operand is a number that sizes are computed from, and no tensor."""
    from tvm.ir import PrimType

    return isinstance(operand.ty, PrimType)


def _in_sizes_of(param: Any, program: _Program) -> _Program:
    """A program that widens, its sizes named as those of the parameter that it is to make."""
    from tvm import relax

    (operand,) = program.operands
    call = program.bindings[0].value
    kind = relax.TensorType(param.ty.shape, operand.ty.dtype)
    return _one_call(call, [operand], [kind], param.ty)


def _is_open(param: Any) -> bool:
    """Whether a parameter has a size that only a run knows; then it is no weight."""
    return any(tvm_compat.as_int(size) is None for size in param.ty.shape.values)


def _is_name(binding: Any) -> bool:
    """Whether a binding only gives another name to a variable, as those of results are."""
    from tvm import relax

    return isinstance(binding.value, relax.Var)


def _callee(module: Any, call: Any) -> Any:
    from tvm.ir import GlobalVar
    from tvm.relax import Call

    if not isinstance(call, Call) or not isinstance(call.op, GlobalVar):
        return None
    function = module[call.op]
    return function if tvm_compat.is_relax_function(function) else None


def _multiplies(module: Any, program: _Program, operand: Any) -> bool:
    """Whether a program has one product, which itself reads an operand, and nothing else does."""
    param = program.params[[*program.operands].index(operand)]
    readers = [b.value for b in program.bindings if _reads(b.value, param)]
    return len(readers) == 1 and _is_product(module, readers[0])


def _reads(call: Any, variable: Any) -> bool:
    return tvm_compat.is_call_tir(call) and any(f.same_as(variable) for f in call.args[1].fields)


def _is_product(module: Any, call: Any) -> bool:
    kind = tvm_compat.attribute(module[call.args[0]], FUSES)
    return kind is not None and int(kind) == FUSES_AFTER


def _write(
    module: Any, bindings: Sequence[Any], programs: dict[Any, _Program], made: dict[Any, _Program]
) -> Any:
    """A module whose graph calls programs that make some of their operands themselves."""
    from tvm import relax
    from tvm.relax.expr_functor import PyExprMutator, mutator

    builder = relax.BlockBuilder(module)
    joined: list[tuple[Any, Any, list[Any]]] = []
    for binding in bindings:
        program = programs.get(binding.var)
        if program is None or binding.var in made:
            continue
        inner = [o for o in program.operands if o in made and _multiplies(module, program, o)]
        if inner:
            function, operands = _join(program, {o: made[o] for o in inner})
            name = f"{_name(binding.value)}_of_packed"
            joined.append((binding.value, builder.add_func(function, name), operands))

    @mutator
    class Joiner(PyExprMutator):  # type: ignore[misc]
        def visit_call_(self, call: Any) -> Any:
            for value, function, operands in joined:
                if value.same_as(call):
                    return relax.Call(function, [self.visit_expr(o) for o in operands])
            return super().visit_call_(call)

    joiner = Joiner(builder.get())
    graph = module.get_global_var(GRAPH)
    joiner.builder_.update_func(graph, joiner.visit_expr(module[graph]))
    return joiner.builder_.get()


def _name(call: Any) -> str:
    callee = call.args[0] if tvm_compat.is_call_tir(call) else call.op
    return str(callee.name_hint)


def _join(program: _Program, made: dict[Any, _Program]) -> tuple[Any, list[Any]]:
    """A function that makes some operands of a program itself and does what the program does; and
    the operands of this function."""
    from tvm import relax

    given: dict[Any, Any] = {}
    by: dict[Any, Any] = {}

    def take(params: Sequence[Any], operands: Sequence[Any]) -> None:
        for param, operand in zip(params, operands, strict=True):
            by[param] = relax.Var(f"p{len(given)}", param.ty)
            given[by[param]] = operand

    pairs = list(zip(program.params, program.operands, strict=True))
    kept = [pair for pair in pairs if pair[1] not in made]
    take([param for param, _ in kept], [operand for _, operand in kept])
    inside = [
        (param, _in_sizes_of(param, made[operand]) if _is_open(param) else made[operand])
        for param, operand in pairs
        if operand in made
    ]
    for _, unpacking in inside:
        take(unpacking.params, unpacking.operands)
    builder = relax.BlockBuilder()
    with builder.function(GRAPH, [*given]):
        with builder.dataflow():
            for param, unpacking in inside:
                by[param] = _emit(builder, unpacking, by)
            result = builder.emit_output(_emit(builder, program, by))
        builder.emit_func_output(result)
    function = builder.get()[GRAPH].without_attr(tvm_compat.GLOBAL_SYMBOL)
    return function.with_attr("Primitive", 1), [*given.values()]


def _emit(builder: Any, program: _Program, by: dict[Any, Any]) -> Any:
    """Emit what a program computes, its variables replaced; give its result."""
    for binding in program.bindings:
        by[binding.var] = builder.emit(replace_vars(binding.value, by))
    return by[program.result]
