"""How the windows of a product lie in the memory of a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from spaces.ir import tvm_compat
from spaces.templates.contraction.shape import Contraction
from spaces.templates.products.windows import Window, WindowIndex

UNIT = 16
"""Bytes of the widest load, and of what swizzles keep together; strides in tensor maps are
multiples of it."""
_MOST_DIMENSIONS = 5
"""Of a tensor map (CUDA driver API, "Tensor Map Object Managment")."""


@dataclass(frozen=True, slots=True)
class Layout:
    """A tensor and its windows. What is said holds for every size of dimensions that are open.

    Attributes:
        extents: of the axes of the contraction's block, numbers or expressions.
    """

    c: Contraction
    extents: Sequence[Any]
    tensor: Any
    window: Window

    @property
    def bits(self) -> int:
        """Of an element."""
        return tvm_compat.element_bits(self.tensor.dtype)

    @property
    def dense(self) -> set[int]:
        """The axes that the index of the innermost dimension depends on."""
        dims = [index for index in self.window if index.steps]
        return {axis for axis, _ in dims[-1].steps} if dims else set()

    def in_units(self, dense: Sequence[int]) -> bool:
        """Whether elements follow one another along the last of some axes that are fused, in runs
        that begin at multiples of 16 bytes, and so do these of all other axes.

        Args:
            dense: the axes, outer to inner.
        """
        each = UNIT * 8 // self.bits
        inner = self._follow(dense)
        sizes = [self.c.axes[axis].extent for axis in inner]
        if len(inner) < len(dense) and prod(sizes) % each:
            return False
        if any(self.c.axes[axis].symbolic for axis in inner) and len(inner) < len(dense):
            return False
        strides = self._strides()
        for index, stride in zip(self.window, strides, strict=True):
            if index.first * stride % each:
                return False
            for axis, step in index.steps:
                if axis in inner and index.guarded:
                    return False
                if axis == dense[-1] and step * stride != 1:
                    return False
                if axis not in inner and step * stride % each:
                    return False
        return any(axis == dense[-1] for index in self.window for axis, _ in index.steps)

    def is_mapped(self, fused: Sequence[Sequence[int]]) -> bool:
        """Whether a tensor map describes the tensor, of which each dimension is an axis, or several
        that follow one another: its strides but the dense one are multiples of 16 bytes.

        Args:
            fused: groups of axes, outer to inner.
        """
        own = [index for index in self.window if index.steps or index.first]
        if any(index.axis is None for index in own):
            return False
        axes = [index.axis for index in own]
        groups = [[axis for axis in group if axis in axes] for group in fused]
        if any(len(self._follow(group)) < len(group) for group in groups):
            return False
        beside = {axis for group in groups for axis in group[:-1]}
        strides = [
            stride * self.bits
            for index, stride in zip(self.window, self._strides(), strict=True)
            if index.steps and index.axis not in beside
        ]
        return len(strides) <= _MOST_DIMENSIONS and not any(s % (UNIT * 8) for s in strides[:-1])

    def _strides(self) -> list[int]:
        """From one element of each dimension to the next, in elements; of open dimensions as though
        they had one."""
        sizes = [tvm_compat.as_int(size) or 1 for size in self.tensor.shape]
        return [prod(sizes[dim + 1 :]) for dim in range(len(sizes))]

    def _follow(self, axes: Sequence[int]) -> tuple[int, ...]:
        """The last of some axes, and those before it whose fusion with it is one axis in memory."""
        found = [*axes[-1:]]
        for axis in reversed(axes[:-1]):
            if not self._adjacent(axis, found[0]):
                break
            found.insert(0, axis)
        return tuple(found)

    def _adjacent(self, before: int, after: int) -> bool:
        """Whether an axis begins anew where the next step of the one before it is."""
        dims = [self._dim(before), self._dim(after)]
        if dims[0] is None or dims[1] is None or after >= len(self.extents):
            return False
        between = [tvm_compat.as_int(size) for size in self.tensor.shape[dims[0] + 1 : dims[1]]]
        size, extent = self.tensor.shape[dims[1]], self.extents[after]
        return dims[0] < dims[1] and all(n == 1 for n in between) and is_same(size, extent)

    def _dim(self, axis: int) -> int | None:
        """The dimension whose index is an axis."""
        return next((dim for dim, index in enumerate(self.window) if index.axis == axis), None)


def is_same(one: Any, other: Any) -> bool:
    """Whether two sizes are equal, whatever open dimensions are."""
    from tvm import sym

    known = [tvm_compat.as_int(size) for size in (one, other)]
    if None not in known:
        return known[0] == known[1]
    return tvm_compat.as_int(sym.Analyzer().simplify(one - other)) == 0


def result_window(c: Contraction) -> Window:
    """How the result of a contraction is indexed."""
    found = []
    for dim in range(c.out_dims):
        own = [(i, a.out_step) for i, a in enumerate(c.axes) if a.out_dim == dim and not a.single]
        found.append(WindowIndex(tuple(own)))
    return tuple(found)
