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
from spaces.templates.gpu_rates import ISSUED, MOST_LEFT_BYTES, SHARED_BYTES
from spaces.templates.products.product import Product
from spaces.templates.products.runs import read_run_blocks, run_choices
from spaces.templates.products.totals import SPLIT_COUNTS, SPLITS, count_left_bytes
from spaces.templates.tensor_cores.tile import (
    BYTES,
    GROUP,
    LINE_BYTES,
    PATTERN_BYTES,
    STAGES,
    SWAP,
    Element,
    count_block_bytes,
    count_held,
    count_places,
    count_stage_bytes,
    fits_lines,
)
from spaces.templates.tensor_cores.warpgroups import ROWS, WARPGROUP

CONSUMERS, PARTS, COLUMNS, DEPTH = "consumers", "parts", "columns", "depth"
PERSISTENT, BULK_STORES = "persistent", "bulk_stores"
A_BLOCKS, B_BLOCKS = "a_blocks", "b_blocks"

_BLOCKS = (1, 2)
"""Along one side of a cluster. A device need not take more than eight in all (CUDA C++ Programming
Guide, "Thread Block Clusters")."""
_PATTERN_LINES = PATTERN_BYTES // LINE_BYTES

_OTHER_REGISTERS = 40
"""Of a consumer's thread, besides its sums."""
_PLACES = 56
"""Registers of a thread that copies, for where windows are, and for codes."""
_BARRIER_BYTES = 16


@dataclass(frozen=True, slots=True)
class HopperTile:
    """See `spaces.templates.tensor_cores.tile.Tile`.

    Attributes:
        consumers: warpgroups that multiply; `parts` the instructions that each has for its rows.
        a_blocks, b_blocks: see `spaces.templates.tensor_cores.cluster.Cluster`.
    """

    element: Element
    swap: Any
    consumers: Any
    parts: Any
    columns: Any
    depth: Any
    stages: Any
    group: Any
    splits: Any
    run_blocks: Any
    persistent: Any
    bulk_stores: Any
    a_blocks: Any
    b_blocks: Any

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
        return self.stages * (count_stage_bytes(self) + _BARRIER_BYTES) + result

    def registers(self, gpu: Gpu) -> Any:
        """See `Tile`: an estimate. The compiler honours `setmaxnreg`, with which a block takes all
        there are, only where it has about that many sums."""
        return self.sums * (2 if self.element.apart else 1) + _OTHER_REGISTERS

    def multiplying(self, gpu: Gpu, rate: float) -> Any:
        """See `Tile`. Small instructions take as long as their operands are read."""
        terms, item = self.element.terms, self.element.bytes
        instructions = self.consumers * self.parts * self.depth / terms
        each = 2 * ROWS * self.columns * terms / (gpu.count_tensor_operations(8 * item) * rate)
        reading = (ROWS + self.columns) * terms * item / SHARED_BYTES
        found = instructions * np.maximum(each, reading)
        if not self.element.apart:
            return found
        # While a warpgroup waits for sums and adds them, others multiply.
        added = self.sums * WARPGROUP / ISSUED * self.depth / self.element.apart
        return np.maximum(found, found / self.consumers + added)


def choices_of(element: Element, product: Product) -> dict[str, tuple[int, ...]]:
    """Values of each knob."""
    columns: tuple[int, ...] = (8, 16, 24, 32, 48, 64, 96, 128, 160, 192, 224, 256)
    if element is BYTES:  # TVM 0.27 knows no instruction of so many columns
        columns = columns[:-1]
    if all(product.turned):
        columns = tuple(number for number in columns if number % element.line == 0)
    # Rows that look up matrices have other tiles than a grid knows, and store parts of them.
    alone = product.look_up is not None
    blocks = _BLOCKS if any(product.mapped) and not alone else (1,)
    return {
        SWAP: (0, 1),
        CONSUMERS: (1, 2, 3),
        PARTS: (1, 2),
        COLUMNS: columns,
        DEPTH: (element.line, 2 * element.line),
        STAGES: (3, 4, 5, 6, 8),
        GROUP: (1, 2, 4, 8, 16),
        SPLITS: SPLIT_COUNTS,
        PERSISTENT: (0,) if alone else (0, 1),
        BULK_STORES: (0,) if alone or product.out_dense is None else (0, 1),
        A_BLOCKS: blocks,
        B_BLOCKS: blocks,
        **run_choices(product),
    }


def tile_of(element: Element, knobs: Mapping[str, Any]) -> HopperTile:
    """The sizes of a block, from its knobs."""
    sizes = (SWAP, CONSUMERS, PARTS, COLUMNS, DEPTH, STAGES, GROUP, SPLITS)
    others = (PERSISTENT, BULK_STORES, A_BLOCKS, B_BLOCKS)
    known = [*(knobs[name] for name in sizes), read_run_blocks(knobs)]
    return HopperTile(element, *known, *(knobs[name] for name in others))


def feasible(product: Product, gpu: Gpu, tile: HopperTile) -> npt.NDArray[np.bool_]:
    """Whether each setting keeps to the limits of the hardware, whatever the shape.

    Args:
        product: of the largest shape.
    """
    good = tile.registers(gpu) <= register_limit(gpu, tile.threads)
    good &= count_block_bytes(product, tile) <= gpu.dynamic_shared_bytes
    good &= fits_lines(product, tile)
    good &= count_left_bytes(product, tile.splits) <= MOST_LEFT_BYTES
    good &= (tile.splits == 1) | (tile.bulk_stores == 0)
    good &= count_places(product, tile) + count_held(product, tile) <= _PLACES
    good &= fits_cluster(product, tile)
    return np.asarray(good, dtype=np.bool_)


def fits_cluster(product: Product, tile: HopperTile) -> Any:
    """Whether blocks may share the copies of tiles: tensor maps copy them, and each block's share
    is of whole patterns of a swizzle. What threads copy goes to their own block alone."""
    good: Any = tile.columns % (_PATTERN_LINES * tile.a_blocks) == 0
    for operand in range(2):
        if not product.mapped[operand]:
            is_a = tile.swap == (operand == product.c.columns_of)
            good = good & (np.where(is_a, tile.b_blocks, tile.a_blocks) == 1)
    return good
