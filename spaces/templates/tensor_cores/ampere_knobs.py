"""Knobs of a product on tensor cores from Ampere on: their values, their limits, and the sizes they
give.

All threads copy tiles of both operands into shared memory, some stages ahead; each warp multiplies
rows by columns of its own (PTX ISA, "Warp Level Matrix Multiply-Accumulate Instructions").
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
    count_places,
    count_stage_bytes,
    fits_lines,
)

ROW_WARPS, COLUMN_WARPS = "row_warps", "column_warps"
ROW_PARTS, COLUMN_PARTS = "row_parts", "column_parts"

WARP, ROWS, COLUMNS = 32, 16, 8
"""Threads of a warp; rows and columns of one instruction."""
_PAIR = 2
"""Instructions' columns that are loaded together."""
_MOST_WARPS, _LEAST_WARPS = 8, 2
_OTHER_REGISTERS = 56
"""Of a thread, besides its sums and factors: addresses of what it copies and reads."""


@dataclass(frozen=True, slots=True)
class AmpereTile:
    """See `spaces.templates.tensor_cores.tile.Tile`.

    Attributes:
        row_warps: warps along the rows of A; `column_warps` along those of B.
        row_parts: instructions of a warp along the rows; `column_parts` along columns, in pairs.
    """

    swap: Any
    row_warps: Any
    column_warps: Any
    row_parts: Any
    column_parts: Any
    stages: Any
    group: Any
    persistent: Any = 0
    bulk_stores: Any = 0

    @property
    def rows(self) -> Any:
        return ROWS * self.row_parts * self.row_warps

    @property
    def columns(self) -> Any:
        return COLUMNS * _PAIR * self.column_parts * self.column_warps

    @property
    def depth(self) -> int:
        return LINE

    @property
    def warp_columns(self) -> Any:
        """Columns of a warp."""
        return COLUMNS * _PAIR * self.column_parts

    @property
    def sums(self) -> Any:
        return self.row_parts * self.warp_columns // 2

    @property
    def threads(self) -> Any:
        return WARP * self.row_warps * self.column_warps

    @property
    def copiers(self) -> Any:
        return self.threads

    @property
    def apart(self) -> int:
        return 1

    def block_bytes(self, out_bits: int) -> Any:
        """See `Tile`."""
        return self.stages * count_stage_bytes(self) + PATTERN_BYTES

    def registers(self, gpu: Gpu) -> Any:
        """See `Tile`: an estimate."""
        factors = 4 * self.row_parts + 2 * _PAIR
        return self.sums + factors + _OTHER_REGISTERS

    def multiplying(self, gpu: Gpu, rate: float) -> Any:
        """See `Tile`. Each warp reads its rows and its columns from shared memory."""
        operations = 2 * self.rows * self.columns * self.depth / (gpu.tensor_operations * rate)
        own = ROWS * self.row_parts + self.warp_columns
        read = self.row_warps * self.column_warps * own * self.depth * ITEM
        return np.maximum(operations, read / SHARED_BYTES)


def choices_of(product: Product) -> dict[str, tuple[int, ...]]:
    """Values of each knob."""
    return {
        SWAP: (0, 1),
        ROW_WARPS: (1, 2, 4),
        COLUMN_WARPS: (1, 2, 4),
        ROW_PARTS: (1, 2, 4),
        COLUMN_PARTS: (1, 2, 4),
        STAGES: (3, 4, 5),
        GROUP: (1, 2, 4, 8, 16),
    }


def tile_of(knobs: Mapping[str, Any]) -> AmpereTile:
    """The sizes of a block, from its knobs."""
    names = (SWAP, ROW_WARPS, COLUMN_WARPS, ROW_PARTS, COLUMN_PARTS, STAGES, GROUP)
    return AmpereTile(*(knobs[name] for name in names))


def feasible(product: Product, gpu: Gpu, tile: AmpereTile) -> npt.NDArray[np.bool_]:
    """Whether each setting keeps to the limits of the hardware, whatever the shape."""
    registers = tile.registers(gpu) + count_places(product, tile)
    good = registers <= register_limit(gpu, tile.threads)
    warps = tile.row_warps * tile.column_warps
    good &= (warps <= _MOST_WARPS) & (warps >= _LEAST_WARPS)
    good &= tile.block_bytes(product.out_bits) <= gpu.dynamic_shared_bytes
    good &= fits_lines(product, tile)
    return np.asarray(good, dtype=np.bool_)
