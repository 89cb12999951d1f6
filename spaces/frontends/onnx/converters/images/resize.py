"""`Resize` and `Upsample`, of every version.

What TVM's own operators calculate as ONNX says stays theirs: whole images, last axes, made so many
times as large as they say. Anything else is done axis by axis, with tables of where elements come
from.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import numpy as np

from spaces.frontends.onnx.converters.images.resize_sums import by_tables
from spaces.frontends.onnx.converters.images.resize_tables import Axis, Method
from spaces.frontends.onnx.node import Convert, Node
from spaces.frontends.onnx.sizes import Size, shape_expression
from spaces.ir import tvm_compat

_METHODS = MappingProxyType({"nearest": "nearest_neighbor", "linear": "linear", "cubic": "cubic"})
_LONGEST = 1 << 16
"""Sizes up to which a factor that is no whole number is known to give whole numbers as float32
does."""
_OF_TVM = frozenset({"half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"})
"""Transformations that TVM's operators take."""


def _resize(node: Node, builder: Any) -> Any:
    data, dims = node.input(0), node.dims(0)
    if data is None or dims is None:
        raise node.refused("the shape of what it resizes is not known")
    method = _method(node)
    axes = [axis for axis in _axes(node, builder, dims) if _changes(axis)]
    tensor = data.tensor(builder)
    if not axes:
        return tensor
    if _is_of_tvm(node, data.dtype, dims, axes, method):
        return _by_tvm(builder, tensor, dims, axes, method)
    return by_tables(node, builder, tensor, axes, method)


def _method(node: Node) -> Method:
    said = node.attributes

    def text(name: str, usual: str) -> str:
        found = said.get(name, usual)
        return found.decode() if isinstance(found, bytes) else str(found)

    old = node.operator == "Upsample" or node.opset < 11
    mode = text("mode", "nearest")
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    if mode not in _METHODS:
        raise node.refused(f"its mode is {mode}")
    antialias = mode != "nearest" and bool(said.get("antialias", 0))
    # Of two terms the one beyond the end is the last element either way.
    excludes = bool(said.get("exclude_outside", 0)) and (mode == "cubic" or antialias)
    return Method(
        mode,
        "asymmetric" if old else text("coordinate_transformation_mode", "half_pixel"),
        "simple" if old else text("nearest_mode", "round_prefer_floor"),
        float(said.get("cubic_coeff_a", -0.75)),
        excludes,
        antialias,
    )


def _changes(axis: Axis) -> bool:
    """Whether an axis becomes another one. Of a scale of 1 onnxruntime takes no part either."""
    same = axis.size is axis.wanted or axis.size == axis.wanted
    return not (isinstance(same, bool) and same and axis.scale in (None, 1.0))


def _axes(node: Node, builder: Any, dims: Sequence[Size]) -> list[Axis]:
    """What each axis that is named becomes."""
    named = node.attributes.get("axes")
    numbers = [*range(len(dims))] if named is None else [int(a) % len(dims) for a in named]
    old = node.operator == "Upsample" or node.opset < 11
    scales = _floats(node, 1 if old else 2, "scales")
    sizes = None if scales is not None or old else node.sizes(3)
    if scales is not None:
        if len(scales) != len(numbers):
            raise node.refused(f"it has {len(scales)} scales for {len(numbers)} axes")
        found = [
            Axis(number, dims[number], _scale(node, dims[number], float(scale)), float(scale))
            for number, scale in zip(numbers, scales, strict=True)
        ]
    elif sizes is not None:
        found = [
            Axis(number, dims[number], node.arithmetic.simple(size), None)
            for number, size in zip(numbers, sizes.flat(), strict=True)
        ]
        found = _with_policy(node, found)
    else:
        raise node.refused("its scales or sizes are known when the model runs, not before")
    found = [replace(a, wanted=a.size) if _same(node, a) else a for a in found]
    return _with_region(node, builder, found)


def _same(node: Node, axis: Axis) -> bool:
    """Whether an axis keeps its size. Images are as many as they were: a graph may say a number of
    them that it was exported with."""
    if axis.axis == 0 and not isinstance(axis.size, int):
        node.require_equal(axis.size, axis.wanted)
        return True
    return node.arithmetic.equal(axis.size, axis.wanted)


def _with_policy(node: Node, axes: list[Axis]) -> list[Axis]:
    """All axes scaled alike, where sizes are the largest or the smallest ones wanted."""
    policy = node.attributes.get("keep_aspect_ratio_policy", b"stretch")
    policy = policy.decode() if isinstance(policy, bytes) else policy
    if policy == "stretch":
        return axes
    if not all(axis.known for axis in axes):
        raise node.refused(f"the policy {policy} with sizes that are not known")
    pick = min if policy == "not_larger" else max
    scale = pick(np.float32(axis.wanted) / np.float32(axis.size) for axis in axes)
    return [
        replace(
            axis,
            wanted=math.floor(np.float32(axis.size) * scale + np.float32(0.5)),
            scale=float(scale),
        )
        for axis in axes
    ]


