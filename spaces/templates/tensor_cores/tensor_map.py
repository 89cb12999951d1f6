"""Tensor maps: what copies of tiles know of a tensor in global memory (CUDA driver API, "Tensor Map
Object Managment")."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from spaces.ir import tvm_compat
from spaces.templates.products.layout import UNIT
from spaces.templates.products.places import multiply

_ENCODE = "runtime.cuTensorMapEncodeTiled"
SWIZZLES = {16: 0, 32: 1, 64: 2, 128: 3}
"""The driver's numbers of the patterns for lines of so many bytes."""
_TFLOAT32 = 11
"""CUDA driver API, `CUtensorMapDataType`."""


@dataclass(frozen=True, slots=True)
class Dimension:
    """One dimension of a tensor map.

    Attributes:
        size: in elements, a number or an expression; `stride` from one to the next.
    """

    size: Any
    stride: Any


def read_dimensions(
    buffer: Any, dims: Sequence[int | None], groups: Sequence[tuple[int, ...]]
) -> tuple[Dimension, ...]:
    """The dimensions of a buffer.

    Args:
        dims: for each axis the dimension of the buffer that it is the index of.
        groups: axes, fused, of each dimension; the dense one first. One that the buffer lacks has
            one element.
    """
    sizes = [*buffer.shape]
    found = []
    for axes in groups:
        own = [dim for axis in axes if (dim := dims[axis]) is not None]
        if own:
            size = multiply([sizes[dim] for dim in own])
            found.append(Dimension(size, multiply(sizes[own[-1] + 1 :])))
        else:
            dense = found[0].size if found else 1
            beyond = -(-dense // UNIT) * UNIT if isinstance(dense, int) else dense * UNIT
            found.append(Dimension(1, beyond))
    return tuple(found)


def encode_map(
    T: Any,
    tensor: Any,
    dimensions: Sequence[Dimension],
    box: Sequence[int],
    *,
    rounds: bool = False,
) -> Any:
    """Have the host make a map before a launch. Returns its address.

    Args:
        T: TVM's script.
        dimensions: of the tensor, the dense one first.
        box: elements of a tile along the first two, the first a line as wide as a swizzle; of the
            others it has one.
        rounds: whether copies round float32 to TF32 on their way to shared memory.
    """
    kind = str(tensor.dtype)
    item = tvm_compat.element_bits(kind) // 8
    place = T.Bind(T.tvm_stack_alloca("tensormap", 1), T.handle("tensormap"))
    # The driver refuses a size of zero, with which nothing is launched.
    sizes = [_at_least(T, 1, dimension.size) for dimension in dimensions]
    strides = [_at_least(T, UNIT, d.stride * item) for d in dimensions[1:]]
    boxes = [*box, *(1 for _ in sizes[2:])]
    ones = [1 for _ in sizes]
    last = [0, SWIZZLES[box[0] * item], 0, 0, *([_TFLOAT32] if rounds else [])]
    numbers = [len(sizes), tensor.data, *sizes, *strides, *boxes, *ones, *last]
    T.evaluate(T.call_packed(_ENCODE, place, kind, *numbers))
    return T.address_of(place)


def _at_least(T: Any, least: int, size: Any) -> Any:
    return size if isinstance(size, int) else T.max(size, least)
