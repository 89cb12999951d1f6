"""Knobs of a contraction on a GPU: their values, the limits they keep, and their estimated costs.

A block of threads computes a tile of rows by columns, and goes through the reduction in steps:
threads fetch both operands' part of a step into shared memory together, then each multiplies rows
by columns of its own, which stay in registers. These sizes are chosen within the limits of the
hardware; a shape decides only the number of blocks and of steps. Costs are those of DietCode
(MLSys 2022): waves of blocks over the multiprocessors, of tiles that are padded along every axis.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from spaces.targets.gpu import Gpu, count_resident, register_limit
from spaces.templates.base import Columns, Costs, as_rows
from spaces.templates.contraction.shape import Contraction
from spaces.templates.gpu_rates import ceil

ROW_THREADS, COLUMN_THREADS = "row_threads", "column_threads"
ROWS, COLUMNS = "rows", "columns"
ROW_VTHREADS, COLUMN_VTHREADS = "row_vthreads", "column_vthreads"
DEPTH = "depth"

LANES = 4
"""Elements of the widest load."""
SPREAD = (32, 4)
"""The length of a line of a tile that is transposed in shared memory: a multiple of the first, plus
the second, so that threads that write a line of the operand meet in few banks."""

_ITEM = 4
_MOST_VTHREADS = 8
_MOST_UNROLLED = 2048
_MOST_LOADS = 12
"""Loads of a step beyond which ptxas was seen to spill addresses, even where registers are left."""
_OTHER_REGISTERS, _LOAD_REGISTERS = 32, 5
"""Registers of a thread besides sums and factors: for itself, and for each load of a step, whose
address and guard are kept from step to step."""
_FETCH_BYTES = 40.0
_SHARED_LANES = 32
_SECTOR_BYTES = 32
_STARTED = 128
_FETCH_ISSUES = 16.0
"""Instructions of a load: its address, its guard, the load, and the store to shared memory."""
_STEP_CYCLES, _BLOCK_CYCLES = 700.0, 2000.0
"""Cycles that a step and a block wait for memory where nothing else runs meanwhile."""


@dataclass(frozen=True, slots=True)
class Roles:
    """The axes of a contraction by their role on a GPU, as indices into `Contraction.axes`.

    Attributes:
        batch: the spatial axes of more than one step that are not tiled.
    """

    row: int
    column: int
    reduction: int
    batch: tuple[int, ...]


def roles_of(c: Contraction) -> Roles | None:
    """The roles of a contraction's axes, or None where this template does not fit."""
    reductions = [i for i in c.reduce_axes if not c.axes[i].single]
    if not (c.plain and c.rows and c.broadcasts and c.column_is_last) or len(reductions) != 1:
        return None
    if c.axes[c.rows[-1]].used[c.columns_of] or any(o.staged for o in c.operands):
        return None
    batch = tuple(i for i in (*c.outer, *c.rows[:-1]) if not c.axes[i].single)
    return Roles(c.rows[-1], c.column, reductions[0], tuple(sorted(batch)))


def choices_of() -> dict[str, tuple[int, ...]]:
    """Values of each knob, for every shape and every device."""
    return {
        # Of three times a power of two, threads share the columns of no step evenly: there is no
        # such number of columns.
        ROW_THREADS: (1, 2, 4, 8, 16, 32, 64),
        COLUMN_THREADS: (1, 2, 4, 6, 8, 12, 16, 24, 32, 64),
        ROWS: (1, 2, 3, 4, 6, 8),
        COLUMNS: (1, 2, 4, 8),
        ROW_VTHREADS: (1, 2, 4),
        COLUMN_VTHREADS: (1, 2, 4),
        DEPTH: (4, 8, 16, 32, 64),
    }


