"""`ConvTranspose` whose shape is said: its padding follows from that."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from spaces.frontends.onnx.converters.images.windows import text
from spaces.frontends.onnx.node import Convert, Node

_LAYOUTS = (("NCW", "IOW"), ("NCHW", "IOHW"), ("NCDHW", "IODHW"))
"""Of images and weights, by the number of their axes."""


def _conv_transpose(node: Node, builder: Any) -> Any:
    """The whole result, of which parts are cut off, or to which zeros are added at the end."""
    from tvm import relax

    if "output_shape" not in node.attributes:
        return None
    data, weight, bias = (node.input(number) for number in range(3))
    dims, kernel = node.dims(0), node.dims(1)
    if data is None or weight is None or dims is None or kernel is None:
        raise node.refused("the shapes of its operands are not known")
    count = len(dims) - 2
    if not 1 <= count <= 3 or not all(isinstance(d, int) for d in (*dims[2:], *kernel[2:])):
        raise node.refused("output_shape for an image whose sizes are not known")
    strides = [int(s) for s in node.attributes.get("strides", [1] * count)]
    dilations = [int(d) for d in node.attributes.get("dilations", [1] * count)]
    extra = [int(p) for p in node.attributes.get("output_padding", [0] * count)]
    wanted = [int(size) for size in node.attributes["output_shape"]][-count:]
    reach = [(int(k) - 1) * d for k, d in zip(kernel[2:], dilations, strict=True)]
    upper = text(node, "auto_pad", "NOTSET") == "SAME_UPPER"
    before, more, cut = [0] * count, [0] * count, [0] * count
    for n in range(count):
        whole = (int(dims[2 + n]) - 1) * strides[n] + reach[n] + 1
        total = max(0, whole + extra[n] - wanted[n])
        begin = total // 2 if upper else total - total // 2
        # TVM leaves out no more than a kernel reaches.
        before[n] = min(begin, reach[n])
        cut[n] = begin - before[n]
        more[n] = wanted[n] - (whole - begin)
        if more[n] >= max(strides[n], dilations[n]):
            raise node.refused(f"its output_shape {wanted} is larger than its image can become")
    ends = [min(max(0, -m), r) for m, r in zip(more, reach, strict=True)]
    layout, weights = _LAYOUTS[count - 1]
    found = builder.emit(
        getattr(relax.op.nn, f"conv{count}d_transpose")(
            data.tensor(builder),
            weight.tensor(builder),
            strides=strides,
            padding=[*before, *ends],
            dilation=dilations,
            groups=int(node.attributes.get("group", 1)),
            data_layout=layout,
            kernel_layout=weights,
        )
    )
    zeros = [max(0, m) for m in more]
    if any(zeros):
        widths = [0] * 4 + [width for zero in zeros for width in (0, zero)]
        found = builder.emit(relax.op.nn.pad(found, widths))
    axes = [n for n in range(count) if cut[n] or -more[n] > ends[n]]
    if axes:
        found = builder.emit(
            relax.op.strided_slice(
                found,
                [n + 2 for n in axes],
                [relax.prim_value(cut[n]) for n in axes],
                [relax.prim_value(cut[n] + wanted[n]) for n in axes],
            )
        )
    if bias is None:
        return found
    return relax.op.add(found, relax.op.reshape(bias.tensor(builder), [1, -1] + [1] * count))


CONVOLUTIONS: Mapping[str, Convert] = MappingProxyType({"ConvTranspose": _conv_transpose})
