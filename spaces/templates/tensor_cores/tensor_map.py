"""Tensor maps: what copies of tiles know of a tensor in global memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spaces.templates.tensor_cores.layout import Dimension

_ENCODE = "runtime.cuTensorMapEncodeTiled"
SWIZZLES = {16: 0, 32: 1, 64: 2, 128: 3}
"""The driver's numbers of the patterns for lines of so many bytes."""

_UNIT = 16
"""Bytes that strides are multiples of."""


class TensorMap:
    """A map that the host makes before a launch.

    Args:
        T: TVM's script.
        dimensions: of the tensor, the dense one first.
        box: elements of a tile along the first two; of the others it has one.
        swizzle: by the driver's number.
    """

    def __init__(
        self,
        T: Any,
        tensor: Any,
        kind: str,
        item_bytes: int,
        dimensions: Sequence[Dimension],
        box: Sequence[int],
        swizzle: int,
    ) -> None:
        place = T.Bind(T.tvm_stack_alloca("tensormap", 1), T.handle("tensormap"))
        # The driver refuses a size of zero, with which nothing is launched.
        sizes = [_at_least(T, 1, dimension.size) for dimension in dimensions]
        strides = [_at_least(T, _UNIT, d.stride * item_bytes) for d in dimensions[1:]]
        boxes = [*box, *(1 for _ in sizes[2:])]
        ones = [1 for _ in sizes]
        rank = len(sizes)
        numbers = [*sizes, *strides, *boxes, *ones, 0, swizzle, 0, 0]
        T.evaluate(T.call_packed(_ENCODE, place, kind, rank, tensor.data, *numbers))
        self.address = T.address_of(place)


def _at_least(T: Any, least: int, size: Any) -> Any:
    return size if isinstance(size, int) else T.max(size, least)