@dataclass(frozen=True, slots=True)
class Block:
    """The sizes of a block of threads that follow from knobs; of one setting, or of many as arrays.

    Attributes:
        rows: rows of its tile; `columns` the tile's columns.
        accumulators: sums of one thread; `factors` the elements that it multiplies for them.
    """

    threads: Any
    rows: Any
    columns: Any
    depth: Any
    vthreads: Any
    accumulators: Any
    factors: Any


def block_of(knobs: Mapping[str, Any]) -> Block:
    """The sizes of a block, from its knobs."""
    own_rows = knobs[ROWS] * knobs[ROW_VTHREADS]
    own_columns = knobs[COLUMNS] * knobs[COLUMN_VTHREADS]
    accumulators = own_rows * own_columns
    return Block(
        threads=knobs[ROW_THREADS] * knobs[COLUMN_THREADS],
        rows=own_rows * knobs[ROW_THREADS],
        columns=own_columns * knobs[COLUMN_THREADS],
        depth=knobs[DEPTH],
        vthreads=knobs[ROW_VTHREADS] * knobs[COLUMN_VTHREADS],
        accumulators=accumulators,
        factors=own_rows + own_columns,
    )


def is_turned(c: Contraction, roles: Roles, operand: int) -> bool:
    """Whether an operand has the reduction as its inner dimension, so that its tile in shared
    memory, where threads read across the reduction, is transposed."""
    tiled = roles.row if operand == c.rows_of else roles.column
    return (c.axes[roles.reduction].dims[operand] or 0) > (c.axes[tiled].dims[operand] or 0)


def line(extent: Any, *, spread: bool) -> Any:
    """Elements from one line of a tile in shared memory to the next."""
    factor, offset = SPREAD
    return extent + (factor + offset - extent % factor) % factor if spread else extent


def shared_bytes(c: Contraction, roles: Roles, block: Block) -> Any:
    """Shared memory of a block: both operands' tiles of one step."""
    total: Any = 0
    for operand in range(2):
        rows = operand == c.rows_of
        extent = block.rows if rows else block.columns
        total = total + line(extent, spread=is_turned(c, roles, operand)) * block.depth
    return total * _ITEM


def lanes(c: Contraction, roles: Roles, operand: int, block: Block) -> Any:
    """Elements of an operand that a thread loads at once.

    More than one only along a known size that the tile divides: otherwise lines begin anywhere,
    and a guard may cut through a load.
    """
    extents = {roles.reduction: block.depth, roles.row: block.rows, roles.column: block.columns}
    axis = _inner_axis(c, operand)
    if axis not in extents or c.axes[axis].symbolic:
        return block.depth * 0 + 1
    size, extent = _count_fetched(c, block, operand), extents[axis]
    width: Any = block.depth * 0 + 1
    for wider in (2, LANES):
        fits = (c.axes[axis].extent % extent == 0) & (extent % wider == 0)
        width = np.where(fits & (size % (block.threads * wider) == 0), wider, width)
    return width


def _count_fetched(c: Contraction, block: Block, operand: int) -> Any:
    """Elements of an operand that a block fetches in a step."""
    return (block.rows if operand == c.rows_of else block.columns) * block.depth


def loads(c: Contraction, roles: Roles, block: Block) -> Any:
    """The number of loads of a thread in a step."""
    return sum(
        _count_fetched(c, block, operand) / (block.threads * lanes(c, roles, operand, block))
        for operand in range(2)
    )


def registers(c: Contraction, roles: Roles, block: Block) -> Any:
    """Estimated registers of a thread; how many ptxas takes is known only after the build."""
    fetching = _LOAD_REGISTERS * loads(c, roles, block)
    return block.accumulators + block.factors + fetching + _OTHER_REGISTERS


