"""The launch of a GPU kernel, as far as a trace's decisions say it, against the device's limits."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from spaces.design_space.analysis.extents import Draws, Extent, Tile
from spaces.targets.gpu import THREADS, Gpu, register_limit

_OTHER_REGISTERS = 40
"""Of a thread, besides its sums: addresses, counts, and factors of what it multiplies."""


@dataclass(frozen=True, slots=True)
class Launch:
    """What a sketch's kernel uses, as formulas of its draws.

    Attributes:
        gpu: the device.
        threads: steps of the loops bound to threads, by axis; the last to be bound counts.
        warp: threads of the x axis where an intrinsic runs on a whole warp; else 1.
        tiles: in shared memory, that operands are read to. Results staged there come after these.
        versions: of each tile, by which a pipeline reads ahead.
        pipelined: steps of each loop that copies ahead, of which TVM wants more than one.
        vectors: draws of how many elements a thread copies to a tile at once, each with the most
            that TVM takes.
        sums: registers in which a thread keeps its sums; None where it is not known to keep any.
        least, most: threads that the rules want.
    """

    gpu: Gpu
    threads: dict[str, Extent]
    warp: int = 1
    tiles: tuple[Tile, ...] = ()
    versions: int = 1
    pipelined: tuple[Extent, ...] = ()
    vectors: tuple[tuple[Extent, int], ...] = ()
    sums: Extent | None = None
    least: int = 1
    most: int = THREADS

    def why_not(self, draws: Draws) -> str:
        """Why these draws give no kernel that the device takes; empty if they may."""
        return next((d.describe() for d in self._find_demands(draws) if d.excess), "")

    def count_excess(self, draws: Draws) -> float:
        """How far these draws are from a kernel that the device takes, in doublings of what is too
        much and of what is too little."""
        return sum(demand.excess for demand in self._find_demands(draws))

    def _find_demands(self, draws: Draws) -> Iterator[_Demand]:
        threads = self.warp * math.prod(extent.of(draws) for extent in self.threads.values())
        yield _Demand("threads", threads, min(self.most, self.gpu.threads), self.least)
        for lanes, most in self.vectors:
            yield _Demand("elements of a vector", lanes.of(draws), most)
        for steps in self.pipelined:
            yield _Demand("steps to copy ahead for", steps.of(draws), least=2)
        # Of a tile that goes backwards a size is negative, and says nothing.
        size = max(self.versions * sum(tile.bytes(draws) for tile in self.tiles), 0)
        yield _Demand("bytes of shared memory", size, self.gpu.shared_bytes)
        if self.sums is not None:
            room = register_limit(self.gpu, threads) - _OTHER_REGISTERS
            yield _Demand("registers of sums", self.sums.of(draws), max(int(room), 1))


@dataclass(frozen=True, slots=True)
class _Demand:
    """What a kernel asks a device for, and how much, or how little, it may."""

    name: str
    number: int
    most: float = math.inf
    least: int = 0

    @property
    def excess(self) -> float:
        """Doublings, or halvings, that it is beyond that."""
        if self.number > self.most:
            return math.log2(self.number / self.most)
        return math.log2(self.least / self.number) if self.number < self.least else 0.0

    def describe(self) -> str:
        """It in words."""
        return f"{self.number} {self.name}"
