"""Indices that a run brings are kept within the tensors they index.

The importers leave the check out, so an index out of range reads or writes foreign memory and may
crash the process that runs the model. Indices in range give the same as before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from spaces.ir import tvm_compat
from spaces.lowering.relax_rewrite import with_graphs

_FROM_BACK = frozenset({"relax.scatter_elements"})
"""Operators that count negative indices from the back of an axis."""


def bound_indices(module: Any) -> Any:
    """Have every operator of a graph that trusts its indices clip them to the table."""
    return _bound_others(_bound_takes(module))


def _bound_takes(module: Any) -> Any:
    from tvm.relax.dpl import is_op, rewrite_call, wildcard

    table, indices = wildcard(), wildcard()
    gather = is_op("relax.take")(table, indices)

    def clip(matched: Any, found: Any) -> Any:
        from tvm import relax

        if matched.attrs.mode != "fast":
            return matched
        axis = matched.attrs.axis
        return relax.op.take(found[table], found[indices], axis, mode="clip")

    return with_graphs(module, lambda graph: rewrite_call(gather, clip, graph))


def _of_axis(call: Any, dims: list[Any]) -> list[Any]:
    return [dims[int(call.attrs.axis) % len(dims)]] if dims else []


def _of_columns(call: Any, dims: list[Any]) -> list[Any]:
    first = int(getattr(call.attrs, "batch_dims", 0))
    width = tvm_compat.as_int((tvm_compat.tensor_dims(call.args[1]) or [None])[-1])
    return [] if width is None else dims[first : first + width]


_INDEXED: Mapping[str, Callable[[Any, list[Any]], list[Any]]] = MappingProxyType(
    {
        "relax.gather_elements": _of_axis,
        "relax.gather_nd": _of_columns,
        "relax.scatter_elements": _of_axis,
        "relax.scatter_nd": _of_columns,
    }
)
"""By operator, the sizes of the axes that its second operand indexes; none where that is not
known. Places that are known were looked at by the importer."""


def _bound_others(module: Any) -> Any:
    from tvm import relax
    from tvm.ir import IRModule
    from tvm.relax.expr_functor import PyExprMutator, mutator

    @mutator
    class Bounds(PyExprMutator):  # type: ignore[misc]
        def visit_call_(self, call: Any) -> Any:
            call = self.visit_expr_post_order(call)
            name = tvm_compat.operator_name(call)
            if name not in _INDEXED or tvm_compat.is_constant(call.args[1]):
                return call
            sizes = _INDEXED[name](call, tvm_compat.tensor_dims(call.args[0]) or [])
            if not sizes:
                return call
            table, indices, *rest = call.args
            kept = _within(self.builder_, indices, sizes, from_back=name in _FROM_BACK)
            return relax.Call(call.op, [table, kept, *rest], call.attrs)

    bounds = Bounds(module)
    for variable, function in module.functions.items():
        if any(tvm_compat.operator_name(call) in _INDEXED for call in _calls(function)):
            bounds.builder_.update_func(variable, bounds.visit_expr(function))
    result = bounds.builder_.get()
    return IRModule(result.functions, attrs=module.attrs, global_infos=module.global_infos)


def _calls(function: Any) -> list[Any]:
    from tvm import relax

    found: list[Any] = []
    if tvm_compat.is_relax_function(function):
        relax.analysis.post_order_visit(function, found.append)
    return found


def _within(builder: Any, indices: Any, sizes: list[Any], *, from_back: bool) -> Any:
    """Indices between the ends of axes; their own last axis tells several axes apart."""
    from tvm import te, tirx

    def keep(tensor: Any, *ends: Any) -> Any:
        def element(*index: Any) -> Any:
            place = tensor(*index)
            size = tirx.Cast(place.ty.dtype, ends[-1])
            for column, other in enumerate(ends[:-1]):
                size = tirx.Select(index[-1] == column, tirx.Cast(place.ty.dtype, other), size)
            least = -size if from_back else tirx.const(0, place.ty.dtype)
            return tirx.max(tirx.min(place, size - 1), least)

        return te.compute(tensor.shape, element, name="kept")

    return builder.emit_te(keep, indices, *sizes, primfunc_name_hint="places")