def store_lanes(c: Contraction, roles: Roles, knobs: Mapping[str, int]) -> int:
    """Elements of the result that a thread writes at once; see `lanes`."""
    column, whole = c.axes[roles.column], block_of(knobs).columns
    if column.symbolic or column.extent % whole or not c.epilogue_keeps_shape:
        return 1
    return next(n for n in (LANES, LANES // 2, 1) if knobs[COLUMNS] % n == 0)


def padding(c: Contraction, roles: Roles, block: Block) -> list[int]:
    """For each axis the multiple that its extent is padded to, so that no product is guarded."""
    extents = {roles.reduction: block.depth, roles.row: block.rows, roles.column: block.columns}
    found = [1] * len(c.axes)
    for number, extent in extents.items():
        if c.axes[number].symbolic or c.axes[number].extent % extent:
            found[number] = int(extent)
    return found


def _inner_axis(c: Contraction, operand: int) -> int | None:
    """The axis along which an operand is contiguous in memory."""
    last = len(c.operands[operand].shape) - 1
    return next((i for i, a in enumerate(c.axes) if a.dims[operand] == last), None)


def feasible(c: Contraction, roles: Roles, gpu: Gpu, columns: Columns) -> npt.NDArray[np.bool_]:
    """Whether each setting keeps to the limits of the hardware, whatever the shape."""
    b = block_of(columns)
    good = (b.threads % gpu.warp == 0) & (b.threads <= gpu.threads)
    good &= b.vthreads <= _MOST_VTHREADS
    good &= registers(c, roles, b) <= register_limit(gpu, b.threads)
    good &= shared_bytes(c, roles, b) <= gpu.shared_bytes
    good &= b.accumulators * b.depth <= _MOST_UNROLLED
    good &= loads(c, roles, b) <= _MOST_LOADS
    for operand in range(2):  # threads without a share would need another guard
        good &= _count_fetched(c, b, operand) % np.maximum(b.threads, 1) == 0
    return np.asarray(good, dtype=np.bool_)


@dataclass(frozen=True, slots=True)
class Estimate:
    """The parts of an analytic estimate, each an array over settings or over shapes.

    Attributes:
        issuing: cycles in which a multiprocessor issues the instructions of one step of a block;
            `reading` those in which it reads shared memory; `fetching` those of its fetches.
        blocks: blocks of the whole grid.
        waves: rounds of blocks over the multiprocessors.
        resident: blocks that share a multiprocessor.
        steps: steps of the reduction.
        padded: multiply-adds, padding included, for each one that is needed.
        streaming: cycles in which the device's memory moves every operand and the result once.
        cycles: total cycles of the program.
    """

    issuing: Any
    reading: Any
    fetching: Any
    blocks: Any
    waves: Any
    resident: Any
    steps: Any
    padded: Any
    streaming: Any
    cycles: Any


def estimate(c: Contraction, roles: Roles, gpu: Gpu, columns: Columns) -> Estimate:
    """Estimate waves of blocks; a step takes the slowest of arithmetic, shared memory and fetch.

    The wait of a step for memory is hidden by other blocks of the same multiprocessor. No program
    is faster than the device's memory moves its tensors.
    """
    b = block_of(columns)
    rows, width = c.axes[roles.row].extent, c.axes[roles.column].extent
    depth = c.axes[roles.reduction].extent
    batch: Any = 1
    for axis in roles.batch:
        batch = batch * c.axes[axis].extent
    row_tiles, column_tiles, steps = (
        ceil(rows, b.rows),
        ceil(width, b.columns),
        ceil(depth, b.depth),
    )
    blocks = row_tiles * column_tiles * batch
    waves = ceil(blocks, gpu.multiprocessors)
    resident = count_resident(gpu, shared_bytes(c, roles, b), registers(c, roles, b), b.threads)
    resident = np.minimum(resident, np.maximum(waves, 1))
    issuing, fetching = _issuing(c, roles, gpu, b), _fetching(c, roles, b)
    reading = _reading(gpu, columns, b)
    busy = np.maximum(np.maximum(issuing, reading), fetching)
    step = np.maximum(busy, _STEP_CYCLES / resident)
    stores = b.rows * b.columns * _ITEM / _FETCH_BYTES
    streaming = _count_bytes(c) / gpu.memory_bytes_per_cycle
    cycles = waves * (steps * step + stores + _BLOCK_CYCLES / resident)
    cycles = np.maximum(cycles, streaming)
    wanted = np.maximum(rows * width * depth * 1.0, 1.0)
    padded = row_tiles * b.rows * column_tiles * b.columns * 1.0 * steps * b.depth / wanted
    return Estimate(
        issuing, reading, fetching, blocks, waves, resident, steps, padded, streaming, cycles
    )


def costs_s(c: Contraction, roles: Roles, gpu: Gpu, columns: Columns) -> Costs:
    """Analytic latencies; infinite where a setting is not feasible."""
    seconds = estimate(c, roles, gpu, columns).cycles / gpu.hertz
    return np.where(feasible(c, roles, gpu, columns), seconds, np.inf)


def _count_bytes(c: Contraction) -> Any:
    """Bytes of both operands and of the result."""
    extents = [np.asarray(axis.extent, dtype=np.float64) for axis in c.axes]
    indexed = [[axis.used[operand] for axis in c.axes] for operand in range(2)]
    indexed.append([not axis.reduce for axis in c.axes])
    each = (prod(e for e, has in zip(extents, own, strict=True) if has) for own in indexed)
    return sum(each) * _ITEM


def _issuing(c: Contraction, roles: Roles, gpu: Gpu, b: Block) -> Any:
    fetches = loads(c, roles, b) * b.threads
    return b.rows * b.columns * b.depth / gpu.madds + fetches * _FETCH_ISSUES / _STARTED


def _fetching(c: Contraction, roles: Roles, b: Block) -> Any:
    """Cycles in which a step fetches its operands; a short run costs a whole sector of memory."""
    total: Any = 0.0
    for operand in range(2):
        extent = b.rows if operand == c.rows_of else b.columns
        run = np.where(is_turned(c, roles, operand), b.depth, extent) * _ITEM
        total = total + _count_fetched(c, b, operand) * _ITEM * np.maximum(1.0, _SECTOR_BYTES / run)
    return total / _FETCH_BYTES


def _reading(gpu: Gpu, knobs: Columns, b: Block) -> Any:
    """Cycles in which the warps of a block read rows and columns of a step."""
    across = np.minimum(knobs[COLUMN_THREADS], gpu.warp)
    down = gpu.warp / across
    a_warp = knobs[ROW_VTHREADS] * _wavefronts(knobs[ROWS], down)
    a_warp = a_warp + knobs[COLUMN_VTHREADS] * _wavefronts(knobs[COLUMNS], across)
    return a_warp * b.depth * b.threads / gpu.warp


def _wavefronts(own: Any, threads: Any) -> Any:
    """Cycles in which each of several threads reads `own` neighbouring elements."""
    return np.maximum(ceil(own, LANES), own * threads / _SHARED_LANES)


def traits(c: Contraction, roles: Roles, gpu: Gpu, columns: Columns) -> npt.NDArray[np.float32]:
    """Features of settings for a cost model; the same columns for every contraction."""
    b, e = block_of(columns), estimate(c, roles, gpu, columns)
    found = [
        np.log2(b.threads),
        np.log2(b.rows),
        np.log2(b.columns),
        np.log2(b.accumulators),
        registers(c, roles, b) * b.threads / gpu.registers,
        shared_bytes(c, roles, b) / gpu.shared_bytes,
        np.log2(e.issuing / e.fetching),
        np.log2(e.issuing / e.reading),
        np.log2(e.blocks),
        e.blocks / (e.waves * gpu.multiprocessors),
        np.log2(e.resident),
        np.log2(e.steps),
        np.log2(e.padded),
        np.log2(c.axes[roles.row].extent),
        np.log2(c.axes[roles.column].extent),
        np.log2(c.axes[roles.reduction].extent),
        lanes(c, roles, c.rows_of, b) + 8 * lanes(c, roles, c.columns_of, b),
    ]
    return as_rows(found, b.threads.shape)
