"""Whether a model is known to be a language model: tokens go in, and logits come out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from spaces.frontends.model import Model
from spaces.ir import tvm_compat
from spaces.lowering.relax_rewrite import variables

_GRAPH = "main"


@dataclass(frozen=True, slots=True)
class Language:
    """A language model.

    Attributes:
        tokens: name of the input that holds them.
        place: of the output that holds logits.
        vocabulary: the number of different tokens.
    """

    tokens: str
    place: int
    vocabulary: int


def read_language(model: Model) -> Language | None:
    """The tokens and logits of a model, where that can be known: one input of integers alone
    chooses rows of a constant table, and an output has, for each of these integers, as many floats
    as the table has rows. None of any other."""
    found = {
        (tokens, rows, place)
        for tokens, rows in _tables(model)
        for place, output in enumerate(_outputs(model))
        if _fits(_input(model, tokens), output, rows)
    }
    if len(found) != 1:
        return None
    ((tokens, rows, place),) = found
    return Language(tokens, place, rows)


def _tables(model: Model) -> set[tuple[str, int]]:
    """Inputs that alone choose rows of constant tables, and the number of rows."""
    from tvm import relax
    from tvm.relax.analysis import post_order_visit

    if not tvm_compat.has_relax(model.module) or _GRAPH not in _names(model.module):
        return set()
    bound: dict[Any, Any] = {}
    takes: list[Any] = []
    main = model.module[_GRAPH]

    def look(expression: Any) -> None:
        if isinstance(expression, relax.SeqExpr):
            bound.update({b.var: b.value for k in expression.blocks for b in k.bindings})
        if tvm_compat.operator_name(expression) == "relax.take":
            takes.append(expression)

    post_order_visit(main, look)
    params = {param: spec.name for param, spec in zip(main.params, model.inputs, strict=False)}
    found = set()
    for take in takes:
        table, axis = bound.get(take.args[0], take.args[0]), take.attrs.axis
        dims = tvm_compat.tensor_dims(table)
        if not tvm_compat.is_constant(table) or axis is None or int(axis) != 0 or not dims:
            continue
        sources = {params[v] for v in _reached(take.args[1], bound) if v in params}
        rows = tvm_compat.as_int(dims[0])
        if len(sources) == 1 and rows is not None:
            found.add((sources.pop(), rows))
    return found


def _names(module: Any) -> list[str]:
    return [str(variable.name_hint) for variable in module.functions]


def _reached(expression: Any, bound: dict[Any, Any]) -> set[Any]:
    """The variables that nothing is bound to, of all that an expression is computed from."""
    left, seen, ends = variables(expression), set[Any](), set[Any]()
    while left:
        variable = left.pop()
        if variable in seen:
            continue
        seen.add(variable)
        if variable in bound:
            left += variables(bound[variable])
        else:
            ends.add(variable)
    return ends


def _input(model: Model, name: str) -> Any:
    main = model.module[_GRAPH]
    names = [spec.name for spec in model.inputs]
    return main.params[names.index(name)]


def _outputs(model: Model) -> list[Any]:
    """Types of the outputs."""
    from tvm import relax

    if not tvm_compat.has_relax(model.module) or _GRAPH not in _names(model.module):
        return []
    given = model.module[_GRAPH].ret_ty
    return [*given.fields] if isinstance(given, relax.TupleType) else [given]


def _fits(tokens: Any, output: Any, rows: int) -> bool:
    """Whether an output has a number for each row of the table, for each of these tokens."""
    import tvm
    from tvm.relax import ShapeExpr, TensorType

    if not isinstance(output, TensorType) or not isinstance(output.shape, ShapeExpr):
        return False
    dims, shape = tvm_compat.tensor_dims(tokens), [*output.shape.values]
    if not dims or "int" not in tvm_compat.param_dtype(tokens) or "float" not in str(output.dtype):
        return False
    if len(shape) != len(dims) + 1 or tvm_compat.as_int(shape[-1]) != rows:
        return False
    proved = tvm.sym.Analyzer().can_prove_equal
    return all(proved(mine, theirs) for mine, theirs in zip(shape, dims, strict=False))
