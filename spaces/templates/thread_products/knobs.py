"""Knobs of a product that threads multiply: their values, their limits, and the sizes they give.

All threads of a block copy tiles of both operands into shared memory, some stages ahead. Each then
multiplies rows by columns of its own, which it reads in vectors of four.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from spaces.targets.gpu import COPIES_AHEAD, WARP, Gpu, register_limit
from spaces.templates.gpu_rates import MOST_LEFT_BYTES
from spaces.templates.products.product import Product
from spaces.templates.products.totals import SPLIT_COUNTS, SPLITS, count_left_bytes

ROW_VECTORS, COLUMN_VECTORS = "row_vectors", "column_vectors"
ROW_WARPS, COLUMN_WARPS, ROW_LANES = "row_warps", "column_warps", "row_lanes"
DEPTH, STAGES, GROUP = "depth", "stages", "group"

VECTOR, ITEM = 4, 4
"""Numbers of a vector, of 16 bytes, and bytes of one."""
SECTOR = 8
"""Numbers of 32 bytes, which caches keep together."""
_MOST_THREADS, _LEAST_WARPS = 512, 2
_MOST_COPIES, _MOST_WINDOWS = 32, 16
"""Of a thread in a stage; fewer of windows, since it takes registers to find each of them."""
_MOST_PRODUCTS = 2048
"""Of a thread in a stage, which are written one by one."""
_OTHER_REGISTERS = 40
"""Of a thread, besides sums and factors: addresses of what it copies and reads."""
_PLACE_REGISTERS = 2
"""Of a row that a copy begins in, as far as the compiler's spills tell."""
_OPEN_REGISTERS = 16
"""Of a thread, for sizes of windows that are open."""


@dataclass(frozen=True, slots=True)
class ThreadTile:
    """The sizes that follow from a setting, or from many as arrays.

    Attributes:
        row_vectors: of a thread; `column_vectors` likewise.
        row_warps: warps along the rows; `column_warps` along the columns.
        row_lanes: threads of a warp along the rows.
        depth: terms of a stage.
        stages: of shared memory.
        group: tiles of rows whose blocks follow one another.
        splits: blocks that share the terms of a sum.
    """

    row_vectors: Any
    column_vectors: Any
    row_warps: Any
    column_warps: Any
    row_lanes: Any
    depth: Any
    stages: Any
    group: Any
    splits: Any

    @property
    def column_lanes(self) -> Any:
        return WARP // self.row_lanes

    @property
    def rows(self) -> Any:
        """Rows of a block's tile; `columns` likewise."""
        return VECTOR * self.row_vectors * self.row_lanes * self.row_warps

    @property
    def columns(self) -> Any:
        return VECTOR * self.column_vectors * self.column_lanes * self.column_warps

    @property
    def threads(self) -> Any:
        return WARP * self.row_warps * self.column_warps

    @property
    def sums(self) -> Any:
        """Sums of a thread."""
        return VECTOR * VECTOR * self.row_vectors * self.column_vectors

    @property
    def shared_bytes(self) -> Any:
        return self.stages * (self.rows + self.columns) * self.depth * ITEM


def choices_of(product: Product, gpu: Gpu) -> dict[str, tuple[int, ...]]:
    """Values of each knob on a device."""
    # Of two operands with dense terms the columns' factors take most registers, and copies others,
    # or places of those.
    is_few = copies_ahead(gpu) and not any(_is_open(product, operand) for operand in range(2))
    has_room = is_few or any(product.turned)
    return {
        ROW_VECTORS: (1, 2, 4),
        COLUMN_VECTORS: (1, 2, 4) if has_room else (1, 2),
        ROW_WARPS: (1, 2, 4, 8),
        COLUMN_WARPS: (1, 2, 4, 8),
        ROW_LANES: (4, 8),
        DEPTH: (8, 16, 32),
        STAGES: (3, 4, 5) if copies_ahead(gpu) else (2,),
        GROUP: (1, 2, 4, 8, 16),
        SPLITS: SPLIT_COUNTS,
    }


def copies_ahead(gpu: Gpu) -> bool:
    """Whether a device copies to shared memory while its threads go on."""
    return gpu.architecture >= COPIES_AHEAD


def tile_of(knobs: Mapping[str, Any]) -> ThreadTile:
    """The sizes of a setting, or of many."""
    names = (ROW_VECTORS, COLUMN_VECTORS, ROW_WARPS, COLUMN_WARPS, ROW_LANES)
    return ThreadTile(*(knobs[name] for name in (*names, DEPTH, STAGES, GROUP, SPLITS)))


