"""The launch of a GPU kernel, as far as a trace's decisions say it, against the device's limits."""

from __future__ import annotations

import math
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
        threads = self.warp * math.prod(extent.of(draws) for extent in self.threads.values())
        if not self.least <= threads <= min(self.most, self.gpu.threads):
            return f"{threads} threads"
        if any(lanes.of(draws) > most for lanes, most in self.vectors):
            return "too long vectors"
        if any(steps.of(draws) < 2 for steps in self.pipelined):
            return "nothing to copy ahead for"
        size = self.versions * sum(tile.bytes(draws) for tile in self.tiles)
        if size > self.gpu.shared_bytes:
            return f"{size} bytes of shared memory"
        if self.sums is None:
            return ""
        sums, limit = self.sums.of(draws), register_limit(self.gpu, threads)
        return f"{sums} registers of sums" if sums + _OTHER_REGISTERS > limit else ""
