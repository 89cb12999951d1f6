"""The launch of a GPU kernel, as far as a trace's decisions say it, against the device's limits."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from spaces.design_space.analysis.extents import Draws, Extent, Tile
from spaces.targets.gpu import STATIC_SHARED_BYTES, THREADS, gpu_of


@dataclass(frozen=True, slots=True)
class DeviceLimits:
    """What a block of threads may use."""

    threads: int = THREADS
    shared_bytes: int = STATIC_SHARED_BYTES

    @staticmethod
    def of(target_json: str) -> DeviceLimits:
        """The limits that a target states; CUDA's least where it does not."""
        gpu = gpu_of(target_json)
        return DeviceLimits(gpu.threads, gpu.shared_bytes)


@dataclass(frozen=True, slots=True)
class Launch:
    """What a sketch's kernel uses, as formulas of its draws.

    Attributes:
        threads: steps of the loops bound to threads, by axis; the last to be bound counts.
        warp: threads of the x axis where an intrinsic runs on a whole warp; else 1.
        tiles: in shared memory, that operands are read to. Results staged there come after these.
        versions: of each tile, by which a pipeline reads ahead.
        pipelined: steps of each loop that copies ahead, of which TVM wants more than one.
        vectors: draws of how many elements a thread copies to a tile at once, each with the most
            that TVM takes.
        least, most: threads that the rules want.
    """

    threads: dict[str, Extent]
    warp: int = 1
    tiles: tuple[Tile, ...] = ()
    versions: int = 1
    pipelined: tuple[Extent, ...] = ()
    vectors: tuple[tuple[Extent, int], ...] = ()
    least: int = 1
    most: int = THREADS
    limits: DeviceLimits = field(default_factory=DeviceLimits)

    def why_not(self, draws: Draws) -> str:
        """Why these draws give no kernel that the device takes; empty if they may."""
        threads = self.warp * math.prod(extent.of(draws) for extent in self.threads.values())
        if not self.least <= threads <= min(self.most, self.limits.threads):
            return f"{threads} threads"
        if any(lanes.of(draws) > most for lanes, most in self.vectors):
            return "too long vectors"
        if any(steps.of(draws) < 2 for steps in self.pipelined):
            return "nothing to copy ahead for"
        size = self.versions * sum(tile.bytes(draws) for tile in self.tiles)
        return f"{size} bytes of shared memory" if size > self.limits.shared_bytes else ""
