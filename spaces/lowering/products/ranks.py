"""Products of the rank that their rows have.

PyTorch makes matrices of rows before it multiplies them (`addmm`), and of the result what the rows
were. Between a product and what follows it elementwise, such a view keeps TVM from fusing them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from spaces.ir import tvm_compat
from spaces.lowering.relax_rewrite import (
    Uses,
    rank,
    read_uses,
    same_dims,
    with_calls,
    with_graphs,
)

_RESHAPE, _MATMUL, _ADD = "relax.reshape", "relax.matmul", "relax.add"


def keep_ranks(module: Any) -> Any:
    """A module whose products by matrices take rows, and give results, in the shape that these
    have before and after."""
    return with_graphs(module, _rewritten)


def _rewritten(graph: Any) -> Any:
    uses = read_uses(graph)
    changes = []
    for value in uses.values.values():
        if tvm_compat.operator_name(value) != _RESHAPE:
            continue
        steps = _read_steps(value.args[0], uses)
        if steps is not None and _has_shape(value, *steps):
            changes.append((value, partial(_multiply, *steps)))
    return with_calls(graph, changes)


def _read_steps(flat: Any, uses: Uses) -> tuple[Any, Any, Any] | None:
    """What rows were before they became a matrix, their product, and the sum of that and a constant
    where there is one, of which nobody else reads anything; None where a variable is another."""
    call: Any = uses.values.get(flat)
    total = None
    if uses.only_user(flat) is None:
        return None
    if tvm_compat.operator_name(call) == _ADD:
        total = call
        terms = [term for term in call.args if not tvm_compat.is_constant(term)]
        if len(terms) != 1 or rank(terms[0]) != 2 or uses.only_user(terms[0]) is None:
            return None
        call = uses.values.get(terms[0])
    if tvm_compat.operator_name(call) != _MATMUL or [rank(a) for a in call.args] != [2, 2]:
        return None
    rows: Any = uses.values.get(call.args[0])
    if tvm_compat.operator_name(rows) != _RESHAPE:
        return None
    return rows.args[0], call, total


def _has_shape(result: Any, rows: Any, product: Any, total: Any) -> bool:
    """Whether a result has the shape of rows but for the last dimension, which is the matrix's."""
    before, after = (tvm_compat.tensor_dims(tensor) for tensor in (rows, result))
    terms, columns = tvm_compat.tensor_dims(product.args[1]) or (None, None)
    if before is None or after is None or len(before) != len(after) or len(before) < 3:
        return False
    if total is not None:
        (bias,) = (term for term in total.args if tvm_compat.is_constant(term))
        sizes = [tvm_compat.as_int(dim) for dim in tvm_compat.tensor_dims(bias) or ()]
        if any(size != 1 for size in sizes[:-1]):
            return False
    return same_dims([*before, columns], [*after[:-1], terms, after[-1]])


def _multiply(rows: Any, product: Any, total: Any, builder: Any, anew: Callable[[Any], Any]) -> Any:
    from tvm import relax

    whole = relax.Call(product.op, [anew(rows), anew(product.args[1])], product.attrs)
    if total is None:
        return whole
    whole = builder.emit(whole)
    terms = [term if tvm_compat.is_constant(term) else whole for term in total.args]
    return relax.Call(total.op, terms, total.attrs)
