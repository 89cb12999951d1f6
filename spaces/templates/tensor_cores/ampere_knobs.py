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

from spaces.targets.gpu import HOPPER, Gpu, register_limit
from spaces.templates.gpu_rates import ISSUED, MOST_LEFT_BYTES, SHARED_BYTES
from spaces.templates.products.layout import UNIT
from spaces.templates.products.product import Product
from spaces.templates.products.runs import read_run_blocks, run_choices
from spaces.templates.products.totals import SPLIT_COUNTS, SPLITS, count_left_bytes
from spaces.templates.tensor_cores.tile import (
    GROUP,
    SINGLES,
    STAGES,
    SWAP,
    TF32,
    WIDENED,
    Element,
    count_block_bytes,
    count_held,
    count_places,
    count_rows,
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
_APART_REGISTERS = 32
"""Of a thread that takes factors apart: what it loaded, and sums of instructions under way."""
_WORD_REGISTERS, _PIECE_REGISTERS = 56, 2
"""More of a thread that takes factors apart which it reads word by word, since their rows lie next
to one another; and of each of its copies of such, where a line is no power of two of these. As far
as the compiler's spills tell."""
_FRAGMENT_REGISTERS, _UNEVEN_REGISTERS = 4, 48
"""Of what a thread has of one instruction's rows, or of two of its columns; and for where words
lie, if warps begin within lines of them, so that this is another place for each part. The latter as
far as the compiler's spills tell."""
_WIDENED_REGISTERS, _ROUGH_REGISTERS = 8, 64
"""Of a thread that makes halves of factors: what it loaded; of one whose sums leave the tensor
cores: those of instructions under way, of which the compiler has many at once."""
_WARP_RATE = 0.63
"""The share of Hopper's rate that instructions of single warps reach (Luo et al., "Benchmarking and
Dissecting the Nvidia Hopper GPU Architecture via Microbenchmarking", arXiv 2402.13499)."""
_ISSUES = ((SINGLES, 6.0), (TF32, 1.0), (WIDENED, 0.5))
"""Instructions of a thread for an element that it reads: one in single precision is taken apart, or
rounded, one of 8 bits is made a half."""


@dataclass(frozen=True, slots=True)
class AmpereTile:
    """See `spaces.templates.tensor_cores.tile.Tile`.

    Attributes:
        row_warps: warps along the rows of A; `column_warps` along those of B.
        row_parts: instructions of a warp along the rows; `column_parts` along columns, in pairs.
    """

    element: Element
    swap: Any
    row_warps: Any
    column_warps: Any
    row_parts: Any
    column_parts: Any
    stages: Any
    group: Any
    splits: Any
    run_blocks: Any
    persistent: Any = 0
    bulk_stores: Any = 0
    a_blocks: Any = 1
    b_blocks: Any = 1

    @property
    def rows(self) -> Any:
        return ROWS * self.row_parts * self.row_warps

    @property
    def columns(self) -> Any:
        return COLUMNS * _PAIR * self.column_parts * self.column_warps

    @property
    def depth(self) -> int:
        return self.element.line

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
        return self.stages * count_stage_bytes(self)

    def registers(self, gpu: Gpu) -> Any:
        """See `Tile`: an estimate."""
        factors = 4 * self.row_parts + 2 * _PAIR
        if self.element is SINGLES:
            factors = 2 * factors + _APART_REGISTERS
        elif self.element is WIDENED:
            factors = 2 * factors + _WIDENED_REGISTERS
        elif self.element.apart:
            factors = factors + _ROUGH_REGISTERS
        return self.sums + factors + _OTHER_REGISTERS

    def multiplying(self, gpu: Gpu, rate: float) -> Any:
        """See `Tile`. Each warp reads its rows and its columns from shared memory, and takes those
        in single precision apart, or rounds them."""
        element = self.element
        operations = 2 * self.rows * self.columns * self.depth * element.products
        if gpu.architecture == HOPPER:
            rate = rate * _WARP_RATE
        multiplying = operations / (gpu.count_tensor_operations(8 * element.bytes) * rate)
        warps = self.row_warps * self.column_warps
        own = (ROWS * self.row_parts + self.warp_columns) * self.depth
        found = np.maximum(multiplying, warps * own * element.bytes / SHARED_BYTES)
        issued = own * next((each for kind, each in _ISSUES if kind is element), 0.0)
        if element is SINGLES or element.apart:
            issued = issued + ROWS * self.row_parts * self.warp_columns * self.depth / element.terms
        return np.maximum(found, warps * issued / ISSUED)


def choices_of(product: Product) -> dict[str, tuple[int, ...]]:
    """Values of each knob."""
    return {
        SWAP: (0, 1),
        ROW_WARPS: (1, 2, 4),
        COLUMN_WARPS: (1, 2, 4),
        ROW_PARTS: (1, 2, 3, 4, 5),
        COLUMN_PARTS: (1, 2, 3, 4, 5),
        STAGES: (3, 4, 5),
        GROUP: (1, 2, 4, 8, 16),
        SPLITS: SPLIT_COUNTS,
        **run_choices(product),
    }


def tile_of(element: Element, knobs: Mapping[str, Any]) -> AmpereTile:
    """The sizes of a block, from its knobs."""
    names = (SWAP, ROW_WARPS, COLUMN_WARPS, ROW_PARTS, COLUMN_PARTS, STAGES, GROUP, SPLITS)
    return AmpereTile(element, *[*(knobs[name] for name in names), read_run_blocks(knobs)])


def feasible(product: Product, gpu: Gpu, tile: AmpereTile) -> npt.NDArray[np.bool_]:
    """Whether each setting keeps to the limits of the hardware, whatever the shape.

    Args:
        product: of the largest shape.
    """
    words = _count_of_words(product, tile)
    # Places on known axes the compiler finds again where it has no registers for them: it divides
    # by constants. As far as its spills tell not where words are read.
    places = np.where(product.c.symbolic | (words > 0), count_places(product, tile), 0)
    registers = tile.registers(gpu) + words + places + count_held(product, tile)
    good = registers <= register_limit(gpu, tile.threads)
    warps = tile.row_warps * tile.column_warps
    good &= (warps <= _MOST_WARPS) & (warps >= _LEAST_WARPS)
    good &= count_block_bytes(product, tile) <= gpu.dynamic_shared_bytes
    good &= fits_lines(product, tile)
    good &= count_left_bytes(product, tile.splits) <= MOST_LEFT_BYTES
    return np.asarray(good, dtype=np.bool_)


def _count_of_words(product: Product, tile: AmpereTile) -> Any:
    """Registers of a thread for factors in 32 bits which it reads word by word, since their rows
    lie next to one another, besides those of any layout: those that are rounded it has of all parts
    at once, as they are and rounded."""
    found: Any = 0
    turned = [operand for operand in range(2) if product.turned[operand]]
    if tile.element is TF32:
        for operand in turned:
            is_a = tile.swap == (operand == product.c.columns_of)
            parts = np.where(is_a, tile.row_parts, tile.column_parts)
            is_uneven = parts * ROWS % tile.element.line > 0
            found = found + _FRAGMENT_REGISTERS * parts + _UNEVEN_REGISTERS * is_uneven
    elif tile.element is SINGLES and turned:
        found = found + _WORD_REGISTERS
        for operand in turned:
            pieces = count_rows(product, tile, operand) * tile.element.bytes // UNIT
            copies = -(-pieces * tile.depth // tile.threads)
            found = found + np.where(pieces & (pieces - 1), _PIECE_REGISTERS * copies, 0)
    return found
