"""Products in halves, of which a CPU makes floats first, in the product.

A CPU without instructions for a kind of halves multiplies in float32. Weights stay halves in memory
and are widened by what reads them (see `spaces.lowering.weights.unpacking`), which halves the bytes
that a product with few rows waits for; so are rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spaces.ir import tvm_compat
from spaces.ir.element_types import HALVES, WIDE
from spaces.lowering.relax_rewrite import FUSES, FUSES_NOTHING, SUMMING
from spaces.lowering.weights.constants import GRAPH, UNPACKS, unpacks
from spaces.lowering.weights.grouped_products import emit_grouped_product, is_grouped
from spaces.targets.cpu import multiplies_bf16

WIDENS = "tuner.widens"
"""Attribute of a program that makes float32 of halves that a run computes."""


def widen_products(module: Any) -> Any:
    """A module in which products of halves that are summed in float32 are products of float32.

    Products of bfloat16 stay as they are where the CPU of the target at hand adds up two at once
    (AVX512-BF16), but for some convolutions.
    """
    from tvm import relax
    from tvm.relax.analysis import get_var2val
    from tvm.relax.expr_functor import PyExprMutator, mutator
    from tvm.target import Target

    def is_narrow(call: Any) -> bool:
        return _is_narrow(call) or _is_narrow_grouped(module, call)

    graph = module.get_global_var(GRAPH)
    if not any(is_narrow(value) for value in get_var2val(module[graph]).values()):
        return module

    in_pairs = multiplies_bf16(Target.current())

    @mutator
    class Widener(PyExprMutator):  # type: ignore[misc]
        def visit_call_(self, call: Any) -> Any:
            call = super().visit_call_(call)
            if not is_narrow(call) or (in_pairs and _is_in_pairs(call)):
                return call
            if tvm_compat.is_call_tir(call):
                *factors, groups = call.args[1].fields[:3]  # behind them is a size that they have
                kind = str(call.ty_args[0].dtype)
                rows, weights = self._widen(factors)
                return emit_grouped_product(self.builder_, rows, weights, groups, kind)
            return relax.Call(call.op, self._widen(call.args), call.attrs, call.ty_args)

        def _widen(self, operands: Sequence[Any]) -> list[Any]:
            return [_widen(self.builder_, o, self._attribute(o)) for o in operands]

        def _attribute(self, operand: Any) -> str:
            """That of the program that widens an operand: a weight stays narrow in memory."""
            if tvm_compat.is_constant(operand):
                return UNPACKS
            value = self.lookup_binding(operand)
            return UNPACKS if value is not None and unpacks(module, value) else WIDENS

    widener = Widener(module)
    widener.builder_.update_func(graph, widener.visit_expr(module[graph]))
    return widener.builder_.get()


def _is_narrow(call: Any) -> bool:
    """Whether an expression is a product of halves that is summed in float32."""
    if tvm_compat.operator_name(call) not in SUMMING:
        return False
    types = [str(operand.ty.dtype) for operand in call.args]
    return str(call.ty.dtype) == WIDE and all(kind in HALVES for kind in types)


def _is_narrow_grouped(module: Any, call: Any) -> bool:
    """Whether an expression is a product of groups of halves."""
    return is_grouped(module, call) and str(call.args[1].fields[0].ty.dtype) in HALVES


def _is_in_pairs(call: Any) -> bool:
    """Whether a call is a product of bfloat16 that kernels take two terms at a time of: not a
    convolution in groups, or one of open sizes and an odd number of channels."""
    if not _is_narrow(call):
        return False
    kinds = {str(operand.ty.dtype) for operand in call.args}
    if kinds != {"bfloat16"} or int(getattr(call.attrs, "groups", 1)) != 1:
        return False
    layout = str(getattr(call.attrs, "data_layout", ""))
    sizes = [tvm_compat.as_int(size) for size in call.args[0].ty.shape.values]
    return not layout or None not in sizes or (sizes[layout.index("C")] or 1) % 2 == 0


def _widen(builder: Any, operand: Any, kind: str) -> Any:
    """An operand in float32, by a program of its own that a product can take in.

    Args:
        kind: the program's attribute.
    """
    from tvm import te

    def widen(narrow: Any) -> Any:
        return te.compute(narrow.shape, lambda *place: narrow(*place).astype(WIDE), name="widened")

    said = {"primfunc_name_hint": "widened", "primfunc_attrs": {kind: True}}
    return builder.emit_te(widen, operand, **said)


def keep_apart(module: Any) -> Any:
    """A module whose programs that widen operands are fused with nothing by TVM's FuseOps.

    Fused with what rounds to bfloat16, a program would not round: TVM computes in float32 inside of
    a program, and leaves out a conversion there and back.
    """
    from tvm.ir import IRModule

    def mark(function: Any) -> Any:
        apart = tvm_compat.attribute(function, WIDENS) is not None
        return function.with_attr(FUSES, FUSES_NOTHING) if apart else function

    functions = {variable: mark(f) for variable, f in module.functions.items()}
    return IRModule(functions, attrs=module.attrs, global_infos=module.global_infos)
