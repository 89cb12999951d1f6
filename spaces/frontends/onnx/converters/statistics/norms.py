"""Normalisations: by mean and variance, by the root mean square, by a length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from spaces.frontends.onnx.converters.statistics.group_norm import group_norm
from spaces.frontends.onnx.node import Convert, Node
from spaces.frontends.onnx.sizes import Size
from spaces.frontends.precision import in_type, wide_of
from spaces.ir.element_types import HALVES, WIDE

_STASH = MappingProxyType({1: "float32", 10: "float16", 11: "float64", 16: "bfloat16"})
"""Types of ONNX that statistics are given in."""
_GROUPS_SCALED = 21
"""The version of ONNX below which a group has one scale, and not each channel."""


def _layer_norm(node: Node, builder: Any) -> Any:
    from tvm import relax

    axes, stash = _last_axes(node), _stash(node)
    data, bias = node.operand(0), node.input(2)
    tensor, scale = node.tensor(0, builder), node.tensor(1, builder)
    epsilon = float(node.attributes.get("epsilon", 1e-5))
    plain = data.dtype in ("float16", WIDE) and stash in (*HALVES, WIDE)
    if plain and not any(node.outputs[1:]) and _spans(node, axes, (1, 2)):
        shift = relax.op.zeros_like(scale) if bias is None else bias.tensor(builder)
        return relax.op.nn.layer_norm(tensor, scale, builder.emit(shift), axes, epsilon)
    wide = "float64" if "float64" in (data.dtype, stash) else WIDE
    centred, mean = _centre(builder, in_type(builder, tensor, wide), axes)
    inverse = _inverse_root(builder, _mean_square(builder, centred, axes), epsilon)
    normal = builder.emit(relax.op.multiply(centred, inverse))
    found = builder.emit(relax.op.multiply(in_type(builder, normal, data.dtype), scale))
    if bias is not None:
        found = builder.emit(relax.op.add(found, bias.tensor(builder)))
    return [found, in_type(builder, mean, stash), in_type(builder, inverse, stash)]


def _root_norm(node: Node, builder: Any) -> Any:
    """By the root of the mean square; the result has the type of the scale."""
    from tvm import relax

    axes, dtype = _last_axes(node), node.operand(1).dtype
    wide = "float64" if "float64" in (node.operand(0).dtype, _stash(node)) else WIDE
    tensor, scale = (in_type(builder, node.tensor(n, builder), wide) for n in (0, 1))
    epsilon = float(node.attributes.get("epsilon", 1e-5))
    if wide == WIDE and axes[0] > 0 and _spans(node, axes, (1,)):
        found = builder.emit(relax.op.nn.rms_norm(tensor, scale, axes, epsilon))
        return in_type(builder, found, dtype)
    inverse = _inverse_root(builder, _mean_square(builder, tensor, axes), epsilon)
    normal = builder.emit(relax.op.multiply(tensor, inverse))
    return in_type(builder, builder.emit(relax.op.multiply(normal, scale)), dtype)


def _instance_norm(node: Node, builder: Any) -> Any:
    from tvm import relax

    emit, dtype, rank = builder.emit, node.operand(0).dtype, node.rank()
    wide, axes = wide_of(dtype), [*range(2, rank)]
    tensor = in_type(builder, node.tensor(0, builder), wide)
    epsilon = relax.const(float(node.attributes.get("epsilon", 1e-5)), wide)
    mean = emit(relax.op.mean(tensor, axes, keepdims=True))
    variance = emit(relax.op.variance(tensor, axes, keepdims=True))
    root = emit(relax.op.sqrt(emit(relax.op.add(variance, epsilon))))
    found = emit(relax.op.divide(emit(relax.op.subtract(tensor, mean)), root))
    scale, shift = (_channels(node, builder, n, wide, rank) for n in (1, 2))
    found = emit(relax.op.add(emit(relax.op.multiply(found, scale)), shift))
    return in_type(builder, found, dtype)


def _channels(node: Node, builder: Any, number: int, dtype: str, rank: int) -> Any:
    """A number for each channel, in the shape that multiplies data."""
    from tvm import relax

    value = in_type(builder, node.tensor(number, builder), dtype)
    return builder.emit(relax.op.reshape(value, [-1, *[1] * (rank - 2)]))


def _group_norm(node: Node, builder: Any) -> Any:
    dims, groups = node.dims(0), int(node.attributes["num_groups"])
    if dims is None or len(dims) < 2:
        raise node.refused("the shape of its operand 0 is not known, or has no channels")
    channels = dims[1]
    if groups < 1 or (isinstance(channels, int) and channels % groups):
        raise node.refused(f"{channels} channels do not make {groups} equal groups")
    data, scale, shift = (node.tensor(n, builder) for n in range(3))
    epsilon = float(node.attributes.get("epsilon", 1e-5))
    wide = "float64" if node.operand(0).dtype == "float64" else WIDE
    per_channel = node.opset >= _GROUPS_SCALED
    for number in (1, 2):
        node.require_equal(node.shape(number)[0], channels if per_channel else groups)
    return builder.emit_te(group_norm, data, scale, shift, groups, epsilon, wide, per_channel)


def _mean_variance(node: Node, builder: Any) -> Any:
    from tvm import relax

    emit, dtype, rank = builder.emit, node.operand(0).dtype, node.rank()
    listed = node.attributes.get("axes", (0, 2, 3))
    axes = sorted({node.axis_within(int(axis), rank) for axis in listed})
    tensor = in_type(builder, node.tensor(0, builder), wide_of(dtype))
    centred, _ = _centre(builder, tensor, axes)
    centred, _ = _centre(builder, centred, axes)  # the first mean was rounded to its own digits
    root = emit(relax.op.sqrt(_mean_square(builder, centred, axes)))
    small = relax.const(1e-9, wide_of(dtype))
    return in_type(builder, emit(relax.op.divide(centred, emit(relax.op.add(root, small)))), dtype)


def _length_norm(node: Node, builder: Any) -> Any:
    """By the sum of sizes, or the root of that of squares; what is all zeros stays so."""
    from tvm import relax

    emit, dtype = builder.emit, node.operand(0).dtype
    axis = node.axis_within(int(node.attributes.get("axis", -1)), node.rank())
    power, wide = int(node.attributes.get("p", 2)), wide_of(dtype)
    if power not in (1, 2):
        raise node.refused(f"its p is {power}, and has to be 1 or 2")
    tensor = in_type(builder, node.tensor(0, builder), wide)
    sizes = emit(relax.op.abs(tensor) if power == 1 else relax.op.multiply(tensor, tensor))
    length = emit(relax.op.sum(sizes, [axis], True))
    length = length if power == 1 else emit(relax.op.sqrt(length))
    none, one = (relax.const(number, wide) for number in (0.0, 1.0))
    divisor = emit(relax.op.where(emit(relax.op.equal(length, none)), one, length))
    return in_type(builder, emit(relax.op.divide(tensor, divisor)), dtype)


def _last_axes(node: Node) -> list[int]:
    """The axes from the one that is named on."""
    rank = node.rank()
    return [*range(node.axis_within(int(node.attributes.get("axis", -1)), rank), rank)]


def _stash(node: Node) -> str:
    number = int(node.attributes.get("stash_type", 1))
    if number not in _STASH:
        raise node.refused(f"its statistics would be of type {number}")
    return _STASH[number]


def _spans(node: Node, axes: Sequence[int], numbers: Sequence[int]) -> bool:
    """Whether operands, where they are given, have the type of the first one and its sizes of
    these axes."""
    dims = node.dims(0)
    wanted = None if dims is None else [dims[axis] for axis in axes]
    return all(
        node.operand(number).dtype == node.operand(0).dtype
        and _same(node, wanted, node.dims(number))
        for number in numbers
        if node.input(number) is not None
    )


def _same(node: Node, wanted: list[Size] | None, found: list[Size] | None) -> bool:
    if wanted is None or found is None or len(wanted) != len(found):
        return False
    return all(node.arithmetic.equal(a, b) for a, b in zip(wanted, found, strict=True))


def _centre(builder: Any, tensor: Any, axes: list[int]) -> tuple[Any, Any]:
    """A tensor without its mean, and the mean."""
    from tvm import relax

    mean = builder.emit(relax.op.mean(tensor, axes, keepdims=True))
    return builder.emit(relax.op.subtract(tensor, mean)), mean


def _mean_square(builder: Any, tensor: Any, axes: list[int]) -> Any:
    from tvm import relax

    squares = builder.emit(relax.op.multiply(tensor, tensor))
    return builder.emit(relax.op.mean(squares, axes, keepdims=True))


def _inverse_root(builder: Any, square: Any, epsilon: float) -> Any:
    from tvm import relax

    small = relax.const(epsilon, str(square.ty.dtype))
    return builder.emit(relax.op.rsqrt(builder.emit(relax.op.add(square, small))))


NORMS: Mapping[str, Convert] = MappingProxyType(
    {
        "GroupNormalization": _group_norm,
        "InstanceNormalization": _instance_norm,
        "LayerNormalization": _layer_norm,
        "LpNormalization": _length_norm,
        "MeanVarianceNormalization": _mean_variance,
        "RMSNormalization": _root_norm,
    }
)
