"""Operators on sizes, calculated while a graph is imported.

Each says what a node gives, or None where that is not known before the model runs.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from spaces.frontends.onnx.node import Node
from spaces.frontends.onnx.sizes import (
    MOST,
    Arithmetic,
    Size,
    SizeArray,
    Sizes,
    read_sizes,
    sizes_of,
)

Evaluate: TypeAlias = Callable[[Node], Sizes | None]
_FURTHEST = (1 << 31) - 1
"""What a `Slice` ends at that goes on to the end."""


def evaluate_sizes(node: Node) -> Sizes | None:
    """What a node gives, if that is known."""
    evaluate = _OPERATORS.get(node.operator)
    found = None if evaluate is None else evaluate(node)
    return None if found is None else node.arithmetic.simplified(found)


def constant_of(attributes: Mapping[str, Any]) -> np.ndarray[Any, Any] | None:
    """The array of a `Constant` node; None of what is no array of numbers."""
    import onnx

    if "value" in attributes:
        return np.asarray(onnx.numpy_helper.to_array(attributes["value"]))
    for name, dtype in (
        ("value_int", "int64"),
        ("value_ints", "int64"),
        ("value_float", "float32"),
        ("value_floats", "float32"),
    ):
        if name in attributes:
            return np.array(attributes[name], dtype=dtype)
    return None


def _constant(node: Node) -> Sizes | None:
    array = constant_of(node.attributes)
    return None if array is None else read_sizes(array)


def _shape(node: Node) -> Sizes | None:
    dims = node.dims(0)
    if dims is None:
        return None
    return sizes_of(dims[node.attributes.get("start", 0) : node.attributes.get("end")])


def _size(node: Node) -> Sizes | None:
    dims = node.dims(0)
    return None if dims is None else _scalar(node.arithmetic.product(dims))


def _scalar(size: Size, dtype: str = "int64") -> Sizes:
    values = np.empty((), dtype=object)
    values[()] = size
    return Sizes(values, dtype)


def _elementwise(
    calculate: Callable[[Arithmetic, Size, Size], Size | None], dtype: str = ""
) -> Evaluate:
    """An operator on pairs, unknown where it is of one pair."""

    def evaluate(node: Node) -> Sizes | None:
        left, right = node.sizes(0), node.sizes(1)
        if left is None or right is None or len(node.inputs) > 2:
            return None
        a, b = np.broadcast_arrays(left.values, right.values)
        values = np.empty(a.shape, dtype=object)
        for place in np.ndindex(a.shape):
            values[place] = found = calculate(node.arithmetic, a[place], b[place])
            if found is None:
                return None
        return Sizes(values, dtype or left.dtype)

    return evaluate


def _divide(arithmetic: Arithmetic, a: Size, b: Size) -> Size | None:
    """Rounded towards zero, as ONNX has it; TVM rounds down, which is the same of no negative."""
    from tvm import tirx

    if isinstance(a, int) and isinstance(b, int):
        return None if b == 0 else int(abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1)
    positive = isinstance(b, int) and b > 0 and arithmetic.always(a >= 0)
    return tirx.floordiv(a, b) if positive else None


def _remainder(_: Arithmetic, a: Size, b: Size) -> Size | None:
    from tvm import tirx

    if not isinstance(b, int) or b <= 0:
        return None
    return a % b if isinstance(a, int) else tirx.floormod(a, b)


def _extreme(pick: Callable[[int, int], int], name: str) -> Callable[..., Size]:
    from_numbers, of_tvm = pick, name

    def calculate(_: Arithmetic, a: Size, b: Size) -> Size:
        from tvm import tirx

        if isinstance(a, int) and isinstance(b, int):
            return from_numbers(a, b)
        return getattr(tirx, of_tvm)(a, b)

    return calculate


def _equal(arithmetic: Arithmetic, a: Size, b: Size) -> bool | None:
    if arithmetic.equal(a, b):
        return True
    if isinstance(a, int) and isinstance(b, int):
        return False
    apart = arithmetic.always(a < b) or arithmetic.always(a > b)
    return False if apart else None


def _compare(compare: Callable[[Any, Any], Any]) -> Callable[..., bool | None]:
    """A comparison that holds always, or never."""
    opposite = {
        operator.lt: operator.ge,
        operator.ge: operator.lt,
        operator.gt: operator.le,
        operator.le: operator.gt,
    }

    def calculate(arithmetic: Arithmetic, a: Size, b: Size) -> bool | None:
        if arithmetic.always(compare(a, b)):
            return True
        return False if arithmetic.always(opposite[compare](a, b)) else None

    return calculate


def _logical(combine: Callable[[bool, bool], bool]) -> Callable[..., bool]:
    def calculate(_: Arithmetic, a: Size, b: Size) -> bool:
        return combine(bool(a), bool(b))

    return calculate


def _on_one(change: Callable[[Node, SizeArray], SizeArray | None]) -> Evaluate:
    """An operator on one operand, whose type its result has."""

    def evaluate(node: Node) -> Sizes | None:
        sizes = node.sizes(0)
        if sizes is None:
            return None
        values = change(node, sizes.values)
        return None if values is None else Sizes(np.asarray(values, dtype=object), sizes.dtype)

    return evaluate


def _gather(node: Node, values: SizeArray) -> SizeArray | None:
    picked = node.sizes(1)
    if picked is None or not picked.numbers:
        return None
    where = np.array(picked.values.tolist(), dtype=np.int64)
    return np.take(values, where, axis=node.attributes.get("axis", 0))


def _unsqueeze(node: Node, values: SizeArray) -> SizeArray | None:
    axes = node.listed("axes", 1)
    return None if axes is None else np.expand_dims(values, tuple(axes))


def _squeeze(node: Node, values: SizeArray) -> SizeArray | None:
    axes = node.listed("axes", 1)
    return np.squeeze(values, None if axes is None else tuple(axes))


def _reshape(node: Node, values: SizeArray) -> SizeArray | None:
    shape = node.numbers(1)
    return None if shape is None or 0 in shape else values.reshape(shape)


def _expand(node: Node, values: SizeArray) -> SizeArray | None:
    shape = node.numbers(1)
    if shape is None:
        return None
    return np.broadcast_to(values, np.broadcast_shapes(values.shape, tuple(shape)))


def _transpose(node: Node, values: SizeArray) -> SizeArray | None:
    return np.transpose(values, node.attributes.get("perm"))


def _slice(node: Node, values: SizeArray) -> SizeArray | None:
    parts = slices(node, values.ndim)
    if parts is None:
        return None
    index = [slice(None)] * values.ndim
    for axis, begin, end, step in parts:
        if not isinstance(begin, int) or not isinstance(end, int):
            return None
        before_first = step < 0 and end < -values.shape[axis]
        index[axis] = slice(begin, None if before_first else end, step)
    return values[tuple(index)]


def slices(node: Node, rank: int) -> list[tuple[int, Size, Size, int]] | None:
    """Axis, begin, end and step of each part of a `Slice`; None where one is not known."""
    if "starts" in node.attributes:
        begins, ends = list(node.attributes["starts"]), list(node.attributes["ends"])
        axes, steps = node.attributes.get("axes"), None
    else:
        first, last = node.sizes(1), node.sizes(2)
        if first is None or last is None:
            return None
        begins, ends = first.flat(), last.flat()
        axes, steps = node.numbers(3), node.numbers(4)
        if any(node.input(n) is not None and known is None for n, known in ((3, axes), (4, steps))):
            return None
    axes = range(len(begins)) if axes is None else axes
    steps = [1] * len(begins) if steps is None else steps
    parts = zip(axes, begins, ends, steps, strict=True)
    return [(int(axis) % rank, begin, end, int(step)) for axis, begin, end, step in parts]


def is_end(size: Size) -> bool:
    """Whether a `Slice` with this end goes on to the end."""
    return isinstance(size, int) and size >= _FURTHEST


def _concatenate(node: Node) -> Sizes | None:
    parts = [node.sizes(number) for number in range(len(node.inputs))]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    joined = np.concatenate([part.values for part in known], axis=node.attributes.get("axis", 0))
    return Sizes(joined, known[0].dtype)


def _cast(node: Node) -> Sizes | None:
    from onnx.helper import tensor_dtype_to_np_dtype

    sizes, wanted = node.sizes(0), str(tensor_dtype_to_np_dtype(node.attributes["to"]))
    if sizes is None or wanted not in ("int64", "int32", "bool"):
        return None
    if wanted == "bool" or sizes.dtype == "bool":
        if not sizes.numbers:
            return None
        kind = bool if wanted == "bool" else int
        values = np.array([kind(v) for v in sizes.flat()], dtype=object)
        return Sizes(values.reshape(sizes.values.shape), wanted)
    return Sizes(sizes.values, wanted)


def _where(node: Node) -> Sizes | None:
    condition, yes, no = (node.sizes(number) for number in range(3))
    if condition is None or yes is None or no is None or not condition.numbers:
        return None
    holds = np.array(condition.values.tolist(), dtype=bool)
    return Sizes(np.where(holds, yes.values, no.values), yes.dtype)


def _fill(node: Node) -> Sizes | None:
    shape, value = node.numbers(0), constant_of(node.attributes)
    if shape is None or value is None or math.prod(shape) > MOST:
        return None
    return read_sizes(np.full(shape, value.item(), dtype=value.dtype))


def _range(node: Node) -> Sizes | None:
    bounds = [node.numbers(number) for number in range(3)]
    sizes = node.sizes(0)
    if sizes is None or any(bound is None for bound in bounds):
        return None
    return read_sizes(np.arange(*(bound[0] for bound in bounds if bound), dtype=sizes.dtype))


def _negate(_: Node, values: SizeArray) -> SizeArray:
    return -values


def _invert(_: Node, values: SizeArray) -> SizeArray:
    return np.array([not v for v in values.flat], dtype=object).reshape(values.shape)


def _multiply(node: Node, values: SizeArray) -> SizeArray | None:
    if values.ndim != 1 or node.listed("axes", 1) not in (None, [], [0], [-1]):
        return None
    product = node.arithmetic.product(values)
    kept = node.attributes.get("keepdims", 1)
    return sizes_of([product]).values if kept else _scalar(product).values


_OPERATORS: Mapping[str, Evaluate] = MappingProxyType(
    {
        "Constant": _constant,
        "Shape": _shape,
        "Size": _size,
        "Add": _elementwise(lambda _, a, b: a + b),
        "Sub": _elementwise(lambda _, a, b: a - b),
        "Mul": _elementwise(lambda _, a, b: a * b),
        "Div": _elementwise(_divide),
        "Mod": _elementwise(_remainder),
        "Max": _elementwise(_extreme(max, "max")),
        "Min": _elementwise(_extreme(min, "min")),
        "Equal": _elementwise(_equal, "bool"),
        "Less": _elementwise(_compare(operator.lt), "bool"),
        "LessOrEqual": _elementwise(_compare(operator.le), "bool"),
        "Greater": _elementwise(_compare(operator.gt), "bool"),
        "GreaterOrEqual": _elementwise(_compare(operator.ge), "bool"),
        "And": _elementwise(_logical(operator.and_), "bool"),
        "Or": _elementwise(_logical(operator.or_), "bool"),
        "Not": _on_one(_invert),
        "Neg": _on_one(_negate),
        "Identity": _on_one(lambda _, values: values),
        "Gather": _on_one(_gather),
        "Unsqueeze": _on_one(_unsqueeze),
        "Squeeze": _on_one(_squeeze),
        "Reshape": _on_one(_reshape),
        "Expand": _on_one(_expand),
        "Transpose": _on_one(_transpose),
        "Slice": _on_one(_slice),
        "ReduceProd": _on_one(_multiply),
        "Concat": _concatenate,
        "Cast": _cast,
        "Where": _where,
        "ConstantOfShape": _fill,
        "Range": _range,
    }
)
