"""What a product that threads multiply is estimated to take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from spaces.targets.gpu import WARP, Gpu, count_resident
from spaces.templates import gpu_rates as rates
from spaces.templates.base import as_rows
from spaces.templates.products.product import Product
from spaces.templates.products.totals import SUM_BYTES, count_left_bytes
from spaces.templates.products.traffic import count_moved
from spaces.templates.thread_products import knobs as k

_WAVEFRONTS = 2.0
"""Cycles in which a warp reads a vector that half its threads share."""
_ADDRESS_ISSUES, _STEP_ISSUES = 2.0, 40.0
"""Instructions of a thread for an address of a copy, and for a step besides: stages, branches."""
_STEP_CYCLES = 60.0
"""Of a step's barrier."""
_LATE = 0.05
"""The share of a copy's time by which some come late, however far ahead they began."""
_SUSTAINED = 0.95
"""The share of the units' rate that is kept up: factors in one bank of registers wait."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """The parts of an analytic estimate, each an array over settings or over shapes.

    Attributes:
        multiplying: cycles in which a multiprocessor starts the products of a step of a block;
            `issuing` those of all its instructions, `reading` those of shared memory, `fetching`
            those in which its operands come from the L2 cache.
        tiles: tiles of the whole product, one for each share of its terms; `waves` rounds of them
            over the multiprocessors.
        resident: blocks that share a multiprocessor.
        steps: of a block.
        padded: multiply-adds, padding included, for each one that is needed.
        streaming: cycles in which the device's memory moves the operands and the result.
        cycles: total cycles of the program.
    """

    multiplying: Any
    issuing: Any
    reading: Any
    fetching: Any
    tiles: Any
    waves: Any
    resident: Any
    steps: Any
    padded: Any
    streaming: Any
    cycles: Any


def estimate(product: Product, gpu: Gpu, tile: k.ThreadTile) -> Estimate:
    """Estimate rounds of tiles; a step takes the slowest of products, instructions, shared memory,
    copies, and of waiting for them."""
    c = product.c
    rows, width = product.extent(c.rows_of), product.extent(c.columns_of)
    tiles = rates.ceil(rows, tile.rows), rates.ceil(width, tile.columns)
    steps = rates.ceil(product.depth, tile.depth * tile.splits)
    number = tiles[0] * tiles[1] * product.batch_extent * tile.splits
    waves = rates.ceil(number, gpu.multiprocessors)
    registers = k.count_registers(product, gpu, tile)
    resident = count_resident(gpu, tile.shared_bytes, registers, tile.threads)
    resident = np.minimum(resident, np.maximum(waves, 1))
    multiplying = tile.rows * tile.columns * tile.depth / (gpu.madds * _SUSTAINED)
    issuing = _count_issues(product, tile) * tile.threads / rates.ISSUED
    reading = _count_wavefronts(product, tile)
    fetching = (tile.rows + tile.columns) * tile.depth * k.ITEM / rates.L2_BYTES
    busy = rates.overlap(multiplying, issuing, reading, fetching)
    waiting = tile.depth * rates.SHARED_LATENCY
    if not k.copies_ahead(gpu):
        # What was loaded is stored, and waited for, after the step's products.
        waiting = waiting + rates.MEET
    filling = rates.FILL_CYCLES / (tile.stages - 1)
    step = np.maximum(busy, np.maximum(waiting, filling) / resident)
    step = step + (_STEP_CYCLES + _LATE * filling) / resident
    item = np.where(tile.splits > 1, SUM_BYTES, product.out_bits / 8)
    storing = tile.rows * tile.columns * item / rates.STORED_BYTES
    cycles = waves * (steps * step + storing / resident + rates.FILL_CYCLES / resident)
    sizes = tile.rows, tile.columns
    moved = count_moved(product, gpu, tiles, sizes, tile.group, swap=0)
    streaming = moved / gpu.memory_bytes_per_cycle
    cycles = rates.overlap(cycles, streaming) + rates.LAUNCH_CYCLES
    cycles = cycles + rates.estimate_joining(gpu, count_left_bytes(product, tile.splits))
    wanted = np.maximum(rows * width * product.depth * 1.0, 1.0)
    terms = steps * tile.depth * tile.splits
    padded = tiles[0] * tile.rows * tiles[1] * tile.columns * 1.0 * terms / wanted
    return Estimate(
        multiplying,
        issuing,
        reading,
        fetching,
        number,
        waves,
        resident,
        steps,
        padded,
        streaming,
        cycles,
    )


def estimate_cycles(product: Product, gpu: Gpu, tile: k.ThreadTile) -> Any:
    """The cycles that `estimate` gives."""
    return estimate(product, gpu, tile).cycles


def traits(product: Product, gpu: Gpu, tile: k.ThreadTile) -> npt.NDArray[np.float32]:
    """Features of settings for a cost model; the same columns for every product."""
    e = estimate(product, gpu, tile)
    found = [
        np.log2(tile.rows),
        np.log2(tile.columns),
        np.log2(tile.sums),
        np.log2(tile.splits),
        k.count_registers(product, gpu, tile) * tile.threads / gpu.registers,
        tile.shared_bytes / gpu.dynamic_shared_bytes,
        np.log2(e.issuing / e.multiplying),
        np.log2(e.reading / e.multiplying),
        np.log2(e.fetching / e.multiplying),
        np.log2(np.maximum(e.tiles, 1)),
        e.tiles / np.maximum(e.waves * gpu.multiprocessors, 1),
        np.log2(e.resident * tile.threads),
        np.log2(np.maximum(e.steps, 1)),
        np.log2(np.maximum(e.padded, 1)),
        np.log2(e.streaming / e.cycles),
        *(np.log2(np.maximum(product.extent(operand), 1)) for operand in range(2)),
        np.log2(np.maximum(product.depth, 1)),
        np.log2(np.maximum(product.batch_extent, 1)),
    ]
    return as_rows(found, np.shape(tile.rows))


def _count_issues(product: Product, tile: k.ThreadTile) -> Any:
    """Instructions of a thread in a step."""
    copying: Any = 0.0
    for operand in range(2):
        each = _ADDRESS_ISSUES + rates.WINDOW_ISSUES * product.slides(operand)
        copies = k.count_copies(product, tile, operand)
        copying = copying + copies
        if product.packed[operand] is not None:
            copying = copying + copies * k.width_of(product, operand) * rates.UNPACK_ISSUES
        copying = copying + each * k.count_addresses(product, tile, operand)
    each = tile.sums + tile.row_vectors + tile.column_vectors
    return each * tile.depth + copying + _STEP_ISSUES


def _count_wavefronts(product: Product, tile: k.ThreadTile) -> Any:
    """Cycles of a multiprocessor's own memory in a step of a block: what warps read, and copies."""
    vectors = tile.row_vectors + tile.column_vectors
    read = tile.threads / WARP * tile.depth * vectors * _WAVEFRONTS
    copies = sum(k.count_copies(product, tile, operand) for operand in range(2))
    return read + 2 * copies * tile.threads / WARP
