"""What a product on tensor cores is estimated to take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from spaces.targets.gpu import Gpu, count_in_clusters, count_resident
from spaces.templates import gpu_rates as rates
from spaces.templates.base import as_rows
from spaces.templates.products.layout import UNIT
from spaces.templates.products.product import Product
from spaces.templates.products.runs import count_runs
from spaces.templates.products.totals import SUM_BYTES, count_left_bytes
from spaces.templates.products.traffic import count_moved
from spaces.templates.tensor_cores.tile import (
    HELD,
    HELD_OF_WINDOWS,
    WORD_BYTES,
    Tile,
    count_block_bytes,
    count_fetched_bytes,
    count_places,
    count_rows,
    count_stage_bytes,
    count_unpacked,
)

_STEP_CYCLES = 60.0
"""Of a stage's barriers."""
_PEER_CYCLES, _CLUSTER_CYCLES = 200.0, 600.0
"""Until what a block does in another's shared memory is seen there; of a cluster's beginning and
end, where blocks wait for one another. Guesses: no device has run these."""
_SUSTAINED = 0.8
"""The share of the tensor cores' rate that a device keeps up at the clock that its power allows."""
_SECTORS = 2.0
"""Sectors of memory that threads touch for each that they fill, where they store by themselves."""
_ROW_CYCLES = 8.0
"""In which a thread counts the runs of a tile up to its row, for each row."""
_COPY_ISSUES = 6.0
"""Instructions of a thread for an element that it copies."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """The parts of an analytic estimate, each an array over settings or over shapes.

    Attributes:
        multiplying: cycles of the tensor cores in a stage of all blocks of a multiprocessor;
            `fetching` those in which its operands come from the L2 cache.
        tiles: tiles of the whole product, one for each share of its terms; `waves` rounds of them
            over the multiprocessors that clusters keep busy.
        resident: blocks that share a multiprocessor.
        steps: stages of a tile's sums.
        padded: multiply-adds, padding included, for each one that is needed.
        streaming: cycles in which the device's memory moves the operands and the result.
        cycles: total cycles of the program.
    """

    multiplying: Any
    fetching: Any
    tiles: Any
    waves: Any
    resident: Any
    steps: Any
    padded: Any
    streaming: Any
    cycles: Any


def estimate(product: Product, gpu: Gpu, tile: Tile) -> Estimate:
    """Estimate rounds of tiles; a stage takes the slowest of the tensor cores and its copies.

    A tile waits for its first stage where neither another block of the multiprocessor nor the last
    tile of its own block hides that. Blocks whose tiles follow one another share what they read.
    """
    rows, width = product.extent(product.c.rows_of), product.extent(product.c.columns_of)
    a, b = np.where(tile.swap, width, rows), np.where(tile.swap, rows, width)
    a_tiles, b_tiles, steps = (
        rates.ceil(a, tile.rows * tile.a_blocks) * tile.a_blocks,
        rates.ceil(b, tile.columns * tile.b_blocks) * tile.b_blocks,
        rates.ceil(product.depth, tile.depth * tile.splits),
    )
    runs, empty = _share_runs(product, tile, np.where(tile.swap, b_tiles, a_tiles))
    empty = empty * a_tiles * b_tiles * tile.splits
    a_tiles = a_tiles * np.where(tile.swap, 1, runs)
    b_tiles = b_tiles * np.where(tile.swap, runs, 1)
    turns = rates.ceil(runs, tile.run_blocks)
    blocks = tile.a_blocks * tile.b_blocks
    multiprocessors = count_in_clusters(gpu, blocks)
    tiles = a_tiles * b_tiles * product.batch_extent * tile.splits
    resident = _resident(product, gpu, tile)
    waves = rates.ceil(tiles, multiprocessors * turns) * turns
    resident = np.minimum(resident, np.maximum(waves, 1))
    multiplying = tile.multiplying(gpu, _SUSTAINED)
    fetching = np.maximum(
        count_fetched_bytes(product, tile) / rates.L2_BYTES,
        count_stage_bytes(tile) / rates.LOADED_BYTES,
    )
    is_shared = blocks > 1
    # A stage is filled anew once the products after it have begun, in all blocks that it is for.
    filling = rates.FILL_CYCLES + _PEER_CYCLES * is_shared
    filling = filling / ((tile.stages - 1) * resident)
    waiting = _STEP_CYCLES / (tile.apart * resident)
    step = np.maximum(np.maximum(multiplying + waiting, fetching), filling)
    step = np.maximum(step, _copying(product, tile))
    item = np.where(tile.splits > 1, SUM_BYTES, product.out_bits / 8)
    stored = tile.rows * tile.columns * item / rates.STORED_BYTES
    storing = stored * np.where(tile.bulk_stores, 1.0, _SECTORS)
    hidden = np.where(tile.persistent, np.maximum(waves, 1), resident)
    cycles = waves * (steps * step + storing / resident + rates.FILL_CYCLES / hidden)
    cycles = cycles + is_shared * _CLUSTER_CYCLES * waves / hidden
    finding = _find_runs(product, tile)
    cycles = cycles + (waves / turns + empty / multiprocessors) * finding / resident
    sizes, group = (tile.rows, tile.columns), tile.group * tile.a_blocks
    moved = count_moved(product, gpu, (a_tiles, b_tiles), sizes, group, tile.swap)
    streaming = moved / gpu.memory_bytes_per_cycle
    cycles = rates.overlap(cycles, streaming) + rates.LAUNCH_CYCLES
    cycles = cycles + rates.estimate_joining(gpu, count_left_bytes(product, tile.splits))
    wanted = np.maximum(rows * width * product.depth * 1.0, 1.0)
    terms = steps * tile.depth * tile.splits
    padded = a_tiles * tile.rows * b_tiles * tile.columns * 1.0 * terms / wanted
    return Estimate(multiplying, fetching, tiles, waves, resident, steps, padded, streaming, cycles)


def estimate_cycles(product: Product, gpu: Gpu, tile: Tile) -> Any:
    """The cycles that `estimate` gives."""
    return estimate(product, gpu, tile).cycles


def traits(product: Product, gpu: Gpu, tile: Tile) -> npt.NDArray[np.float32]:
    """Features of settings for a cost model; the same columns for every product."""
    e = estimate(product, gpu, tile)
    found = [
        np.log2(tile.rows),
        np.log2(tile.columns),
        np.log2(tile.splits),
        tile.registers(gpu) * tile.threads / gpu.registers,
        count_block_bytes(product, tile) / gpu.dynamic_shared_bytes,
        np.log2(e.multiplying / e.fetching),
        np.log2(e.tiles),
        e.tiles / (e.waves * gpu.multiprocessors),
        np.log2(tile.a_blocks),
        np.log2(tile.b_blocks),
        np.log2(e.resident),
        np.log2(e.steps),
        np.log2(e.padded),
        np.log2(e.streaming / e.cycles),
        *(np.log2(np.maximum(product.extent(operand), 1)) for operand in range(2)),
        np.log2(product.depth),
        np.log2(product.batch_extent),
    ]
    shape = np.shape(tile.swap)
    return as_rows(found, shape)


def _resident(product: Product, gpu: Gpu, tile: Tile) -> Any:
    """The number of blocks that fit on one multiprocessor together; of persistent ones, one."""
    own_bytes = count_block_bytes(product, tile)
    registers = tile.registers(gpu) + count_places(product, tile)
    found = count_resident(gpu, own_bytes, registers, tile.threads)
    return np.where(tile.persistent, 1, found)


def _share_runs(product: Product, tile: Tile, row_tiles: Any) -> tuple[Any, Any]:
    """The runs of a tile of rows, and the blocks that find none."""
    rows = count_rows(product, tile, product.c.rows_of)
    runs = count_runs(product, row_tiles, rows)
    return runs, np.maximum(tile.run_blocks - runs, 0)


def _find_runs(product: Product, tile: Tile) -> Any:
    """Cycles in which a block finds the runs of its rows."""
    if product.look_up is None:
        return 0.0
    return _ROW_CYCLES * count_rows(product, tile, product.c.rows_of) + rates.FILL_CYCLES


def _copying(product: Product, tile: Tile) -> Any:
    """Cycles in which threads find and copy a stage of those operands that they have to copy
    element by element or to unpack, or whose rows are windows."""
    cycles: Any = 0.0
    for operand in range(2):
        each = count_rows(product, tile, operand) * tile.depth / tile.copiers
        slides = product.slides(operand)
        if product.packed[operand] is not None:
            elements = count_rows(product, tile, operand) * tile.depth
            groups, _ = count_unpacked(product, tile, operand)
            cycles = cycles + elements * rates.UNPACK_ISSUES / rates.ISSUED
            cycles = cycles + (groups - 1) * rates.LATENCY  # the first one is loaded before
        elif not product.in_units[operand]:
            cycles = cycles + each * (_COPY_ISSUES + rates.WINDOW_ISSUES * slides)
            if tile.element.bytes < WORD_BYTES:  # else each is under way, without a register
                held = HELD_OF_WINDOWS if slides else HELD
                cycles = cycles + rates.ceil(each, held) * rates.LATENCY
        elif slides:
            cycles = cycles + each * tile.element.bytes / UNIT * rates.WINDOW_ISSUES
    return cycles
