"""Sums of what stands for integers, as sums of the result's steps: as onnxruntime adds bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from spaces.ir import tvm_compat
from spaces.ir.nan_kept import read_broadcast
from spaces.lowering.linear.steps import cut_and_round, is_all, read_steps, round_steps
from spaces.lowering.relax_rewrite import constant, straight_bindings, variables
from spaces.lowering.weights.constants import GRAPH

_ROUNDS = "relax.quantize"
_BYTES = ("int8", "uint8")
_REAL = "float32"


@dataclass(frozen=True, slots=True)
class _Term:
    """A term of a sum.

    Attributes:
        data: integers, their number of steps before they are rounded, or, without a scale, a
            constant in steps of the result.
        dtype: of the integers.
        scale: steps of the result that one of the integer's is.
        zero: what stands for zero.
        rounded: the variable of the integers, where `data` is what is rounded.
    """

    data: Any
    dtype: str = ""
    scale: Any = None
    zero: Any = None
    rounded: Any = None

    @property
    def operands(self) -> list[Any]:
        """Without a zero point that is 0."""
        parts = [self.data, self.scale, None if is_all(self.zero, 0) else self.zero]
        return [part for part in parts if part is not None]

    def read(self, place: Sequence[Any], data: Any, scale: Any = None, zero: Any = None) -> Any:
        """An element in steps of the result.

        Args:
            data, scale, zero: the operands, as tensors of a program.
        """
        if scale is None:
            return read_broadcast(data, place)
        none = None if zero is None else zero[0]
        if self.rounded is None:
            return read_steps(data[place], scale[0], none)
        return cut_and_round(data[place], none, self.dtype) * scale[0]


@dataclass(frozen=True, slots=True)
class _Sum:
    """A sum that becomes integers of a type.

    Attributes:
        zero: what stands for zero in the result.
    """

    terms: tuple[_Term, _Term]
    zero: Any
    dtype: str

    def emit(self, builder: Any, operands: Sequence[Sequence[Any]]) -> Any:
        """A call of the program.

        Args:
            operands: those of each term.
        """
        from tvm import te

        first = len(operands[0])
        zeros = [] if is_all(self.zero, 0) else [self.zero]

        def sum_of_steps(*tensors: Any) -> Any:
            given = tensors[: len(tensors) - len(zeros)]
            parts = given[:first], given[first:]
            none = tensors[-1][0] if zeros else None

            def number(*place: Any) -> Any:
                one, other = (
                    term.read(place, *part) for term, part in zip(self.terms, parts, strict=True)
                )
                return round_steps(one + other, none, self.dtype)

            like = next(p[0] for p, t in zip(parts, self.terms, strict=True) if t.scale is not None)
            return te.compute(like.shape, number, name="summed")

        given = [operand for part in operands for operand in part] + zeros
        return builder.call_te(sum_of_steps, *given, primfunc_name_hint="sum_of_steps")


def add_in_steps(module: Any) -> Any:
    """Turn sums of what stands for bytes that become bytes again into programs that add steps of
    the result, without a division. One that is next to a tie may be one step off.

    A term that is rounded to bytes for the sum alone is rounded there, and never becomes bytes.
    Only the first of two: TVM fuses the sum with one of two products, and the other's result lies
    in memory as bytes.
    """
    from tvm.relax.expr_functor import PyExprMutator, mutator

    sums = _find_sums(module[GRAPH])
    if not sums:
        return module

    @mutator
    class Adder(PyExprMutator):  # type: ignore[misc]
        def visit_call_(self, call: Any) -> Any:
            found = sums.get(call.args[0]) if tvm_compat.operator_name(call) == _ROUNDS else None
            if found is None:
                return super().visit_call_(call)
            operands = [[self.visit_expr(o) for o in term.operands] for term in found.terms]
            return found.emit(self.builder_, operands)

    adder = Adder(module)
    adder.builder_.update_func(module.get_global_var(GRAPH), adder.visit_expr(module[GRAPH]))
    return adder.builder_.get()


def _find_sums(graph: Any) -> dict[Any, _Sum]:
    """By the variable of what is rounded."""
    bindings = straight_bindings(graph) or []
    values = {binding.var: binding.value for binding in bindings}
    read = Counter(v for binding in bindings for v in variables(binding.value))
    read.update(variables(graph.body.body) if bindings else [])
    found: dict[Any, _Sum] = {}
    for call in values.values():
        if tvm_compat.operator_name(call) == _ROUNDS and read[call.args[0]] == 1:
            made = _read_sum(call, values, read)
            if made is not None:
                found[call.args[0]] = made
    return found


def _read_sum(call: Any, values: Mapping[Any, Any], read: Mapping[Any, int]) -> _Sum | None:
    total, step, zero = call.args
    added, dtype = values.get(total), str(call.attrs.out_dtype)
    numbers = _numbers(step, zero)
    if added is None or tvm_compat.operator_name(added) != "relax.add":
        return None
    if numbers is None or dtype not in _BYTES:
        return None
    found = [_read_term(operand, added, numbers[0], values, read) for operand in added.args]
    terms = [term for term in found if term is not None]
    if len(terms) < 2 or all(term.scale is None for term in terms):
        return None
    early = [term for term in terms if term.rounded is not None]
    if len(early) == 2:
        order = [*values]
        late = max(early, key=lambda term: order.index(term.rounded))
        terms[terms.index(late)] = replace(late, data=late.rounded, rounded=None)
    return _Sum((terms[0], terms[1]), constant(numbers[1]), dtype)


def _read_term(
    operand: Any, added: Any, step: Any, values: Mapping[Any, Any], read: Mapping[Any, int]
) -> _Term | None:
    """
    Args:
        added: the sum.
        step: the scale of the result.
    """
    from tvm_ffi import structural_equal

    if tvm_compat.is_constant(operand):
        array = operand.value.numpy()
        return _Term(constant(array / step)) if str(array.dtype) == _REAL else None
    call = values.get(operand)
    if call is None or tvm_compat.operator_name(call) != "relax.dequantize":
        return None
    data, scale, zero = call.args
    if not structural_equal(data.ty.shape, added.ty.shape):
        return None
    dtype, numbers = str(data.ty.dtype), _numbers(scale, zero)
    if numbers is None or dtype not in _BYTES or str(call.attrs.out_dtype) != _REAL:
        return None
    term = _Term(data, dtype, constant(numbers[0] / step), constant(numbers[1]))
    made = values.get(data) if read[operand] == read[data] == 1 else None
    if made is None or tvm_compat.operator_name(made) != _ROUNDS:
        return term
    steps, one, same = made.args
    if not is_all(one, 1) or not is_all(same, numbers[1].item()):
        return term
    return replace(term, data=steps, rounded=data)


def _numbers(scale: Any, zero: Any) -> tuple[Any, Any] | None:
    """A scale and a zero point as arrays of one number; None of others."""
    if not (tvm_compat.is_constant(scale) and tvm_compat.is_constant(zero)):
        return None
    arrays = scale.value.numpy().reshape(-1), zero.value.numpy().reshape(-1)
    return arrays if len(arrays[0]) == len(arrays[1]) == 1 else None
