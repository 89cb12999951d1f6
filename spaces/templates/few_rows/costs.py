"""What a product with few rows is estimated to take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from spaces.targets.gpu import WARP, Gpu, count_resident
from spaces.templates import gpu_rates as rates
from spaces.templates.base import as_rows
from spaces.templates.few_rows.knobs import FewTile
from spaces.templates.products.product import Product
from spaces.templates.products.totals import count_left_bytes

_FINISH_CYCLES = 300.0
"""From a block's last product to its results."""
_ADDRESS = 3.0
"""Instructions for a load: itself, and its address."""
_SINGLE = 4
"""Bytes of an element that is multiplied as it is."""
_UNPACK_ISSUES = 2.4
"""Instructions for an element that is made of a code: it becomes bits of a float, from which the
first one with such bits is taken away; words of codes are taken apart."""
_RUN_BYTES = 64.0
"""That threads of a warp read next to one another, for memory to give its full rate."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """The parts of an analytic estimate, each an array over settings or over shapes.

    Attributes:
        blocks: of the whole product; `resident` those that share a multiprocessor, `rounds` how
            often a multiprocessor takes in new ones.
        steps: of a block.
        streaming: cycles in which the device's memory moves all operands and the result.
        waiting: cycles in which a multiprocessor's blocks wait for what they have in flight.
        issuing: cycles of its instructions; `reading` those of its own cache.
        adding: cycles of adding up.
        cycles: total cycles of the program.
    """

    blocks: Any
    resident: Any
    rounds: Any
    steps: Any
    streaming: Any
    waiting: Any
    issuing: Any
    reading: Any
    adding: Any
    cycles: Any


def estimate(product: Product, gpu: Gpu, tile: FewTile) -> Estimate:
    """Estimate the slowest of memory, of loads in flight (Little's law: a step takes a latency, and
    the blocks of a multiprocessor wait together), of instructions and of the cache."""
    roles = tile.roles
    rows, columns = product.extent(roles.few), product.extent(roles.weights)
    row_tiles, column_tiles = rates.ceil(rows, tile.rows), rates.ceil(columns, tile.block_columns)
    blocks = row_tiles * column_tiles * product.batch_extent * tile.splits
    steps = rates.ceil(rates.ceil(product.depth, tile.step_terms), tile.splits)
    own = rates.ceil(blocks, gpu.multiprocessors)
    resident = count_resident(gpu, tile.shared_bytes, tile.registers, tile.threads)
    resident = np.minimum(resident, np.maximum(own, 1))
    rounds = rates.ceil(own, resident)
    issued = _count_cycles(gpu, tile)
    read = _count_reads(tile)
    loaded = tile.threads * tile.loads * tile.vector * roles.item
    from_l2 = own * steps * loaded / rates.L2_BYTES
    streaming = np.maximum(_count_bytes(product, tile) / gpu.memory_bytes_per_cycle, from_l2)
    # A block alone on its multiprocessor waits, and then computes.
    waiting = rounds * steps * (rates.LATENCY + np.maximum(issued, read))
    issuing, reading = own * steps * issued, own * steps * read
    shuffled = tile.sums * np.log2(tile.lanes) * tile.threads / WARP
    gathered = tile.shared_bytes / rates.SHARED_BYTES
    adding = own * (shuffled + 2 * gathered) + rounds * _FINISH_CYCLES
    cycles = rates.overlap(streaming, waiting, issuing, reading) + adding + rates.LAUNCH_CYCLES
    cycles = cycles + rates.estimate_joining(gpu, count_left_bytes(product, tile.splits))
    return Estimate(
        blocks, resident, rounds, steps, streaming, waiting, issuing, reading, adding, cycles
    )


def estimate_cycles(product: Product, gpu: Gpu, tile: FewTile) -> Any:
    """The cycles that `estimate` gives."""
    return estimate(product, gpu, tile).cycles


def traits(product: Product, gpu: Gpu, tile: FewTile) -> npt.NDArray[np.float32]:
    """Features of settings for a cost model; the same columns for every product."""
    e = estimate(product, gpu, tile)
    roles = tile.roles
    rows, columns = product.extent(roles.few), product.extent(roles.weights)
    in_flight = e.resident * tile.threads * tile.loads * tile.vector * roles.item
    found = [
        np.log2(tile.rows),
        np.log2(tile.block_columns),
        np.log2(tile.step_terms),
        np.log2(tile.threads),
        np.log2(tile.loads),
        np.log2(tile.lanes),
        np.log2(tile.parts),
        tile.registers * tile.threads / gpu.registers,
        np.log2(in_flight),
        np.log2(np.maximum(e.blocks, 1)),
        np.log2(e.resident),
        e.blocks / np.maximum(e.rounds * e.resident * gpu.multiprocessors, 1),
        np.log2(np.maximum(e.steps, 1)),
        rates.ceil(rows, tile.rows) * tile.rows / np.maximum(rows, 1),
        rates.ceil(columns, tile.block_columns) * tile.block_columns / np.maximum(columns, 1),
        *(part / e.cycles for part in (e.streaming, e.waiting, e.issuing, e.reading, e.adding)),
        np.log2(np.maximum(rows, 1)),
        np.log2(np.maximum(columns, 1)),
        np.log2(np.maximum(product.depth, 1)),
        np.log2(np.maximum(product.batch_extent, 1)),
        np.log2(roles.item),
        float(roles.turned),
    ]
    shape = np.shape(tile.rows)
    return as_rows(found, shape)


def _count_cycles(gpu: Gpu, tile: FewTile) -> Any:
    """Cycles in which a multiprocessor starts the instructions of a block's step."""
    roles = tile.roles
    of_few = tile.rows * tile.groups * tile.each
    widening = _UNPACK_ISSUES if roles.packed else float(roles.item < _SINGLE)
    widened = tile.loads * tile.vector * widening + of_few * (roles.few_item < _SINGLE)
    others = _ADDRESS * (tile.loads + of_few / tile.few_vector)
    return tile.threads * ((tile.products + widened) / gpu.madds + others / rates.ISSUED)


def _count_reads(tile: FewTile) -> Any:
    """Cycles in which a multiprocessor's own cache answers the loads of a block's step."""
    roles = tile.roles
    warps = tile.threads / WARP
    of_weights = tile.loads * np.maximum(WARP * tile.vector * roles.item / rates.SHARED_BYTES, 1.0)
    loads = tile.rows * tile.groups * tile.each / tile.few_vector
    of_few = loads * np.maximum(
        tile.lanes * tile.few_vector * roles.few_item / rates.SHARED_BYTES, 1.0
    )
    return warps * (of_weights + of_few)


def _count_bytes(product: Product, tile: FewTile) -> Any:
    """Bytes that the device's memory moves, each piece of the weights once."""
    roles = tile.roles
    rows, columns = product.extent(roles.few), product.extent(roles.weights)
    along = np.minimum(tile.column_threads, WARP) if roles.turned else tile.lanes
    wasted = np.maximum(_RUN_BYTES / (along * tile.vector * roles.item), 1.0)
    once = columns * product.depth * roles.item * wasted + rows * product.depth * roles.few_item
    return product.batch_extent * (once + rows * columns * product.out_bits / 8.0)
