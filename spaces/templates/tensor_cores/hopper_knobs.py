"""Knobs of a product on Hopper's tensor cores: their values, their limits, and the sizes they give.

A warpgroup has tiles of both operands copied into shared memory, several stages ahead; others
multiply them (PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from spaces.targets.gpu import Gpu, register_limit
from spaces.templates.gpu_rates import SHARED_BYTES
from spaces.templates.products.product import Product
from spaces.templates.tensor_cores.tile import (
    GROUP,
    ITEM,
    LINE,
    PATTERN_BYTES,
    STAGES,
    SWAP,
    TERMS,
    count_places,
    count_stage_bytes,
    fits_lines,
)

CONSUMERS, PARTS, COLUMNS, DEPTH = "consumers", "parts", "columns", "depth"
PERSISTENT, BULK_STORES = "persistent", "bulk_stores"

WARPGROUP, ROWS = 128, 64
"""Threads of a warpgroup; rows of one instruction."""
_OTHER_REGISTERS = 40
"""Of a consumer's thread, besides its sums."""
_MANY_SUMS = 48
_PLACES = 56
"""Registers of a thread that copies, for where windows are."""
_BARRIER_BYTES = 16


@dataclass(frozen=True, slots=True)
class HopperTile:
    """See `spaces.templates.tensor_cores.tile.Tile`.

    Attributes:
        consumers: warpgroups that multiply; `parts` the instructions that each has for its rows.
    """

    swap: Any
    consumers: Any
    parts: Any
    columns: Any
    depth: Any
    stages: Any
    group: Any
    persistent: Any
    bulk_stores: Any

    @property
    def rows(self) -> Any:
        return ROWS * self.consumers * self.parts

    @property
    def sums(self) -> Any:
        return self.parts * self.columns // 2

    @property
    def threads(self) -> Any:
        return WARPGROUP * (1 + self.consumers)

    @property
    def copiers(self) -> Any:
        return WARPGROUP

    @property
    def apart(self) -> Any:
        return self.consumers

    def block_bytes(self, out_bits: int) -> Any:
        """See `Tile`."""
        result = self.bulk_stores * self.rows * self.columns * out_bits // 8
        return self.stages * (count_stage_bytes(self) + _BARRIER_BYTES) + result + PATTERN_BYTES

    def registers(self, gpu: Gpu) -> Any:
        """See `Tile`. With many sums the compiler honours `setmaxnreg`, and a block takes all."""
        few, all_of_them = self.sums + _OTHER_REGISTERS, register_limit(gpu, self.threads)
        return np.where(self.sums < _MANY_SUMS, few, all_of_them)

    def multiplying(self, gpu: Gpu, rate: float) -> Any:
        """See `Tile`. Small instructions take as long as their operands are read."""
        instructions = self.consumers * self.parts * self.depth / TERMS
        each = 2 * ROWS * self.columns * TERMS / (gpu.tensor_operations * rate)
        reading = (ROWS + self.columns) * TERMS * ITEM / SHARED_BYTES
        return instructions * np.maximum(each, reading)


def choices_of(product: Product) -> dict[str, tuple[int, ...]]:
    """Values of each knob."""
    columns: tuple[int, ...] = (8, 16, 24, 32, 48, 64, 96, 128, 160, 192, 224, 256)
    if all(product.turned):
        columns = tuple(number for number in columns if number % LINE == 0)
    return {
        SWAP: (0, 1),
        CONSUMERS: (1, 2, 3),
        PARTS: (1, 2),
        COLUMNS: columns,
        DEPTH: (64, 128),
        STAGES: (3, 4, 5, 6, 8),
        GROUP: (1, 2, 4, 8, 16),
        PERSISTENT: (0, 1),
        BULK_STORES: (0,) if product.out_dense is None else (0, 1),
    }


def tile_of(knobs: Mapping[str, Any]) -> HopperTile:
    """The sizes of a block, from its knobs."""
    names = (SWAP, CONSUMERS, PARTS, COLUMNS, DEPTH, STAGES, GROUP, PERSISTENT, BULK_STORES)
    return HopperTile(*(knobs[name] for name in names))


def feasible(product: Product, gpu: Gpu, tile: HopperTile) -> npt.NDArray[np.bool_]:
    """Whether each setting keeps to the limits of the hardware, whatever the shape."""
    good = tile.sums + _OTHER_REGISTERS <= register_limit(gpu, tile.threads)
    good &= tile.block_bytes(product.out_bits) <= gpu.dynamic_shared_bytes
    good &= fits_lines(product, tile)
    good &= count_places(product, tile) <= _PLACES
    return np.asarray(good, dtype=np.bool_)
