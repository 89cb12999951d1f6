"""What TVM's converters honour of operators that networks are made of: products, convolutions,
pools, norms, sums, images and quantisation."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from spaces.frontends.onnx.honoured.elementwise import fraction_of_integers
from spaces.frontends.onnx.honoured.rows import (
    ANY,
    BOOL,
    FLOAT8,
    FLOATS,
    INT64,
    NONE,
    PLAIN,
    REALS,
    SIGNED,
    SINGLE,
    WIDE,
    Row,
    row,
)
from spaces.frontends.onnx.node import Node

_HALF = frozenset({"float16", "float32"})
_DOUBLE = frozenset({"float32", "float64"})
_BYTES = frozenset({"int8", "uint8"})
_WORDS = _BYTES | {"int16", "uint16"}
_PADDED: Mapping[str, Any] = MappingProxyType(
    {"auto_pad": ANY, "kernel_shape": ANY, "pads": ANY, "strides": ANY}
)
_CONVOLUTION: Mapping[str, Any] = MappingProxyType({**_PADDED, "dilations": ANY, "group": ANY})


def _integral(node: Node) -> str | None:
    return fraction_of_integers(node, "alpha", "beta")


def _check_padding(node: Node) -> str | None:
    """TVM pads as both attributes say."""
    same = node.attributes.get("auto_pad", b"NOTSET").startswith(b"SAME")
    return "its attribute pads is not taken with auto_pad" if same and _pads(node) else None


def _pads(node: Node) -> bool:
    return any(node.attributes.get("pads", ()))


def _shape_as_is(node: Node) -> str | None:
    """TVM gives the shape that follows from all else."""
    said, dims, weight = node.attributes, node.dims(0), node.dims(1)
    if "output_shape" not in said:
        return None
    sizes, kernel = (dims or [])[2:], (weight or [])[2:]
    ones, zeros = [1] * len(sizes), [0] * len(sizes)
    strides, dilations = said.get("strides", ones), said.get("dilations", ones)
    more = said.get("output_padding", zeros)
    found = [
        stride * (size - 1) + (width - 1) * dilation + 1 + end
        for size, width, stride, dilation, end in zip(
            sizes, kernel, strides, dilations, more, strict=False
        )
    ]
    asked = [*said["output_shape"]][-len(sizes) :]
    same = len(found) == len(asked) and all(map(node.arithmetic.equal, found, asked))
    return None if same and not _pads(node) else "its attribute output_shape is not taken"


def _lower(node: Node) -> str | None:
    """TVM rounds the number of windows down."""
    said = node.attributes
    if said.get("auto_pad") != b"SAME_LOWER":
        return None
    sizes = (node.dims(0) or [])[2:]
    strides = said.get("strides", [1] * len(sizes))
    even = all(isinstance(d, int) and d % s == 0 for d, s in zip(sizes, strides, strict=False))
    return None if even else "its attribute auto_pad=SAME_LOWER is not taken with these strides"


def _even_pads(node: Node) -> str | None:
    """TVM takes the pads of an axis for those of two."""
    same = len({*node.attributes.get("pads", (0,))}) == 1
    return None if same else "its attribute pads is not taken where they are not all the same"


def _check_rois(node: Node) -> str | None:
    """TVM takes half a pixel off before it scales."""
    half = node.attributes.get("coordinate_transformation_mode", b"half_pixel") == b"half_pixel"
    if not half or node.opset < 16 or node.attributes.get("spatial_scale", 1.0) == 1.0:
        return None
    return "its attribute spatial_scale is not taken with half_pixel"


def _thresholds(node: Node) -> str | None:
    """TVM has thresholds of its own where none is given."""
    names = ((2, "max_output_boxes_per_class"), (3, "iou_threshold"), (4, "score_threshold"))
    missing = [name for number, name in names if node.input(number) is None]
    return f"it is not taken without {missing[0]}" if missing else None


def _inference(node: Node) -> str | None:
    """Below version 7 the default of an attribute says that a model is trained."""
    training = node.opset < 7 and not node.attributes.get("is_test", 0)
    return "its attribute is_test=0 is not taken" if training else None


def _not_trained(node: Node) -> str | None:
    if node.input(2) is None:
        return _inference(node)
    training, ratio = (_read_number(node, number) for number in (2, 1))
    if training == 0 or ratio == 0:
        return None
    return "its input training_mode is not taken unless it is known to be false"


def _read_number(node: Node, number: int) -> float | None:
    """A number that is an operand, if it is known."""
    value = node.input(number)
    constant = getattr(getattr(value, "expression", None), "value", None)
    if constant is not None:
        return float(constant.numpy().item())
    numbers = node.numbers(number)
    return None if numbers is None else float(numbers[0])


def _scale_of_all(node: Node) -> str | None:
    """TVM takes the axes of the scale for those that are normalised."""
    dims, scale, axis = node.dims(0), node.dims(1), int(node.attributes.get("axis", -1))
    if dims is None or scale is None or len(scale) == len(dims) - axis % len(dims):
        return None
    return "its input Scale is not taken with fewer axes than are normalised"


def _odd(node: Node) -> str | None:
    return None if node.attributes["size"] % 2 else "its attribute size is not taken where even"


def _linear(node: Node) -> str | None:
    """TVM takes the nearest place, not the one before."""
    linear = node.attributes.get("mode") == b"linear"
    return None if linear else "its attribute mode=nearest is not taken"


def _noop(node: Node) -> str | None:
    """TVM gives the operand as it is, and leaves out what is calculated of each element."""
    if not node.attributes.get("noop_with_empty_axes") or node.numbers(1):
        return None
    return "its attribute noop_with_empty_axes=1 is not taken"


def _half_of_words(node: Node) -> str | None:
    """The largest uint16 is none of float16."""
    zero, data = node.input(2), node.input(0)
    words = node.attributes.get("output_dtype") == 4 or (zero and zero.dtype == "uint16")
    half = data is not None and data.dtype == "float16"
    return "it is not taken from float16 to uint16" if words and half else None


def _sums(types: frozenset[str], **more: Any) -> Row:
    return row(
        1, types, INT64, known=(1,), axes=ANY, keepdims=ANY, noop_with_empty_axes=ANY, **more
    )


_ARG = row(1, REALS | SIGNED, axis=ANY, keepdims=ANY, select_last_index=ANY)
_SOFTMAX = row(1, FLOATS, axis=ANY)

LAYERS: Mapping[str, Row] = MappingProxyType(
    {
        "Gemm": row(
            1, *[FLOATS | WIDE] * 3, limit=_integral,
            alpha=ANY, beta=ANY, broadcast=ANY, transA=ANY, transB=ANY,
        ),
        "MatMul": row(1, FLOATS | WIDE, FLOATS | WIDE),
        "MatMulInteger": row(10, _BYTES, _BYTES, _BYTES, _BYTES),
        "Conv": row(1, FLOATS, FLOATS, FLOATS, limit=_check_padding, **_CONVOLUTION),
        "ConvTranspose": row(
            1, FLOATS, FLOATS, FLOATS, limit=_shape_as_is,
            **_CONVOLUTION, output_padding=ANY, output_shape=ANY,
        ),
        "AveragePool": row(
            1, FLOATS, **_PADDED, ceil_mode=ANY, count_include_pad=ANY, dilations=ANY
        ),
        "MaxPool": row(
            1, FLOATS | _BYTES, gives=(1, 2), limit=_lower,
            **_PADDED, ceil_mode=ANY, dilations=ANY, storage_order=ANY,
        ),
        "LpPool": row(1, REALS, **_PADDED, ceil_mode=(), dilations=ANY, p=ANY),
        "GlobalAveragePool": row(1, FLOATS),
        "GlobalMaxPool": row(1, FLOATS),
        "GlobalLpPool": row(1, REALS, p=ANY),
        "MaxUnpool": row(
            9, FLOATS, INT64, NONE, limit=_even_pads, kernel_shape=ANY, pads=ANY, strides=ANY
        ),
        "MaxRoiPool": row(1, FLOATS, FLOATS, pooled_shape=ANY, spatial_scale=ANY),
        "RoiAlign": row(
            10, _DOUBLE, _DOUBLE, INT64, limit=_check_rois,
            coordinate_transformation_mode=("output_half_pixel",), mode=(), output_height=ANY,
            output_width=ANY, sampling_ratio=ANY, spatial_scale=ANY,
        ),
        "NonMaxSuppression": row(
            10, SINGLE, SINGLE, INT64, SINGLE, SINGLE, known=(2, 3, 4), limit=_thresholds,
            center_point_box=ANY,
        ),
        "GridSample": row(
            16, _DOUBLE, _DOUBLE, align_corners=ANY, mode=ANY, padding_mode=ANY
        ),
        "AffineGrid": row(20, FLOATS, INT64, known=(1,), align_corners=ANY),
        "Resize": row(
            11, PLAIN, REALS, SINGLE, INT64, known=(2, 3),
            antialias=(), axes=(), keep_aspect_ratio_policy=(), cubic_coeff_a=ANY,
            coordinate_transformation_mode=(
                "asymmetric", "align_corners", "pytorch_half_pixel", "tf_half_pixel_for_nn",
                "tf_crop_and_resize",
            ),
            exclude_outside=ANY, extrapolation_value=ANY, mode=("linear", "cubic"),
            nearest_mode=("round_prefer_ceil", "floor", "ceil"),
        ),
        "Upsample": row(7, FLOATS, NONE, limit=_linear, mode=("linear",), scales=ANY),
        "BatchNormalization": row(
            1, *[FLOATS] * 5, gives=(1, 5), limit=_inference, consumed_inputs=ANY, epsilon=ANY,
            is_test=ANY, momentum=ANY, spatial=(), training_mode=(),
        ),
        "InstanceNormalization": row(
            1, FLOATS, FLOATS, FLOATS, consumed_inputs=ANY, epsilon=ANY
        ),
        # onnxruntime's optimiser writes it in any version.
        "LayerNormalization": row(
            1, _HALF, _HALF, _HALF, gives=(1, 3), limit=_scale_of_all,
            axis=ANY, epsilon=ANY, stash_type=(),
        ),
        "RMSNormalization": row(23, FLOATS, FLOATS, axis=ANY, epsilon=ANY, stash_type=ANY),
        "GroupNormalization": row(
            18, FLOATS, FLOATS, FLOATS, epsilon=ANY, num_groups=ANY, stash_type=()
        ),
        "MeanVarianceNormalization": row(9, SINGLE, axes=ANY),
        "LRN": row(1, SINGLE, limit=_odd, alpha=ANY, beta=ANY, bias=ANY, size=ANY),
        "Dropout": row(
            1, FLOATS | FLOAT8, FLOATS | FLOAT8, BOOL, gives=(1, 2), limit=_not_trained,
            consumed_inputs=ANY, is_test=ANY, ratio=ANY, seed=ANY,
        ),
        "Softmax": _SOFTMAX,
        "LogSoftmax": _SOFTMAX,
        "Hardmax": row(1, REALS, axis=ANY),
        "ArgMax": _ARG,
        "ArgMin": _ARG,
        "ReduceMax": _sums(FLOATS | WIDE | _BYTES),
        "ReduceMin": _sums(FLOATS | WIDE | _BYTES),
        "ReduceSum": _sums(FLOATS | WIDE),
        "ReduceProd": _sums(FLOATS | WIDE),
        "ReduceMean": _sums(FLOATS | {"int64", "uint64"}),
        "ReduceLogSumExp": _sums(FLOATS),
        "ReduceLogSum": _sums(FLOATS, limit=_noop),
        "ReduceSumSquare": _sums(FLOATS | WIDE, limit=_noop),
        "ReduceL1": _sums(FLOATS | WIDE, limit=_noop),
        "ReduceL2": _sums(FLOATS, limit=_noop),
        "QuantizeLinear": row(
            10, _HALF, _HALF, _WORDS, limit=_half_of_words,
            axis=ANY, block_size=(), output_dtype=(2, 3, 4, 5), precision=(), saturate=ANY,
        ),
        "DequantizeLinear": row(
            10, _WORDS | {"int32"}, _HALF, _WORDS | {"int32"},
            axis=ANY, block_size=(), output_dtype=(1, 10),
        ),
        "DynamicQuantizeLinear": row(11, SINGLE, gives=(3, 3)),
    }
)  # fmt: skip
