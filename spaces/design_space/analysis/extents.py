"""Extents of loops as products of what sampling instructions drew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Draws = Sequence[Sequence[int]]
"""The integers that each sampling instruction of a trace gave, in order."""
Reference = tuple[int, int]
"""A sampling instruction's number, and that of one of its results."""


@dataclass(frozen=True, slots=True)
class Extent:
    """A product of a constant and of results of sampling instructions."""

    constant: int = 1
    drawn: tuple[Reference, ...] = ()

    def of(self, draws: Draws) -> int:
        """Its value."""
        value = self.constant
        for number, result in self.drawn:
            value *= draws[number][result]
        return value

    def times(self, other: Extent) -> Extent:
        """The product of both."""
        return Extent(self.constant * other.constant, (*self.drawn, *other.drawn))


def product(extents: Sequence[Extent]) -> Extent:
    """The product of all."""
    whole = Extent()
    for extent in extents:
        whole = whole.times(extent)
    return whole


@dataclass(frozen=True, slots=True)
class Reach:
    """The number of places along one dimension of a tensor that some loops reach.

    Attributes:
        base: places that one step of the loops reaches.
        steps: for each axis that moves it: places for each step, and the number of its steps.
    """

    base: int
    steps: tuple[tuple[int, Extent], ...]

    def of(self, draws: Draws) -> int:
        """Its value."""
        return self.base + sum(by * (extent.of(draws) - 1) for by, extent in self.steps)


@dataclass(frozen=True, slots=True)
class Alignment:
    """Padding between the steps along a dimension: their distance modulo `factor` is `offset`."""

    dim: int
    factor: int
    offset: int


@dataclass(frozen=True, slots=True)
class Tile:
    """A part of a tensor that is kept in a memory of its own, `element_bytes` for each element."""

    dims: tuple[Reach, ...]
    element_bytes: int
    alignment: Alignment | None = None

    def bytes(self, draws: Draws) -> int:
        """Its size."""
        sizes = [reach.of(draws) for reach in self.dims]
        apart = 1  # elements between two steps along a dimension
        for dim in range(len(sizes) - 1, -1, -1):
            align = self.alignment
            if align is not None and dim == align.dim % len(sizes):
                apart += (align.offset - apart) % align.factor
            apart *= sizes[dim]
        return self.element_bytes * apart
