"""Sorting along the last axis, since TVM sorts along another one partly on the host.

TVM transposes the operand of `sort`, `argsort` and `topk` on a GPU in loops that it binds to no
threads. They run on the host, which reads and writes addresses of the device: the process ends.
Transposed by operators of the graph, operand and result are kernels of their own.
"""

from __future__ import annotations

from typing import Any

from spaces.ir import tvm_compat
from spaces.lowering.relax_rewrite import with_graphs

_SORTS = ("relax.sort", "relax.argsort", "relax.topk")


def sort_last_axes(module: Any) -> Any:
    """A module whose graphs sort along last axes alone."""
    from tvm import relax
    from tvm.relax.expr_functor import PyExprMutator, mutator

    @mutator
    class Mover(PyExprMutator):  # type: ignore[misc]
        def visit_call_(self, call: Any) -> Any:
            call = super().visit_call_(call)
            if tvm_compat.operator_name(call) not in _SORTS:
                return call
            rank, axis = int(call.args[0].ty.ndim), int(call.attrs.axis)
            if rank < 2 or axis in (-1, rank - 1):
                return call
            there, back = _orders(rank, axis % rank)
            moved = self.builder_.emit(relax.op.permute_dims(call.args[0], there))
            found = self.builder_.emit(_sort_last(call, moved))
            if not isinstance(found.ty, relax.TupleType):
                return relax.op.permute_dims(found, back)
            fields = [relax.TupleGetItem(found, i) for i in range(len(found.ty.fields))]
            return relax.Tuple([self.builder_.emit(relax.op.permute_dims(f, back)) for f in fields])

    return with_graphs(module, Mover(module).visit_expr)


def _orders(rank: int, axis: int) -> tuple[list[int], list[int]]:
    """Orders of axes that make one the last, and that take it back."""
    there = [i for i in range(rank) if i != axis] + [axis]
    return there, [there.index(i) for i in range(rank)]


def _sort_last(call: Any, operand: Any) -> Any:
    """The same call on an operand whose last axis is the one to sort along."""
    from tvm import relax

    attrs = call.attrs
    match tvm_compat.operator_name(call):
        case "relax.sort":
            return relax.op.sort(operand, -1, bool(attrs.descending))
        case "relax.argsort":
            return relax.op.argsort(operand, -1, bool(attrs.descending), str(attrs.dtype))
        case _:
            return relax.op.topk(
                operand,
                int(attrs.k),
                -1,
                str(attrs.ret_type),
                bool(attrs.largest),
                str(attrs.dtype),
            )