def count_copies(product: Product, tile: ThreadTile, operand: int) -> Any:
    """Copies of an operand by each thread in a stage."""
    rows = tile.rows if operand == product.c.rows_of else tile.columns
    return np.maximum(rows * tile.depth // (width_of(product, operand) * tile.threads), 1)


def count_addresses(product: Product, tile: ThreadTile, operand: int) -> Any:
    """Addresses of those copies: where terms are copied a few at a time, of those of a row one."""
    copies = count_copies(product, tile, operand)
    if product.turned[operand] or width_of(product, operand) == VECTOR:
        return copies
    return copies // np.minimum(tile.depth // SECTOR, copies)


def width_of(product: Product, operand: int) -> int:
    """Elements of an operand that a copy takes: rows begin at multiples of them."""
    return min(product.widest(operand), VECTOR)


def span_of(product: Product, operand: int) -> int:
    """Terms that a thread reads at once of an operand."""
    return 1 if product.turned[operand] else VECTOR


def late_of(product: Product) -> int | None:
    """The operand of which a thread reads factors into the registers of those that it has just
    used: of one whose terms are dense that saves many."""
    sides = product.c.rows_of, product.c.columns_of
    return next((number for number in sides if not product.turned[number]), None)


def count_registers(product: Product, gpu: Gpu, tile: ThreadTile) -> Any:
    """Registers of a thread: an estimate."""
    sides = ((product.c.rows_of, tile.row_vectors), (product.c.columns_of, tile.column_vectors))
    factors = sum(
        (2 - (number == late_of(product))) * VECTOR * vectors * span_of(product, number)
        for number, vectors in sides
    )
    held = sum(
        _count_held(product, tile, number)
        for number, packed in enumerate(product.packed)
        if not copies_ahead(gpu) or packed is not None
    )
    places = sum(_count_places(product, tile, n) for n in range(2))
    return tile.sums + factors + held + places + _OTHER_REGISTERS


def _count_places(product: Product, tile: ThreadTile, operand: int) -> Any:
    """Registers for the rows of an operand that a thread copies from: of an open number each is
    kept within it by itself, and of windows the place on each axis, as that of its terms."""
    copies = count_copies(product, tile, operand)
    if not product.slides(operand):
        return _PLACE_REGISTERS * copies if _is_open(product, operand) else 0
    rows = _count_rows(product, tile, operand)
    found = (_PLACE_REGISTERS + len(product.axes_of(operand))) * rows
    found = found + len(product.terms) * np.maximum(copies // rows, 1)
    return found + _OPEN_REGISTERS * product.c.symbolic


def _count_rows(product: Product, tile: ThreadTile, operand: int) -> Any:
    """Rows of an operand that a thread copies from: where these are dense, and its copies are all
    of other terms, there is one."""
    copies = count_copies(product, tile, operand)
    if not product.turned[operand]:
        return count_addresses(product, tile, operand)
    rows = tile.rows if operand == product.c.rows_of else tile.columns
    lines = tile.threads // np.minimum(rows // width_of(product, operand), WARP)
    return np.minimum(np.maximum(copies * lines // tile.depth, 1), copies)


def _is_open(product: Product, operand: int) -> bool:
    """Whether the number of an operand's rows is known only when the program runs."""
    return any(product.c.axes[axis].symbolic for axis in product.axes_of(operand))


def _count_held(product: Product, tile: ThreadTile, operand: int) -> Any:
    """Elements of an operand that a thread has under way."""
    return count_copies(product, tile, operand) * width_of(product, operand)


def feasible(product: Product, gpu: Gpu, tile: ThreadTile) -> npt.NDArray[np.bool_]:
    """Whether each setting keeps to the limits of the hardware, whatever the shape.

    Args:
        product: of the largest shape.
    """
    good = count_registers(product, gpu, tile) <= register_limit(gpu, tile.threads)
    good &= tile.threads <= np.minimum(_MOST_THREADS, gpu.threads)
    good &= tile.threads >= _LEAST_WARPS * WARP
    good &= tile.shared_bytes <= gpu.dynamic_shared_bytes
    good &= tile.sums * tile.depth <= _MOST_PRODUCTS
    good &= count_left_bytes(product, tile.splits) <= MOST_LEFT_BYTES
    for operand in range(2):
        most = _MOST_WINDOWS if product.slides(operand) else _MOST_COPIES
        good &= count_copies(product, tile, operand) <= most
    return np.asarray(good, dtype=np.bool_)
