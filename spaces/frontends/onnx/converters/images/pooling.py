"""Pooling that TVM's importer does not do as ONNX says: automatic padding, indices of maxima, and
norms."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from spaces.frontends.onnx.converters.images.windows import (
    Windows,
    padding,
    text,
    windows_of,
    without_cut,
)
from spaces.frontends.onnx.node import Convert, Node, Value
from spaces.frontends.onnx.sizes import Size, shape_expression

_NO_INDEX = 2**62
"""The index of padding, which is larger than that of any element."""


def _max_pool(node: Node, builder: Any) -> Any:
    if len(node.outputs) > 1 and node.outputs[1]:
        return _with_indices(node, builder)
    return _automatic(node, builder, "max_pool")


def _average_pool(node: Node, builder: Any) -> Any:
    return _automatic(node, builder, "avg_pool")


def _automatic(node: Node, builder: Any, name: str) -> Any:
    """Pooling with automatic padding, and sums of half precision; any other is for TVM's
    importer."""
    data = node.input(0)
    half = data is not None and data.dtype == "float16" and name == "avg_pool"
    if data is None or not (half or text(node, "auto_pad", "NOTSET").startswith("SAME")):
        return None
    if not 1 <= len(node.attributes["kernel_shape"]) <= 3:
        return None
    counted = bool(node.attributes.get("count_include_pad", 0))
    windows = windows_of(node, node.attributes["kernel_shape"])
    tensor = without_cut(builder, _widen(builder, data), windows)
    pads = None
    if counted and node.attributes.get("ceil_mode", 0) and "pads" in node.attributes:
        # What makes the last window whole is not counted, unlike padding: TVM adds it.
        pads = [int(p) for p in node.attributes["pads"]]
    return _narrow(builder, _pool(tensor, windows, name, counted, pads), data.dtype)


def _widen(builder: Any, data: Value) -> Any:
    """A tensor in a type that sums of it are precise in."""
    from tvm import relax

    tensor = data.tensor(builder)
    if data.dtype != "float16":
        return tensor
    return builder.emit(relax.op.astype(tensor, "float32"))


def _narrow(builder: Any, tensor: Any, dtype: str) -> Any:
    from tvm import relax

    return relax.op.astype(builder.emit(tensor), dtype) if dtype == "float16" else tensor


def _pool(
    tensor: Any,
    windows: Sequence[Windows],
    name: str,
    counted: bool,
    ceiled: Sequence[int] | None = None,
) -> Any:
    """Pooling of windows; with `ceiled`, padding that may leave the last one with too little."""
    from tvm import relax

    pool = getattr(relax.op.nn, f"{name}{len(windows)}d")
    return pool(
        tensor,
        [w.kernel for w in windows],
        [w.stride for w in windows],
        padding(windows) if ceiled is None else ceiled,
        [w.dilation for w in windows],
        ceiled is not None,
        counted,
    )


def _lp_pool(node: Node, builder: Any) -> Any:
    """The mean of windows that are whole, the padding counted, is a part of their sum."""
    from tvm import relax

    data = node.input(0)
    if data is None or not 1 <= len(node.attributes["kernel_shape"]) <= 3:
        return None
    windows = windows_of(node, node.attributes["kernel_shape"])
    tensor = without_cut(builder, _widen(builder, data), windows)
    number = math.prod(w.kernel for w in windows)

    def summed(powers: Any) -> Any:
        mean = builder.emit(_pool(powers, windows, "avg_pool", True))
        return relax.op.multiply(mean, relax.const(float(number), tensor.ty.dtype))

    return _narrow(builder, _norm(node, builder, tensor, summed), data.dtype)


def _norm(node: Node, builder: Any, tensor: Any, summed: Callable[[Any], Any]) -> Any:
    """A root of sums of powers."""
    from tvm import relax

    p, dtype = float(node.attributes.get("p", 2)), str(tensor.ty.dtype)
    powers = builder.emit(relax.op.abs(tensor))
    if p == 1:
        return summed(powers)
    total = builder.emit(summed(builder.emit(relax.op.power(powers, relax.const(p, dtype)))))
    return relax.op.power(total, relax.const(1 / p, dtype))


def _global(node: Node, builder: Any) -> Any:
    """Sums of half precision over whole images; any other are for TVM's importer."""
    from tvm import relax

    data, dims = node.input(0), node.dims(0)
    if data is None or dims is None or data.dtype != "float16":
        return None
    axes, tensor = [*range(2, len(dims))], _widen(builder, data)
    if node.operator == "GlobalAveragePool":
        found = relax.op.mean(tensor, axes, keepdims=True)
    else:
        found = _norm(node, builder, tensor, lambda x: relax.op.sum(x, axes, keepdims=True))
    return _narrow(builder, found, data.dtype)


