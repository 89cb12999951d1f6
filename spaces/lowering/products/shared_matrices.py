"""Products by matrices that several heads share, read where they are.

    y[z, m, n] = sum over k of a[z, m, k] * b[z // heads, k, n]

Exporters copy a matrix for each of its heads, and turn it twice on the way. Here the rows of all
heads that share a matrix become rows of one product, and what a matrix was turned from is turned
once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from spaces.ir import tvm_compat
from spaces.ir.guard import Unsuitable
from spaces.lowering.attention.description import SUMS
from spaces.lowering.attention.views import (
    RESHAPES,
    Index,
    broadcast,
    look_through,
    read_dims,
    read_number,
    shrink,
)
from spaces.lowering.relax_rewrite import read_uses, same_dims, with_calls, with_graphs


@dataclass(frozen=True, slots=True)
class _Matrices:
    """What the matrices of a product are read from.

    Attributes:
        source: a tensor of the graph.
        order: its axes: those of matrices, then their rows and columns.
        heads: how many of the product's batch have the same matrix, one after the other.
        number: that the matrices are multiplied by.
        turns: how often they are turned on the way.
    """

    source: Any
    order: tuple[int, ...]
    heads: int
    number: float
    turns: int


def share_matrices(module: Any) -> Any:
    """A module whose graphs copy no matrix for each head, where that moves fewer bytes."""
    return with_graphs(module, _rewritten)


def _rewritten(graph: Any) -> Any:
    uses = read_uses(graph)
    changes = []
    for var, value in uses.values.items():
        if tvm_compat.operator_name(value) != "relax.matmul":
            continue
        matrices = _read(value, uses.values)
        if matrices is not None and _pays(value, matrices, uses.users.get(var, ())):
            changes.append((value, partial(_multiply, value, matrices)))
    return with_calls(graph, changes)


def _pays(product: Any, matrices: _Matrices, users: Sequence[Any]) -> bool:
    """Whether fewer bytes are moved: what follows the product elementwise is no more done in it
    where its rows are regrouped, which costs a copy of the result for one of the matrices."""
    if matrices.heads == 1:
        return matrices.turns > 1
    rows, terms = (tvm_compat.as_int(dim) for dim in read_dims(product.args[0])[-2:])
    few = rows is not None and terms is not None and rows < terms
    return few or all(
        tvm_compat.operator_name(user) in RESHAPES for user in users if user is not None
    )


def _read(product: Any, values: Mapping[Any, Any]) -> _Matrices | None:
    """What the matrices of a product are views of, as far back as they can be read from."""
    try:
        return _look_back(product, values)
    except Unsuitable:
        return None


def _look_back(product: Any, values: Mapping[Any, Any]) -> _Matrices | None:
    from tvm import tirx

    tensor, dims = product.args[1], read_dims(product)
    if len(dims) < 3 or not same_dims(read_dims(product.args[0])[:-2], dims[:-2]):
        return None
    batch = [tirx.Var(f"z{n}", "int64") for n in range(len(dims) - 2)]
    term, column = tirx.Var("k", "int64"), tirx.Var("n", "int64")
    index = broadcast(tensor, product, [*batch, term, column])
    found, number, turns = None, 1.0, 0
    while (call := values.get(tensor)) is not None:
        if (viewed := look_through(call, index)) is not None:
            tensor, index = viewed
            turns += tvm_compat.read_permutation(call) is not None
        elif (by := _read_factor(call)) is not None:
            tensor, index = call.args[0], shrink(call.args[0], call, index)
            number *= by
        else:
            break
        place = _Place([*zip(batch, dims[:-2], strict=True)], term, column)
        if (order := place.read_order(tensor, index)) is not None:
            found = _Matrices(tensor, *order, number, turns)
    return found


def _read_factor(call: Any) -> float | None:
    """The number that a call multiplies by, in float32; none where it does something else."""
    if tvm_compat.operator_name(call) != "relax.multiply" or str(call.ty.dtype) != SUMS:
        return None
    by = read_number(call.args[1])
    return None if by is None or not math.isfinite(by.value) else float(by.value)


@dataclass(frozen=True, slots=True)
class _Place:
    """Variables for a place in the second operand of a product.

    Attributes:
        batch: with their extents.
    """

    batch: Sequence[tuple[Any, Any]]
    term: Any
    column: Any

    def read_order(self, tensor: Any, index: Index) -> tuple[tuple[int, ...], int] | None:
        """The order of a tensor's axes in which it holds the matrices, and how many of the batch
        share one; None where its elements at the index are no such matrices."""
        from tvm import ir, sym

        ends = [_find(index, var) for var in (self.term, self.column)]
        dims, analyzer = read_dims(tensor), sym.Analyzer()
        if None in ends:
            return None
        outer = [axis for axis in range(len(dims)) if axis not in ends]
        for var, extent in self.batch:
            analyzer.bind(var, ir.Range.from_min_extent(0, extent))
        held = [(index[axis], dims[axis]) for axis in outer]
        many, few = (_count(pairs) for pairs in (self.batch, held))
        heads = tvm_compat.as_int(analyzer.simplify(many // few))
        if heads is None or not analyzer.can_prove_equal(many, few * heads):
            return None
        if not analyzer.can_prove_equal(_flatten(held), _flatten(self.batch) // heads):
            return None
        return (*outer, *(end for end in ends if end is not None)), heads


def _find(index: Index, var: Any) -> int | None:
    """Where an index is a variable."""
    return next((n for n, at in enumerate(index) if var.same_as(at)), None)


def _count(batch: Sequence[tuple[Any, Any]]) -> Any:
    """How many places there are, as an expression."""
    return math.prod([extent for _, extent in batch], start=_one())


def _flatten(batch: Sequence[tuple[Any, Any]]) -> Any:
    """The number of a place, in order."""
    flat = _one() * 0
    for at, extent in batch:
        flat = flat * extent + at
    return flat


def _one() -> Any:
    from tvm import tirx

    return tirx.const(1, "int64")


def _multiply(product: Any, matrices: _Matrices, builder: Any, anew: Callable[[Any], Any]) -> Any:
    """The product, its second operand turned from what it is read from."""
    from tvm import relax
    from tvm.relax import op

    rows, shape = anew(product.args[0]), read_dims(product)
    if matrices.number != 1.0:
        rows = builder.emit(op.multiply(rows, relax.const(matrices.number, SUMS)))
    turned = anew(matrices.source)
    if matrices.order != tuple(range(len(matrices.order))):
        turned = builder.emit(op.permute_dims(turned, [*matrices.order]))
    *batch, terms, columns = read_dims(turned)
    if matrices.heads == 1:
        turned = builder.emit(op.reshape(turned, [*shape[:-2], terms, columns]))
        return relax.Call(product.op, [rows, turned], product.attrs)
    rows = builder.emit(op.reshape(rows, [*batch, shape[-2] * matrices.heads, terms]))
    joined = builder.emit(relax.Call(product.op, [rows, turned], product.attrs))
    return op.reshape(joined, shape)
