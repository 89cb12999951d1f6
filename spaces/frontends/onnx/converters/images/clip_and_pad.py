"""`Clip` and `Pad` as operators of Relax.

TVM's importer makes programs of them at once, which no pass over the graph sees through: layouts
changed before and after each ReLU6, and before each convolution with uneven padding.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from spaces.frontends.onnx.node import Convert, Node
from spaces.frontends.onnx.sizes import Size
from spaces.ir import tvm_compat
from spaces.ir.element_types import NUMPY_FLOATS, is_float


def _clip(node: Node, builder: Any) -> Any:
    from tvm import relax

    data = node.input(0)
    if data is None:
        raise node.refused("it has no operand")
    tensor, bounds = data.tensor(builder), _bounds(node)
    if bounds is None or data.dtype not in NUMPY_FLOATS:
        return _clip_by_operands(node, builder, tensor)
    least, most = bounds
    if math.isfinite(least) and math.isfinite(most) and least <= most:
        return relax.op.clip(tensor, least, most)
    if least > -math.inf:
        tensor = builder.emit(relax.op.maximum(tensor, relax.const(least, data.dtype)))
    if most < math.inf:
        tensor = builder.emit(relax.op.minimum(tensor, relax.const(most, data.dtype)))
    return tensor


def _clip_by_operands(node: Node, builder: Any, tensor: Any) -> Any:
    """Bounds that only a run knows, or whole numbers."""
    from tvm import relax

    dtype = str(tensor.ty.dtype)
    for number, combine, none in (
        (1, relax.op.maximum, -math.inf),
        (2, relax.op.minimum, math.inf),
    ):
        if (value := node.input(number)) is None:
            continue
        bound = value.tensor(builder)
        if is_float(dtype):
            missing = builder.emit(relax.op.isnan(bound))
            bound = builder.emit(relax.op.where(missing, relax.const(none, dtype), bound))
        tensor = builder.emit(combine(tensor, bound))
    return tensor


def _bounds(node: Node) -> tuple[float, float] | None:
    """Both bounds, infinite where there is none; None where one is not known ahead.

    They are attributes below version 11. A bound that is no number is none, as onnxruntime has it.
    """
    found = []
    for number, (name, none) in enumerate((("min", -math.inf), ("max", math.inf)), start=1):
        bound = _number(node, number, name, none)
        if bound is None:
            return None
        found.append(none if math.isnan(bound) else bound)
    return found[0], found[1]


def _pad(node: Node, builder: Any) -> Any:
    from tvm import relax

    data, dims = node.input(0), node.dims(0)
    pads, value = node.listed("pads", 1), _number(node, 2, "value", 0.0)
    if data is None or data.expression is None or dims is None or pads is None:
        return None
    mode = node.attributes.get("mode", b"constant")
    mode = mode.decode() if isinstance(mode, bytes) else mode
    axes = node.numbers(3) if node.input(3) is not None else [*range(len(dims))]
    if axes is None or len(pads) != 2 * len(axes):
        return None
    widths = [0] * (2 * len(dims))
    for place, axis in enumerate(axes):
        widths[2 * (axis % len(dims))] = pads[place]
        widths[2 * (axis % len(dims)) + 1] = pads[place + len(axes)]
    if mode in ("reflect", "edge", "wrap"):
        return _repeat(node, builder, dims, widths, mode)
    if mode != "constant" or value is None or data.dtype not in NUMPY_FLOATS or min(widths) < 0:
        return None
    return relax.op.nn.pad(data.tensor(builder), widths, pad_value=value)


def _repeat(
    node: Node, builder: Any, dims: Sequence[Size], widths: Sequence[int], mode: str
) -> Any:
    """Rows picked by number, where padding is longer than what it repeats, or of an axis that is
    cut as well: TVM would read beyond the end, or what is cut off. None elsewhere."""
    from tvm import relax

    data = node.input(0)
    assert data is not None, "Pad has an operand"
    rows: dict[int, Any] = {}
    needed = False
    for axis, size in enumerate(dims):
        before, after = widths[2 * axis : 2 * axis + 2]
        longest, cut = max(before, after), min(before, after, 0)
        most = size if mode == "wrap" else size - 1
        if isinstance(size, int):
            repeats = longest > 0 and (cut < 0 or (mode != "edge" and longest > most))
            needed = needed or repeats
            left = np.arange(size)[max(0, -before) : size + min(0, after)]
            ends = max(0, before), max(0, after)
            if before or after:
                rows[axis] = np.pad(left, ends, mode=mode)  # type: ignore[call-overload]
        elif longest > 0 > cut:
            raise node.refused(f"it cuts and repeats ({mode}) an axis whose size is not known")
        elif longest > 0 and mode != "edge":
            node.require(longest, most)
    if not needed:
        return None
    if any(n not in rows and any(widths[2 * n : 2 * n + 2]) for n in range(len(dims))):
        raise node.refused(f"it cuts or repeats ({mode}) axes in more than one way")
    tensor = data.tensor(builder)
    for axis, numbers in rows.items():
        tensor = builder.emit(relax.op.take(tensor, relax.const(numbers, "int64"), axis))
    return tensor


def _number(node: Node, operand: int, attribute: str, default: float) -> float | None:
    """A number that is an attribute in older versions, an operand in newer; None where it is not
    known ahead."""
    given = node.input(operand)
    if given is None:
        return float(node.attributes.get(attribute, default))
    if tvm_compat.is_constant(given.expression) and given.expression.value.numpy().size == 1:
        return float(given.expression.value.numpy().item())
    return None


CLIP_AND_PAD: Mapping[str, Convert] = MappingProxyType({"Clip": _clip, "Pad": _pad})
