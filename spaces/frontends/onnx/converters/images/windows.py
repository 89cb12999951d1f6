"""Where windows that move over an image begin and end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from spaces.frontends.onnx.node import Node
from spaces.frontends.onnx.sizes import Size


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows along one axis.

    Attributes:
        before: elements of padding in front, negative where elements are left out; `after` is
            that at the end, for the last window to be whole.
        number: of windows.
    """

    size: Size
    kernel: int
    stride: int
    dilation: int
    before: int
    after: int
    number: Size

    @property
    def reach(self) -> int:
        """Elements from the first to the last one of a window."""
        return (self.kernel - 1) * self.dilation + 1


def text(node: Node, attribute: str, usual: str) -> str:
    """An attribute that is a word."""
    found = node.attributes.get(attribute, usual)
    return found.decode() if isinstance(found, bytes) else str(found)


def windows_of(node: Node, kernel: Sequence[int]) -> list[Windows]:
    """Those of a node along each axis of its first operand but two."""
    dims = node.dims(0)
    if dims is None:
        raise node.refused("the shape of its image is not known")
    count = len(dims) - 2
    strides = [int(s) for s in node.attributes.get("strides", [1] * count)]
    dilations = [int(d) for d in node.attributes.get("dilations", [1] * count)]
    pads = [int(p) for p in node.attributes.get("pads", [0] * 2 * count)]
    return [
        _windows(node, dims[2 + n], int(kernel[n]), strides[n], dilations[n], pads[n::count])
        for n in range(count)
    ]


def _windows(
    node: Node, size: Size, kernel: int, stride: int, dilation: int, pads: Sequence[int]
) -> Windows:
    reach = (kernel - 1) * dilation + 1
    automatic = text(node, "auto_pad", "NOTSET")
    if automatic in ("SAME_UPPER", "SAME_LOWER"):
        if reach > kernel:
            raise node.refused(f"{automatic} with dilations, of which runtimes make two shapes")
        number = _quotient(size + stride - 1, stride)
        total = node.arithmetic.simple((number - 1) * stride + reach - size)
        if not isinstance(total, int):
            raise node.refused(f"its padding, {automatic}, depends on sizes that are not known")
        if node.operator == "MaxPool":  # which other runtimes do not do, or as TensorFlow does
            total = max(0, total)
        before = int((total if automatic == "SAME_UPPER" else total + 1) / 2)  # towards 0
        return Windows(
            size, kernel, stride, dilation, before, total - before, node.arithmetic.simple(number)
        )
    before, after = (0, 0) if automatic == "VALID" else pads
    room = size + before + after - reach
    if not node.attributes.get("ceil_mode", 0):
        number = _quotient(room, stride) + 1
        return Windows(
            size, kernel, stride, dilation, before, after, node.arithmetic.simple(number)
        )
    number = _quotient(room + stride - 1, stride) + 1
    if not isinstance(number, int):
        raise node.refused("ceil_mode of sizes that are not known")
    if (number - 1) * stride >= size + before:  # a window in the padding alone is none
        number -= 1
    whole = (number - 1) * stride + reach - size - before
    return Windows(size, kernel, stride, dilation, before, max(after, whole), number)


def _quotient(a: Any, b: int) -> Any:
    from tvm import tirx

    return a // b if isinstance(a, int) else tirx.floordiv(a, b)


def without_cut(builder: Any, data: Any, windows: Sequence[Windows]) -> Any:
    """An image without the elements that negative padding leaves out."""
    from tvm import relax

    cut = [(n + 2, w) for n, w in enumerate(windows) if w.before < 0 or w.after < 0]
    if not cut:
        return data
    return builder.emit(
        relax.op.strided_slice(
            data,
            [axis for axis, _ in cut],
            [relax.prim_value(max(0, -w.before)) for _, w in cut],
            [relax.prim_value(w.size - max(0, -w.after)) for _, w in cut],
        )
    )


def padding(windows: Sequence[Windows]) -> list[int]:
    """What operators of TVM take: all in front, then all at the end."""
    return [max(0, w.before) for w in windows] + [max(0, w.after) for w in windows]
