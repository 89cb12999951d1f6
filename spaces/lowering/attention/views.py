"""Tensors of a graph as expressions of their indices: what is cheap is computed where it is read.

Views (reshapes, permutations, broadcasts) change indices alone. Elementwise operators, ranges and
constants become expressions. All else is read from memory.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from spaces.ir import rewrite, tvm_compat
from spaces.ir.element_types import is_float
from spaces.ir.guard import Unsuitable
from spaces.ir.nan_kept import pick_larger, pick_smaller
from spaces.ir.symbolic import variables
from spaces.lowering.attention.reshapes import is_one, reshape_index

Index = list[Any]

Operator = Callable[..., Any]
_ZERO = 0
"""The index of the only element along a dimension."""


def _tir(name: str) -> Operator:
    """A node of TIR, which is not imported before it is needed."""

    def write(*operands: Any) -> Any:
        from tvm import tirx

        return getattr(tirx, name)(*operands)

    return write


_ELEMENTWISE: dict[str, Operator] = {
    "relax.add": operator.add,
    "relax.subtract": operator.sub,
    "relax.multiply": operator.mul,
    "relax.negative": operator.neg,
    "relax.divide": _tir("Div"),
    "relax.tanh": _tir("tanh"),
    "relax.maximum": pick_larger,
    "relax.minimum": pick_smaller,
    "relax.equal": _tir("EQ"),
    "relax.not_equal": _tir("NE"),
    "relax.less": _tir("LT"),
    "relax.less_equal": _tir("LE"),
    "relax.greater": _tir("GT"),
    "relax.greater_equal": _tir("GE"),
    "relax.logical_and": _tir("And"),
    "relax.logical_or": _tir("Or"),
    "relax.logical_not": _tir("Not"),
    "relax.where": _tir("Select"),
}
_COMPARISONS = {"relax.less", "relax.less_equal", "relax.greater", "relax.greater_equal"}
RESHAPES = {"relax.reshape", "relax.expand_dims", "relax.squeeze", "relax.flatten"}
"""Views that keep the order of the elements in memory."""
VIEWS = {*RESHAPES, "relax.permute_dims", "relax.broadcast_to"}
"""What changes indices alone."""


class Views:
    """The values of a graph's variables, element by element.

    Args:
        values: what each variable of the graph is bound to.
        leaf: gives the element of a tensor that is read from memory, at an index.
        sizes: variables that are known without memory.
    """

    def __init__(
        self,
        values: Mapping[Any, Any],
        leaf: Callable[[Any, Index], Any],
        sizes: Sequence[Any],
    ) -> None:
        self._values, self._leaf, self._sizes = values, leaf, sizes

    def element(self, tensor: Any, index: Index) -> Any:
        """The element of a tensor at an index, as an expression."""
        if (number := read_number(tensor)) is not None:
            return number
        call = self._values.get(tensor)
        if call is None:
            return self._leaf(tensor, index)
        if (viewed := look_through(call, index)) is not None:
            return self.element(*viewed)
        computed = self._compute(call, index)
        return self._leaf(tensor, index) if computed is None else computed

    def _compute(self, call: Any, index: Index) -> Any:
        """What an operator makes of elements; None of one that is not computed where it is read."""
        from tvm import sym, tirx

        name, kind = tvm_compat.operator_name(call), str(call.ty.dtype)
        if name == "relax.arange":
            start, _, step = call.args
            known = self._is_known(start) and self._is_known(step)
            return rewrite.cast(kind, start + index[0] * step) if known else None
        if name == "relax.shape_to_tensor":
            return self._read_size(call.args[0], index[0])
        if name in ("relax.full", "relax.full_like"):
            return rewrite.cast(kind, self.element(call.args[1], []))
        if name in ("relax.triu", "relax.tril"):
            above = index[-1] - index[-2] - call.args[1]
            inside = above >= 0 if name == "relax.triu" else above <= 0
            return tirx.Select(inside, self.element(call.args[0], index), tirx.const(0, kind))
        if name == "relax.astype":
            return rewrite.cast(kind, self.element(call.args[0], index))
        if name not in _ELEMENTWISE:
            return None
        if name == "relax.logical_not" and self._compares_floats(call.args[0]):
            return None  # TVM takes it for the opposite comparison, which it is not of no numbers
        operands = [self.element(tensor, shrink(tensor, call, index)) for tensor in call.args]
        found = _ELEMENTWISE[name](*operands)
        whole = all(str(tensor.ty.dtype).startswith("int") for tensor in call.args)
        # Of floats TVM would forget that they may be no numbers.
        return sym.Analyzer().simplify(found) if whole else found

    def _read_size(self, shape: Any, index: Any) -> Any:
        """A size of a shape; None where it is not known which, or how large."""
        from tvm import relax

        place = tvm_compat.as_int(index)
        shape = self._values.get(shape, shape)
        if place is None or not isinstance(shape, relax.ShapeExpr):
            return None
        size = shape.values[place]
        return size if self._is_known(size) else None

    def _is_known(self, size: Any) -> bool:
        return all(rewrite.is_among(variable, self._sizes) for variable in variables(size))

    def _compares_floats(self, condition: Any) -> bool:
        """Whether a condition is one of numbers of which some may be none."""
        call = self._values.get(condition)
        if call is None or str(call.ty.dtype) != "bool":
            return False
        if tvm_compat.operator_name(call) in _COMPARISONS:
            return is_float(str(call.args[0].ty.dtype))
        return any(self._compares_floats(operand) for operand in call.args)


def read_number(tensor: Any) -> Any:
    """The number that all elements of a constant are; None where they are not, or unknown."""
    from tvm import tirx

    if not tvm_compat.is_constant(tensor):
        return None
    array = tensor.value.numpy()
    if not array.size or np.any(array != array.flat[0]):
        return None
    return tirx.const(array.flat[0].item(), str(tensor.ty.dtype))


def look_through(call: Any, index: Index) -> tuple[Any, Index] | None:
    """The tensor that a call is a view of and the index there; None where it is no view."""
    name = tvm_compat.operator_name(call)
    if (order := tvm_compat.read_permutation(call)) is not None:
        by_axis = dict(zip(order, index, strict=True))
        return call.args[0], [by_axis[axis] for axis in range(len(index))]
    if name == "relax.broadcast_to":
        return call.args[0], shrink(call.args[0], call, index)
    if name in RESHAPES:
        shape, source = tvm_compat.tensor_dims(call), tvm_compat.tensor_dims(call.args[0])
        there = None if shape is None or source is None else reshape_index(shape, source, index)
        return None if there is None else (call.args[0], there)
    return None


def look_forward(call: Any, index: Index) -> Index | None:
    """The index in a view of an element of what it views; None where a call is no such view."""
    from tvm_ffi import structural_equal

    if (order := tvm_compat.read_permutation(call)) is not None:
        return [index[axis] for axis in order]
    name = tvm_compat.operator_name(call)
    if name in RESHAPES:
        shape, source = tvm_compat.tensor_dims(call), tvm_compat.tensor_dims(call.args[0])
        return None if shape is None or source is None else reshape_index(source, shape, index)
    same = name == "relax.broadcast_to" and structural_equal(
        read_dims(call.args[0]), read_dims(call)
    )
    return index if same else None


def shrink(tensor: Any, to: Any, index: Index) -> Index:
    """The index of a tensor that is broadcast to the shape of another, for an index of that."""
    return _shrink(read_dims(tensor), read_dims(to), index)


def broadcast(factor: Any, product: Any, index: Index) -> Index:
    """The index of a factor whose batch is broadcast to that of a product of matrices.

    Args:
        index: the place in the product's batch, and the factor's own last two.
    """
    own, whole = read_dims(factor), read_dims(product)
    return [*_shrink(own[:-2], whole[:-2], index[:-2]), *index[-2:]]


def _shrink(dims: Sequence[Any], shape: Sequence[Any], index: Index) -> Index:
    last = range(len(shape) - len(dims), len(shape))
    return [
        _ZERO if is_one(dim) and not is_one(shape[n]) else index[n]
        for dim, n in zip(dims, last, strict=True)
    ]


def read_dims(tensor: Any) -> list[Any]:
    """The dimensions of a tensor.

    Raises:
        Unsuitable: its shape is not known.
    """
    dims = tvm_compat.tensor_dims(tensor)
    if dims is None:
        raise Unsuitable("a shape that is not known")
    return dims
