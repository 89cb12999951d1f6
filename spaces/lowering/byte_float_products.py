"""Products of floats of 8 bits, which a graph casts, moves and scales before it multiplies them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from spaces.ir import tvm_compat
from spaces.ir.byte_floats import SATURATING
from spaces.ir.element_types import WIDE, is_float, numpy_dtype
from spaces.lowering.relax_rewrite import rank, with_graphs
from spaces.targets.nvidia.numbers import architecture_of

_CASTING = 89
"""The first architecture for which TVM writes programs of floats of 8 bits."""
_MOVES = ("relax.permute_dims", "relax.reshape", "relax.expand_dims", "relax.squeeze")
"""Operators that leave numbers as they are."""


def cast_in_products(module: Any, target: Any) -> Any:
    """A module whose products cast floats of 8 bits by themselves, for a target that has such
    floats: fewer bytes are read, and tensor cores may multiply these.

    Factors may have been moved, and in float32 scaled: by one number, or by one for each row or
    column of the result, which is then scaled. Of ONNX's graphs, which hold the codes of such
    floats and read them by a table, factors are these codes.
    """
    if architecture_of(str(target.attrs.get("arch", ""))) < _CASTING:
        return module
    from tvm import relax
    from tvm.relax.expr_functor import PyExprMutator, mutator

    @mutator
    class Caster(PyExprMutator):  # type: ignore[misc]
        def visit_call_(self, call: Any) -> Any:
            call = super().visit_call_(call)
            if tvm_compat.operator_name(call) != "relax.matmul":
                return call
            gives, kinds = str(call.ty.dtype), {str(factor.ty.dtype) for factor in call.args}
            if kinds - {gives} and gives != WIDE:
                return call
            sought = (_find_factor(factor, self._value) for factor in call.args)
            found = [factor for factor in sought if factor is not None]
            if len(found) < len(call.args):
                return call
            scaled = [
                (i, self._move(f.scale, f.turns))
                for i, f in enumerate(found)
                if f.scale is not None
            ]
            if not all(_spreads(scale, place, call) for place, scale in scaled):
                return call
            tensors = [self._narrow(factor) for factor in found]
            product = relax.op.matmul(*tensors, out_dtype=gives)
            for _, scale in scaled:
                product = relax.op.multiply(self.builder_.emit(product), scale)
            return product

        def _value(self, expression: Any) -> Any:
            bound = self.lookup_binding(expression) if isinstance(expression, relax.Var) else None
            return expression if bound is None else bound

        def _narrow(self, factor: _Factor) -> Any:
            """A factor as floats of 8 bits, moved as it is in the graph."""
            tensor, value = factor.codes, self._value(factor.codes)
            if tvm_compat.is_constant(value):
                codes = value.value.numpy().view(numpy_dtype(factor.kind))
                tensor = relax.const(codes, factor.kind)
            elif str(tensor.ty.dtype) != factor.kind:
                from tvm import topi

                name = {"primfunc_name_hint": "numbers"}
                tensor = self.builder_.emit_te(topi.reinterpret, tensor, factor.kind, **name)
            return self._move(tensor, factor.moves)

        def _move(self, tensor: Any, moves: Sequence[Any]) -> Any:
            """A tensor moved as another was by calls, of which the last one comes first."""
            for move in reversed(moves):
                call = relax.Call(move.op, [tensor, *move.args[1:]], move.attrs)
                tensor = self.builder_.emit(call)
            return tensor

    caster = Caster(module)
    graphs = with_graphs(module, caster.visit_expr)
    made = caster.builder_.get()
    for variable, function in graphs.functions.items():
        if tvm_compat.is_relax_function(function):
            made.update_func(variable, function)
    return made


@dataclass(frozen=True, slots=True)
class _Factor:
    """What a factor of a product is made of.

    Attributes:
        codes: its floats of 8 bits, or their codes; `kind` is their type.
        moves: calls that moved them, the last one first.
        scale: what it is multiplied by; `turns` are the moves that came after that.
    """

    codes: Any
    kind: str
    moves: tuple[Any, ...]
    scale: Any
    turns: tuple[Any, ...]


def _find_factor(factor: Any, value_of: Callable[[Any], Any]) -> _Factor | None:
    """A factor that is made of floats of 8 bits; None of another.

    Args:
        value_of: gives what a variable is bound to.
    """
    moves: list[Any] = []
    scale, turns = None, tuple[Any, ...]()
    while True:
        value = value_of(factor)
        name = tvm_compat.operator_name(value)
        if name in _MOVES:
            moves.append(value)
        elif name == "relax.multiply" and scale is None and str(value.ty.dtype) == WIDE:
            scale = value.args[1]
            if not _is_one(scale):
                turns = (*moves,)
                turned = {tvm_compat.operator_name(move) for move in moves}
                if turned - {_MOVES[0]} or (turned and rank(scale) != rank(value)):
                    return None
        elif (codes := _find_codes(value, value_of)) is not None:
            return _Factor(*codes, tuple(moves), scale, turns)
        else:
            return None
        factor = value.args[0]


def _find_codes(value: Any, value_of: Callable[[Any], Any]) -> tuple[Any, str] | None:
    """Floats of 8 bits, or their codes, and their type, where a value is these as wider floats."""
    name = tvm_compat.operator_name(value)
    if name == "relax.astype":
        kind = str(value.args[0].ty.dtype)
        wide = kind in SATURATING and is_float(str(value.ty.dtype))
        return (value.args[0], kind) if wide else None
    if name != "relax.take" or not tvm_compat.is_constant(table := value_of(value.args[0])):
        return None
    places, numbers = value_of(value.args[1]), table.value.numpy()
    if tvm_compat.operator_name(places) != "relax.astype" or numbers.shape != (256,):
        return None
    codes = places.args[0]
    if str(codes.ty.dtype) != "uint8":
        return None
    every = np.arange(256, dtype=np.uint8)
    for kind in SATURATING:
        wanted = every.view(numpy_dtype(kind)).astype(numbers.dtype)
        if np.array_equal(numbers, wanted, equal_nan=True):
            return codes, kind
    return None


def _spreads(scale: Any, place: int, call: Any) -> bool:
    """Whether a product may be scaled in the place of a factor: nothing of it is summed over.

    Args:
        place: of the factor, 0 or 1.
    """
    dims, result = tvm_compat.tensor_dims(scale), tvm_compat.tensor_dims(call)
    if dims is None or result is None or len(dims) > len(result):
        return False
    if _is_one(scale):
        return True
    summed = dims[-1:] if place == 0 else dims[-2:-1]
    whole = len(dims) > 1 or place == 1
    return whole and all(tvm_compat.as_int(size) == 1 for size in summed)


def _is_one(tensor: Any) -> bool:
    """Whether a tensor has one element."""
    dims = tvm_compat.tensor_dims(tensor)
    return dims is not None and all(tvm_compat.as_int(size) == 1 for size in dims)
