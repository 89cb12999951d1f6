"""The products of a graph, and graphs with these changed.

A product is a matrix product or a convolution of floats. Its place is its number among all of the
module, in the order of the graph: that of one module does not change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from spaces.ir import tvm_compat
from spaces.ir.element_types import HALVES, WIDE
from spaces.lowering.relax_rewrite import SUMMING

Array = npt.NDArray[Any]
Change = Callable[[Any, Any, int], Any]
"""Gives an expression for a product: called with a builder that emits, the product, and its place;
None leaves it as it is."""
_FLOATS = (WIDE, *HALVES)


def is_product(expression: Any) -> bool:
    """Whether an expression is a product of floats of at most 32 bits."""
    return tvm_compat.operator_name(expression) in SUMMING and all(
        tvm_compat.param_dtype(operand) in _FLOATS for operand in expression.args
    )


def is_matrix_product(product: Any) -> bool:
    """Whether it is no convolution."""
    return tvm_compat.operator_name(product) == "relax.matmul"


def with_products(module: Any, change: Change) -> Any:
    """A module with the products of its graphs changed."""
    from tvm.ir import IRModule
    from tvm.relax.expr_functor import PyExprMutator, mutator

    seen = 0

    @mutator
    class Changer(PyExprMutator):  # type: ignore[misc]
        def visit_call_(self, call: Any) -> Any:
            nonlocal seen
            call = self.visit_expr_post_order(call)
            if not is_product(call):
                return call
            seen += 1
            made = change(self.builder_, call, seen - 1)
            return call if made is None else made

    changer = Changer(module)
    functions = sorted(module.functions.items(), key=lambda pair: str(pair[0].name_hint))
    for variable, function in functions:
        if tvm_compat.is_relax_function(function):
            changer.builder_.update_func(variable, changer.visit_expr(function))
    result = changer.builder_.get()
    return IRModule(result.functions, attrs=module.attrs, global_infos=module.global_infos)


def weight_of(product: Any) -> Array | None:
    """The second operand of a product, in float32, where it is a constant of finite numbers."""
    weight = product.args[1]
    if not tvm_compat.is_constant(weight):
        return None
    array: Array = weight.value.numpy().astype(WIDE)
    return array if np.isfinite(array).all() else None
