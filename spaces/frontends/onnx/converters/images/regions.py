"""Regions of images: `RoiAlign`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from spaces.frontends.onnx.converters.images.windows import text
from spaces.frontends.onnx.node import Convert, Node


def _roi_align(node: Node, builder: Any) -> Any:
    from tvm import relax

    data, rois, numbers = (node.input(n) for n in range(3))
    if data is None or rois is None or numbers is None:
        raise node.refused("it has three operands")
    mode = text(node, "mode", "avg")
    usual = "half_pixel" if node.opset >= 16 else "output_half_pixel"
    transformation = text(node, "coordinate_transformation_mode", usual)
    if mode not in ("avg", "max") or transformation not in ("half_pixel", "output_half_pixel"):
        raise node.refused(f"its mode is {mode}, {transformation}")
    height, width = (int(node.attributes.get(f"output_{n}", 1)) for n in ("height", "width"))
    scale = float(node.attributes.get("spatial_scale", 1.0))
    samples = int(node.attributes.get("sampling_ratio", 0))
    aligned = transformation == "half_pixel"
    corners, image = rois.tensor(builder), data.tensor(builder)
    if mode == "max":

        def roi_align_max(image: Any, corners: Any, numbers: Any) -> Any:
            return _largest_samples(
                image, corners, numbers, (height, width), scale, samples, aligned
            )

        return builder.emit_te(roi_align_max, image, corners, numbers.tensor(builder))
    if aligned:  # TVM moves the corners by no half of an element
        half = relax.const(np.array(0.5 / scale, rois.dtype), rois.dtype)
        corners = builder.emit(relax.op.subtract(corners, half))
    rows = relax.op.astype(relax.op.expand_dims(numbers.tensor(builder), axis=1), rois.dtype)
    boxes = builder.emit(relax.op.concat([builder.emit(rows), corners], axis=1))
    return relax.op.vision.roi_align(
        image,
        boxes,
        pooled_size=(height, width),
        spatial_scale=scale,
        sample_ratio=samples,
        aligned=aligned,
        layout="NCHW",
        mode="avg",
    )


def _largest_samples(
    image: Any,
    corners: Any,
    numbers: Any,
    pooled: tuple[int, int],
    scale: float,
    samples: int,
    aligned: bool,
) -> Any:
    """The largest part that an element has in a sample, as ONNX defines it: elements are not summed
    to samples first."""
    from tvm import te, tirx

    dtype = str(image.dtype)
    zero = tirx.const(0, dtype)
    shift = 0.5 if aligned else 0.0

    def axis(r: Any, place: Any, number: int, first: int, name: str) -> tuple[Any, Any, Any]:
        """The samples of a bin along an axis: where one is, and its reduced axis."""
        begin = corners[r, first] * scale - shift
        length = corners[r, first + 2] * scale - shift - begin
        length = length if aligned else tirx.max(length, tirx.const(1, dtype))
        wide = length / number
        count = tirx.const(samples, "int32")
        if samples <= 0:
            count = tirx.ceil(wide).astype("int32")
        term = te.reduce_axis((0, count), name=name)
        at = begin + place.astype(dtype) * wide
        return at + (term.astype(dtype) + 0.5) * wide / count.astype(dtype), term, count

    def element(r: Any, c: Any, y: Any, x: Any) -> Any:
        row, rows, _ = axis(r, y, pooled[0], 1, "row")
        column, columns, _ = axis(r, x, pooled[1], 0, "column")
        corner = te.reduce_axis((0, 4), name="corner")
        size = [image.shape[2].astype(dtype), image.shape[3].astype(dtype)]
        beyond = tirx.any(row < -1.0, column < -1.0, row > size[0], column > size[1])
        places, weights = [], []
        for at, end, high in ((row, size[0], corner // 2), (column, size[1], corner % 2)):
            inside = tirx.min(tirx.max(at, zero), end - 1)
            low = tirx.floor(inside)
            apart = inside - low
            places.append(tirx.min(low + high.astype(dtype), end - 1).astype("int32"))
            weights.append(tirx.Select(high == 1, apart, 1 - apart))
        value = image[numbers[r].astype("int32"), c, places[0], places[1]]
        part = value * weights[0] * weights[1]
        return te.max(tirx.if_then_else(beyond, zero, part), axis=[rows, columns, corner])

    shape = (corners.shape[0], image.shape[1], *pooled)
    return te.compute(shape, element, name="largest_samples")


def _affine_grid(node: Node, _: Any) -> Any:
    """Grids are made by TVM's importer, if there are corners to align."""
    sizes = node.numbers(1)
    if sizes is None:
        raise node.refused("the size of its grid is known only in a run")
    if node.attributes.get("align_corners", 0) and 1 in sizes[2:]:
        raise node.refused("align_corners of an axis of one element")
    return None


REGIONS: Mapping[str, Convert] = MappingProxyType(
    {"RoiAlign": _roi_align, "AffineGrid": _affine_grid}
)