def _with_indices(node: Node, builder: Any) -> Any:
    """The largest elements and where they are, of equal ones the first."""
    from tvm import relax

    data = node.input(0)
    assert data is not None, "windows have an image"
    windows = windows_of(node, node.attributes["kernel_shape"])
    by_columns = bool(node.attributes.get("storage_order", 0))

    def max_pool(image: Any) -> Any:
        return _largest(image, windows, by_columns)

    both = builder.emit_te(max_pool, data.tensor(builder))
    return [builder.emit(relax.TupleGetItem(both, number)) for number in range(2)]


def _largest(image: Any, windows: Sequence[Windows], by_columns: bool) -> Any:
    from tvm import te, tirx

    terms = [te.reduce_axis((0, w.kernel), name=f"k{n}") for n, w in enumerate(windows)]
    sizes = image.shape[2:]
    least, none = tirx.min_value(image.dtype), tirx.const(_NO_INDEX, "int64")

    def larger(a: Any, b: Any) -> Any:
        first = tirx.any(a[1] > b[1], tirx.all(a[1] == b[1], a[0] <= b[0]))
        return tirx.Select(first, a[0], b[0]), tirx.Select(first, a[1], b[1])

    argmax = te.comm_reducer(larger, lambda *_: (none, least), name="argmax")

    def element(n: Any, c: Any, *at: Any) -> Any:
        places = [
            o * w.stride + k * w.dilation - w.before
            for o, k, w in zip(at, terms, windows, strict=True)
        ]
        inside = tirx.all(
            *(tirx.all(p >= 0, p < size) for p, size in zip(places, sizes, strict=True))
        )
        index: Any = n * image.shape[1] + c
        for place, size in zip(places, sizes, strict=True):
            index = index * size + place
        return argmax(
            (
                tirx.if_then_else(inside, index.astype("int64"), none),
                tirx.if_then_else(inside, image[(n, c, *places)], least),
            ),
            axis=terms,
        )

    shape = [*image.shape[:2], *(w.number for w in windows)]
    rows, values = te.compute(shape, element, name="largest")
    if not by_columns:
        return values, rows
    columns = te.compute(shape, lambda *i: _by_columns(rows[i], sizes), name="by_columns")
    return values, columns


def _by_columns(index: Any, sizes: Sequence[Any]) -> Any:
    """An index that counts the first axis of an image fastest."""
    places, rest = [], index
    for size in reversed(sizes):
        places.append(rest % size)
        rest = rest // size
    found = rest
    for place, size in zip(places, reversed(sizes), strict=True):
        found = found * size + place
    return found.astype("int64")


def _max_unpool(node: Node, builder: Any) -> Any:
    """Elements put where maxima were, zeros elsewhere."""
    from tvm import relax

    data, indices, dims = node.input(0), node.input(1), node.dims(0)
    if data is None or indices is None or dims is None:
        raise node.refused("the shape of its operand is not known")
    shape = _unpool(node, dims)
    zeros = relax.op.zeros((node.arithmetic.product(shape),), data.dtype)
    flat = [
        builder.emit(relax.op.reshape(value.tensor(builder), [-1])) for value in (indices, data)
    ]
    found = builder.emit(relax.op.scatter_elements(builder.emit(zeros), *flat, axis=0))
    return relax.op.reshape(found, shape_expression(shape))


def _unpool(node: Node, dims: Sequence[Size]) -> list[Size]:
    """The shape that a `MaxUnpool` gives."""
    if node.input(2) is not None:
        wanted = node.sizes(2)
        if wanted is None:
            raise node.refused("its shape, the operand output_shape, is known only in a run")
        return wanted.flat()
    shape = [*dims[:2]]
    kernel = [int(k) for k in node.attributes["kernel_shape"]]
    strides = [int(s) for s in node.attributes.get("strides", [1] * len(kernel))]
    pads = [int(p) for p in node.attributes.get("pads", [0] * 2 * len(kernel))]
    for n, size in enumerate(kernel):
        wide = (dims[2 + n] - 1) * strides[n] + size - sum(pads[n :: len(kernel)])
        shape.append(node.arithmetic.simple(wide))
    return shape


POOLING: Mapping[str, Convert] = MappingProxyType(
    {
        "MaxPool": _max_pool,
        "AveragePool": _average_pool,
        "LpPool": _lp_pool,
        "GlobalAveragePool": _global,
        "GlobalLpPool": _global,
        "MaxUnpool": _max_unpool,
    }
)
