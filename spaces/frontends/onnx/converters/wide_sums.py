"""Products and convolutions of halves whose sums are accumulated in float32, whoever wrote them.

TVM's converters of convolutions add halves up as halves: 4608 ones make 2048. onnxruntime adds up
in float32 and rounds the result.
"""

from __future__ import annotations

from typing import Any

from spaces.ir import tvm_compat
from spaces.ir.element_types import HALVES, WIDE
from spaces.lowering.relax_rewrite import SUMMING, sum_in


def accumulate_wide(module: Any) -> Any:
    """A module whose graphs sum products of halves in float32, and round the sums."""
    from tvm import relax
    from tvm.ir import IRModule
    from tvm.relax.expr_functor import PyExprMutator, mutator

    @mutator
    class Widener(PyExprMutator):  # type: ignore[misc]
        def visit_call_(self, call: Any) -> Any:
            call = self.visit_expr_post_order(call)
            if not _sums_narrow(call):
                return call
            wide = self.builder_.emit(sum_in(call, call.args, WIDE))
            return relax.op.astype(wide, tvm_compat.param_dtype(call))

    widener = Widener(module)
    for variable, function in module.functions.items():
        if tvm_compat.is_relax_function(function) and _holds_narrow_sum(function):
            widener.builder_.update_func(variable, widener.visit_expr(function))
    result = widener.builder_.get()
    return IRModule(result.functions, attrs=module.attrs, global_infos=module.global_infos)


def _sums_narrow(call: Any) -> bool:
    return (
        tvm_compat.operator_name(call) in SUMMING
        and tvm_compat.param_dtype(call.args[0]) in HALVES
        and call.attrs.out_dtype in (None, "", *HALVES)
    )


def _holds_narrow_sum(function: Any) -> bool:
    from tvm.relax.analysis import post_order_visit

    found: list[bool] = []
    post_order_visit(function, lambda node: found.append(_sums_narrow(node)))
    return any(found)
