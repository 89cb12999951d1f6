"""Attention in a graph: products, a softmax over them, and products with its weights."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spaces.ir import rewrite, tvm_compat
from spaces.ir.element_types import HALVES, is_float
from spaces.ir.guard import Unsuitable
from spaces.lowering.attention.description import SUMS, Attention, Axis, Load
from spaces.lowering.attention.views import (
    VIEWS,
    Index,
    Views,
    broadcast,
    look_forward,
    look_through,
    read_dims,
    read_number,
    shrink,
)
from spaces.lowering.plain_shapes import find_told

WIDEST = 256
"""Elements of a query or a value, at most."""
_MATMUL, _SOFTMAX, _CAST = "relax.matmul", "relax.nn.softmax", "relax.astype"


@dataclass(frozen=True, slots=True)
class Found:
    """An attention in a graph.

    Attributes:
        tensors: the graph's, that are read; `parameters` stand for them, and the last one for the
            result.
        result: the variable that is bound to the attention from now on.
        softmax: the variable that it needs no more.
    """

    attention: Attention
    tensors: tuple[Any, ...]
    parameters: tuple[Any, ...]
    result: Any
    softmax: Any


class Reader:
    """Reads one attention, from its last product on.

    Args:
        values: what each variable of the graph is bound to; `users` the variables that read it.
        kinds: types of queries, keys and values.
    """

    def __init__(
        self,
        values: Mapping[Any, Any],
        users: Mapping[Any, Sequence[Any]],
        kinds: Collection[str],
    ) -> None:
        self._values, self._users, self._kinds = values, users, kinds
        self._parameters: dict[Any, Any] = {}
        self._product: Any = None
        self._scored: tuple[Any, Index] | None = None

    def read(self, last: Any) -> Found:
        """The attention whose last product is bound to a variable.

        Raises:
            Unsuitable: it is another kind of product.
        """
        from tvm import tirx

        call = self._values[last]
        _refuse_vectors(call)
        steps, softmax = self._find_softmax(call.args[0])
        outer, rows, keys = _name_axes(read_dims(softmax))
        columns = _axis("e", read_dims(call)[-1])
        every = [axis.var for axis in (*outer, rows, keys)]
        (*before, row, _), is_safe = self._read_weights(steps, self._values[softmax], every)
        if not _is_same_batch(call) or _use(before, rows, keys):
            raise Unsuitable("weights of several products, or values of each row")
        scores = self._read_scores(softmax, every)
        width, query, key, by = self._read_first(rows, keys)
        value, by_value = self._read_factor(call.args[1], call, [*before, keys.var, columns.var])
        self._check_loads((query, width), (key, width), (value, columns))
        score = rewrite.substitute(scores, [(self._product, _times(self._product, by))])
        total = tirx.Var("total", str(call.ty.dtype))
        found = [*before, row, columns.var]
        result, stored, index = self._read_result(last, _times(total, by_value), found)
        attention = Attention(
            *(outer, rows, keys, width, columns, query, key, value),
            *(self._product, rewrite.cast(SUMS, score), is_safe, total, stored),
            Load(self._parameter(None, result), tuple(index)),
        )
        tensors = tuple(tensor for tensor in self._parameters if tensor is not None)
        return Found(attention, tensors, tuple(self._parameters.values()), result, softmax)

    def _read_scores(self, softmax: Any, index: Index) -> Any:
        """What a softmax takes, in terms of the product that it is made of."""
        views = Views(self._values, self._read_leaf, find_told(read_dims(softmax)))
        scores = views.element(self._values[softmax].args[0], index)
        if self._scored is None or str(scores.ty.dtype) not in (*HALVES, SUMS):
            raise Unsuitable("scores are no products, or of another type")
        return scores

    def _read_first(self, rows: Axis, keys: Axis) -> tuple[Axis, Load, Load, float]:
        """Of the first product: what it sums over, queries, keys, and the number that these are
        multiplied by."""
        assert self._scored is not None, "it is read with the scores"
        product, place = self._scored
        _refuse_vectors(product)
        _check_scored(place, rows, keys)
        *ahead, row, _ = place
        width = _axis("d", read_dims(product.args[0])[-1])
        q, k = product.args
        query, by_query = self._read_factor(q, product, [*ahead, row, width.var])
        key, by_key = self._read_factor(k, product, [*ahead, width.var, keys.var])
        return width, query, key, by_query * by_key

    def _check_loads(self, *loads: tuple[Load, Axis]) -> None:
        """Refuse other types, widths that are not known or too large, and elements apart."""
        kinds = {str(load.tensor.dtype) for load, _ in loads}
        if len(kinds) != 1 or not kinds <= {*self._kinds}:
            raise Unsuitable("queries, keys and values of other types")
        for load, axis in loads:
            size = tvm_compat.as_int(axis.extent)
            if size is None or not 0 < size <= WIDEST:
                raise Unsuitable("heads that are too wide, or of a width that is not known")
            _check_dense(load, axis)

    def _find_softmax(self, tensor: Any) -> tuple[list[Any], Any]:
        """The variables from what a tensor is the softmax of on, and the first of them apart."""
        found = list[Any]()
        while True:
            call: Any = self._values.get(tensor)
            name = tvm_compat.operator_name(call)
            if name == _SOFTMAX:
                return found[::-1], tensor
            found.append(tensor)
            if name == "relax.where":
                tensor = call.args[2]
            elif name in (*VIEWS, _CAST):
                tensor = call.args[0]
            else:
                raise Unsuitable("weights are no softmax")

    def _read_weights(self, steps: Sequence[Any], softmax: Any, index: Index) -> tuple[Index, bool]:
        """The index of weights for one of their softmax, and whether this is safe."""
        place, is_safe = index, False
        if int(softmax.attrs.axis) not in (-1, len(index) - 1):
            raise Unsuitable("a softmax over another axis")
        for call in (self._values[step] for step in steps):
            name = tvm_compat.operator_name(call)
            if (there := look_forward(call, place)) is not None:
                place = there
            elif name == "relax.where" and not is_safe and self._is_zero(call.args[1]):
                if not self._is_guard(call, place, softmax, index):
                    raise Unsuitable("weights that are chosen")
                is_safe = True
            elif name != _CAST or not is_float(str(call.ty.dtype)):
                raise Unsuitable("weights are no softmax")
        if not place[-1].same_as(index[-1]):
            raise Unsuitable("a softmax over another axis")
        return place, is_safe

    def _read_leaf(self, tensor: Any, index: Index) -> Any:
        """An element that scores are made of: a product, or one read from memory."""
        from tvm import tirx
        from tvm_ffi import structural_equal

        call: Any = self._values.get(tensor)
        if tvm_compat.operator_name(call) == _MATMUL and self._scored is None:
            self._scored = (call, index)
            self._product = tirx.Var("product", str(call.ty.dtype))
        if self._scored is not None and call is not None and call.same_as(self._scored[0]):
            if not structural_equal(index, self._scored[1]):
                raise Unsuitable("a score of several products")
            return self._product
        return self._parameter(tensor, tensor)[tuple(index)]

    def _read_factor(self, tensor: Any, product: Any, index: Index) -> tuple[Load, float]:
        """What a factor of a product is read from, and the number that it is multiplied by."""
        index, number = broadcast(tensor, product, index), 1.0
        while (call := self._values.get(tensor)) is not None:
            name = tvm_compat.operator_name(call)
            if (viewed := look_through(call, index)) is not None:
                tensor, index = viewed
            elif name == _CAST and str(call.ty.dtype) == SUMS:
                tensor = call.args[0]
            elif name in ("relax.multiply", "relax.divide") and str(call.ty.dtype) == SUMS:
                by = read_number(call.args[1])
                if by is None or by.value == 0 or not math.isfinite(by.value):
                    break
                number = number * by.value if name == "relax.multiply" else number / by.value
                tensor, index = call.args[0], shrink(call.args[0], call, index)
            else:
                break
        if number != 1.0 and str(product.ty.dtype) != SUMS:
            raise Unsuitable("factors that are scaled before they are summed in halves")
        return Load(self._parameter(tensor, tensor), tuple(index)), number

    def _read_result(self, last: Any, value: Any, index: Index) -> tuple[Any, Any, Index]:
        """The variable of the last cast or view after the last product, what is stored for it, and
        where."""
        from tvm import tirx

        while len(users := self._users.get(last, ())) == 1 and users[0] is not None:
            call = self._values[users[0]]
            if tvm_compat.operator_name(call) == _CAST:
                value = tirx.Cast(str(call.ty.dtype), value)
            elif (there := look_forward(call, index)) is not None:
                index = there
            else:
                break
            last = users[0]
        return last, value, index

    def _parameter(self, key: Any, tensor: Any) -> Any:
        """What stands for a tensor of the graph.

        Raises:
            Unsuitable: its shape is not known.
        """
        from tvm import tirx

        if key not in self._parameters:
            dims, kind = read_dims(tensor), str(tensor.ty.dtype)
            name = f"p{len(self._parameters)}"
            self._parameters[key] = tirx.decl_buffer(dims, kind, name)
        return self._parameters[key]

    def _is_zero(self, tensor: Any) -> bool:
        """Whether a tensor is full of zeros."""
        while (call := self._values.get(tensor)) is not None:
            name = tvm_compat.operator_name(call)
            if name not in (_CAST, "relax.full", "relax.full_like", "relax.broadcast_to"):
                return False
            tensor = call.args[1 if name.startswith("relax.full") else 0]
        number = read_number(tensor)
        return number is not None and number.value == 0

    def _is_guard(self, choice: Any, place: Index, softmax: Any, index: Index) -> bool:
        """Whether a choice is of zeros where all of a row's scores are minus infinity: where not
        the largest is of those that are not equal to it.

        Args:
            place: the index of the choice; `index` that of the softmax.
        """
        from tvm_ffi import structural_equal

        condition, _, weights = choice.args
        within = shrink(weights, choice, place)
        ranks = {len(read_dims(tensor)) for tensor in (choice, weights, condition)}
        if len(ranks) != 1 or not all(structural_equal(at, index) for at in (within, place)):
            return False
        names = []
        while (call := self._values.get(condition)) is not None:
            name = tvm_compat.operator_name(call)
            if name not in (_CAST, "relax.logical_not", "relax.max", "relax.equal"):
                return False
            if name != _CAST:
                names.append(name.removeprefix("relax."))
            if name == "relax.max" and not _is_over_keys(call):
                return False
            if name == "relax.equal":
                lowest = read_number(call.args[1])
                is_lowest = lowest is not None and lowest.value == -math.inf
                expected = ["logical_not", "max", "logical_not", "equal"]
                return is_lowest and names == expected and call.args[0].same_as(softmax.args[0])
            condition = call.args[0]
        return False


def _is_over_keys(call: Any) -> bool:
    """Whether a maximum is that of each row, which stays a dimension of one."""
    last = len(read_dims(call)) - 1
    axes = [int(axis) for axis in call.attrs.axis or ()]
    return bool(call.attrs.keepdims) and axes in ([-1], [last])


def _is_same_batch(product: Any) -> bool:
    """Whether a product has its first factor's batch."""
    from tvm_ffi import structural_equal

    own, whole = read_dims(product.args[0]), read_dims(product)
    return len(own) == len(whole) and bool(structural_equal(own[:-2], whole[:-2]))