def _with_region(node: Node, builder: Any, axes: list[Axis]) -> list[Axis]:
    """Axes with the parts of them that `tf_crop_and_resize` takes."""
    from tvm import relax

    said = node.attributes.get("coordinate_transformation_mode", b"half_pixel")
    if said not in (b"tf_crop_and_resize", "tf_crop_and_resize"):
        return axes
    ends = _floats(node, 1, "roi")
    if ends is not None:
        if len(ends) != 2 * len(axes):
            raise node.refused(f"its region has {len(ends)} numbers for {len(axes)} axes")
        pairs = zip(axes, ends[: len(axes)], ends[len(axes) :], strict=True)
        return [replace(a, begin=float(b), end=float(e)) for a, b, e in pairs]
    region = node.input(1)
    if region is None:
        raise node.refused("tf_crop_and_resize without a region")
    tensor = region.tensor(builder)

    def end(place: int) -> Any:
        part = relax.op.strided_slice(tensor, axes=[0], begin=[place], end=[place + 1])
        return builder.emit(part)

    return [replace(a, begin=end(n), end=end(n + len(axes))) for n, a in enumerate(axes)]


def _floats(node: Node, operand: int, attribute: str) -> list[float] | None:
    """Numbers of an attribute or a constant operand; None where it says nothing or is not known.
    Tensors without elements are how exporters leave operands out."""
    if attribute in node.attributes:
        return [float(v) for v in node.attributes[attribute]]
    value = node.input(operand)
    if value is None:
        return None
    if not tvm_compat.is_constant(value.expression):
        return None
    array = value.expression.value.numpy()
    return [float(v) for v in array.reshape(-1)] if array.size else None


def _scale(node: Node, size: Size, scale: float) -> Size:
    """A size multiplied in float32, rounded down."""
    if isinstance(size, int):
        return math.floor(np.float32(size) * np.float32(scale))
    sizes = np.arange(_LONGEST)
    wanted = np.floor(sizes.astype("float32") * np.float32(scale)).astype("int64")
    for factor in (Fraction(scale).limit_denominator(1000), Fraction(scale)):
        if factor.numerator < 1 << 40 and np.array_equal(
            sizes * factor.numerator // factor.denominator, wanted
        ):
            if factor.denominator != 1:
                node.require(size, _LONGEST - 1)
            return node.arithmetic.simple(size * factor.numerator // factor.denominator)
    raise node.refused(f"what float32 makes of sizes times {scale} is no fraction of these")


def _is_of_tvm(
    node: Node, dtype: str, dims: Sequence[Size], axes: Sequence[Axis], method: Method
) -> bool:
    """Whether TVM has an operator that calculates just that."""
    images = len(dims) in (3, 4, 5) and min(axis.axis for axis in axes) >= 2
    if not images or dtype not in ("float16", "float32"):
        return False
    if method.transformation not in _OF_TVM or method.exclude or method.antialias:
        return False
    ends = method.transformation in ("align_corners", "pytorch_half_pixel")
    for axis in axes:
        if ends and not (isinstance(axis.wanted, int) and axis.wanted > 1):
            if not node.arithmetic.always(axis.wanted > 1) and method.mode == "nearest":
                return False
            if isinstance(axis.wanted, int):
                return False
        if not _is_ratio_of_sizes(node, axis):
            return False
        if method.mode == "nearest" and not _is_nearest_of_tvm(node, axis, method):
            return False
    return True


def _is_ratio_of_sizes(node: Node, axis: Axis) -> bool:
    """Whether the scale is how many times as long the axis becomes."""
    if axis.scale is None:
        return True
    if axis.known:
        return bool(np.float32(axis.scale) == np.float32(axis.wanted) / np.float32(axis.size))
    return axis.scale == int(axis.scale)


def _is_nearest_of_tvm(node: Node, axis: Axis, method: Method) -> bool:
    """Whether TVM's rounding finds the same elements: coordinates are far from where it turns."""
    if method.transformation == "align_corners" or (method.rounding == "simple" and axis.ratio < 1):
        return False
    if axis.known:
        times = axis.wanted / axis.size
    elif axis.scale is not None:
        times = axis.scale
    else:
        return False
    return times == int(times) and (
        (method.transformation, method.rounding)
        in (("asymmetric", "floor"), ("asymmetric", "simple"), ("half_pixel", "round_prefer_floor"))
    )


def _by_tvm(
    builder: Any, tensor: Any, dims: Sequence[Size], axes: Sequence[Axis], method: Method
) -> Any:
    from tvm import relax, topi

    sizes = {axis.axis: axis.wanted for axis in axes}
    wanted = [sizes.get(number, dims[number]) for number in range(2, len(dims))]
    rounding = "floor" if method.rounding == "simple" else method.rounding
    if len(dims) == 3:
        return builder.emit_te(
            topi.image.resize1d,
            tensor,
            [0.0] * 2,
            [*shape_expression(wanted).values],
            "NCW",
            _METHODS[method.mode],
            method.transformation,
            rounding,
            method.a,
        )
    resize = relax.op.image.resize2d if len(dims) == 4 else relax.op.image.resize3d
    return resize(
        tensor,
        shape_expression(wanted),
        roi=[0.0] * (2 * len(wanted)),
        layout="NCHW" if len(dims) == 4 else "NCDHW",
        method=_METHODS[method.mode],
        coordinate_transformation_mode=method.transformation,
        rounding_method=rounding,
        cubic_alpha=method.a,
    )


RESIZE: Mapping[str, Convert] = MappingProxyType({"Resize": _resize, "Upsample": _resize})
