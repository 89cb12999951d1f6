"""Operators along the channels of an image: `LRN` and `SpaceToDepth`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from spaces.frontends.onnx.converters.images.windows import text
from spaces.frontends.onnx.node import Convert, Node, has_nothing
from spaces.frontends.onnx.sizes import shape_expression


def _local_response(node: Node, builder: Any) -> Any:
    """A mean over channels, of which one more is behind than before where their number is even."""
    from tvm import relax

    data, dims = node.input(0), node.dims(0)
    if data is None or dims is None or len(dims) < 2:
        raise node.refused("the shape of its image is not known")
    size, dtype = int(node.attributes["size"]), data.dtype
    before, after = (size - 1) // 2, size // 2
    tensor = data.tensor(builder)
    if has_nothing(dims):
        return tensor
    wide = tensor if dtype != "float16" else builder.emit(relax.op.astype(tensor, "float32"))
    computed = "float32" if dtype == "float16" else dtype
    squares = builder.emit(relax.op.multiply(wide, wide))
    if len(dims) == 4:
        mean = relax.op.nn.avg_pool3d(
            builder.emit(relax.op.expand_dims(squares, axis=1)),
            pool_size=(size, 1, 1),
            padding=[before, 0, 0, after, 0, 0],
            count_include_pad=True,
        )
        mean = relax.op.squeeze(builder.emit(mean), axis=[1])
    else:
        rest = node.arithmetic.product(dims[2:])
        flat = relax.op.reshape(squares, shape_expression([dims[0], 1, dims[1], rest]))
        mean = relax.op.nn.avg_pool2d(
            builder.emit(flat),
            pool_size=(size, 1),
            padding=[before, 0, after, 0],
            count_include_pad=True,
        )
        mean = relax.op.reshape(builder.emit(mean), shape_expression(dims))
    alpha, beta, bias = (
        relax.const(float(node.attributes.get(name, usual)), computed)
        for name, usual in (("alpha", 0.0001), ("beta", 0.75), ("bias", 1.0))
    )
    scale = relax.op.add(relax.op.multiply(builder.emit(mean), alpha), bias)
    found = builder.emit(relax.op.divide(wide, relax.op.power(builder.emit(scale), beta)))
    return found if computed == dtype else relax.op.astype(found, dtype)


def _space_to_depth(node: Node, builder: Any) -> Any:
    """With the mode CRD, channels that come of one channel stand together; else TVM's importer."""
    from tvm import relax

    data, dims = node.input(0), node.dims(0)
    if text(node, "mode", "DCR") == "DCR" or data is None or dims is None:
        return None
    n, c, h, w = dims
    size = int(node.attributes["blocksize"])
    simple = node.arithmetic.simple
    apart = relax.op.reshape(
        data.tensor(builder),
        shape_expression([n, c, simple(h // size), size, simple(w // size), size]),
    )
    ordered = relax.op.permute_dims(builder.emit(apart), [0, 1, 3, 5, 2, 4])
    shape = [n, simple(c * size * size), simple(h // size), simple(w // size)]
    return relax.op.reshape(builder.emit(ordered), shape_expression(shape))


CHANNELS: Mapping[str, Convert] = MappingProxyType(
    {"LRN": _local_response, "SpaceToDepth": _space_to_depth}
)