def _name_axes(dims: Sequence[Any]) -> tuple[tuple[Axis, ...], Axis, Axis]:
    """The axes of a softmax: those of the batch, rows, and keys."""
    if len(dims) < 3:
        raise Unsuitable("a product of two matrices")
    names = (*(f"z{n}" for n in range(len(dims) - 2)), "m", "n")
    *outer, rows, keys = (_axis(name, dim) for name, dim in zip(names, dims, strict=True))
    return tuple(outer), rows, keys


def _axis(name: str, extent: Any) -> Axis:
    from tvm import tirx

    return Axis(tirx.Var(name, "int64"), extent)


def _refuse_vectors(product: Any) -> None:
    """Refuse a product with a vector."""
    if any(len(read_dims(factor)) < 2 for factor in product.args):
        raise Unsuitable("a product with a vector")


def _times(value: Any, number: float) -> Any:
    from tvm import tirx

    return value if number == 1.0 else value * tirx.const(number, str(value.ty.dtype))


def _check_scored(place: Index, rows: Axis, keys: Axis) -> None:
    """Refuse scores that are not of rows by keys."""
    from tvm import sym

    *ahead, row, key = place
    # Along rows of which there is one, a view may have lost the index.
    is_row = tvm_compat.as_int(rows.extent) == 1 or (
        not isinstance(row, int) and rewrite.growth(sym.Analyzer(), row, rows.var) == 1
    )
    mixed = _use(ahead, rows, keys) or _use([row], keys)
    if not is_row or mixed or not key.same_as(keys.var):
        raise Unsuitable("scores of another order")


def _check_dense(load: Load, axis: Axis) -> None:
    """Refuse a tensor whose elements along an axis do not follow one another."""
    from tvm import sym

    *others, last = load.indices
    if rewrite.growth(sym.Analyzer(), last, axis.var) != 1:
        raise Unsuitable("elements that do not follow one another")
    if _use(others, axis):
        raise Unsuitable("elements that do not follow one another")


def _use(indices: Index, *axes: Axis) -> bool:
    """Whether any of some indices depends on an axis."""
    variables = [axis.var for axis in axes]
    return any(rewrite.uses(i, variables) for i in indices if not isinstance(i, int))
