"""A product's tensors by their dimensions, as the maps have them that copies of tiles go by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from spaces.ir import tvm_compat


@dataclass(frozen=True, slots=True)
class Dimension:
    """One dimension of a tensor map.

    Attributes:
        axes: of the contraction, fused, outer to inner; none where it has one element.
        size: in elements, a number or an expression; `stride` from one to the next.
    """

    axes: tuple[int, ...]
    size: Any
    stride: Any


def read_dimensions(
    buffer: Any, dims: Sequence[int | None], groups: Sequence[tuple[int, ...]]
) -> tuple[Dimension, ...]:
    """The dimensions of a buffer.

    Args:
        dims: for each axis the dimension of the buffer that it is the index of.
        groups: axes, each group one dimension; the dense one first.
    """
    sizes = [*buffer.shape]
    found = []
    for axes in groups:
        own = [dim for axis in axes if (dim := dims[axis]) is not None]
        if own:
            size = multiply([sizes[dim] for dim in own])
            found.append(Dimension(axes, size, multiply(sizes[own[-1] + 1 :])))
        else:
            found.append(Dimension((), 1, found[0].size if found else 1))
    return tuple(found)


def multiply(sizes: Sequence[Any]) -> Any:
    """The product of sizes, a number where all are known."""
    known = [tvm_compat.as_int(size) for size in sizes]
    found: Any = prod(size for size in known if size is not None)
    for size, number in zip(sizes, known, strict=True):
        if number is None:
            found = size * found
    return found
