"""Knobs of a contraction: their values, the limits they must keep, and what they should cost.

The register tile is that of Goto and van de Geijn, "Anatomy of High-Performance Matrix
Multiplication" (2008): `rows` x `vectors` accumulators stay in registers while the whole sum is
done, one operand gives vectors, the other single elements.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from spaces.cpu import Cpu
from spaces.knobs import Columns, Costs
from spaces.templates.contraction_shape import Contraction

ROWS, VECTORS, LANES, UNROLL = "rows", "vectors", "lanes", "unroll"
ROW_BLOCK, COLUMN_BLOCK, OUTER_BLOCK = "row_block", "column_block", "outer_block"
COLUMNS_FIRST, PACK_ROWS, PACK_COLUMNS = "columns_first", "pack_rows", "pack_columns"
STAGE_INSIDE = "stage_inside"
ALL = 0
"""As a block: the whole extent."""

_MOST_UNROLLED = 160
_MOST_WASTE = 1.35
_SERIAL_FLOPS = 1e6
_BLOCKS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, ALL)


def choices_of(c: Contraction, cpu: Cpu) -> dict[str, tuple[int, ...]]:
    """Values of each knob; those that cannot matter have one."""
    lanes = _widths(c, cpu)
    paddable = c.plain and len(c.rows) <= 1
    rows = [r for r in range(1, 29) if r <= c.row_extent and (paddable or c.row_extent % r == 0)]
    if len(c.rows) > 1 and not c.epilogue_keeps_shape:
        inner = c.axes[c.rows[-1]].extent
        rows = [r for r in rows if inner % r == 0]
    if not c.plain:
        lanes = _exact_lanes(c.column_extent, lanes)
    packs_rows = c.plain and c.rows_pack
    return {
        ROWS: tuple(rows) if c.rows else (1,),
        VECTORS: (1, 2, 3, 4, 5, 6),
        LANES: lanes,
        UNROLL: (1, 2, 3, 4, 8, 9, 16),
        ROW_BLOCK: _BLOCKS if c.rows else (1,),
        COLUMN_BLOCK: _BLOCKS,
        OUTER_BLOCK: _divisors(c.axes[c.outer[-1]].extent) if c.outer else (1,),
        COLUMNS_FIRST: (0, 1),
        PACK_ROWS: (0, 1) if packs_rows else (0,),
        PACK_COLUMNS: (0,) * (c.columns_follow or not c.columns_pack) + (1,) * c.columns_pack,
        STAGE_INSIDE: (0, 1) if c.stages_inside else (0,),
    }


def _widths(c: Contraction, cpu: Cpu) -> tuple[int, ...]:
    """Elements of a vector, a whole register first; narrow ones where they still pay."""
    full = cpu.lanes(c.out_bits)
    return tuple(w for w in (full, full // 2, full // 4) if w >= 4 or w == full)


def _exact_lanes(extent: int, lanes: tuple[int, ...]) -> tuple[int, ...]:
    """Widths without a rest: the usual ones, and the widest of all where that is another."""
    usual = tuple(w for w in lanes if extent % w == 0)
    widest = max(w for w in range(1, lanes[0] + 1) if extent % w == 0)
    return usual if widest in usual or widest == 1 else (widest, *usual)


def _divisors(extent: int) -> tuple[int, ...]:
    return tuple(d for d in range(1, min(extent, 16) + 1) if extent % d == 0)


@dataclass(frozen=True, slots=True)
class Tiling:
    """Sizes that follow from knobs; of one setting, or of many as arrays.

    Attributes:
        row_tiles: register tiles along the rows; `column_tiles` along the columns.
        row_block: of these, how many one chunk does; so for `column_block`.
        padded_rows: rows with padding; so for the others.
        chunks: pieces of work that run in parallel.
    """

    row_tiles: Any
    column_tiles: Any
    row_block: Any
    column_block: Any
    padded_rows: Any
    padded_columns: Any
    padded_depth: Any
    chunks: Any


def tiling(c: Contraction, knobs: Mapping[str, Any]) -> Tiling:
    """Sizes that follow from knobs, divisible or not."""
    width = knobs[VECTORS] * knobs[LANES]
    rows, row_block = _blocked(c.row_extent, knobs[ROWS], knobs[ROW_BLOCK])
    columns, column_block = _blocked(c.column_extent, width, knobs[COLUMN_BLOCK])
    outer = c.outer_extent // knobs[OUTER_BLOCK]
    padded_depth = -(-c.depth // knobs[UNROLL]) * knobs[UNROLL] if c.plain else c.depth
    return Tiling(
        row_tiles=rows,
        column_tiles=columns,
        row_block=row_block,
        column_block=column_block,
        padded_rows=rows * knobs[ROWS],
        padded_columns=columns * width,
        padded_depth=padded_depth,
        chunks=(rows // row_block) * (columns // column_block) * outer,
    )


def _blocked(extent: int, tile: Any, block: Any) -> tuple[Any, Any]:
    """Number of tiles, a multiple of the block; and the block."""
    tiles = -(-extent // tile)
    block = block + (block == ALL) * tiles
    return -(-tiles // block) * block, block


def feasible(c: Contraction, cpu: Cpu, columns: Columns) -> npt.NDArray[np.bool_]:
    """Which settings keep to the limits of the registers, the code's size, and the shape."""
    rows, vectors, lanes = columns[ROWS], columns[VECTORS], columns[LANES]
    t = tiling(c, columns)
    spread = 1 if c.broadcasts else vectors
    good = rows * vectors + vectors + spread <= cpu.registers
    good &= rows * vectors * columns[UNROLL] <= _MOST_UNROLLED
    if not (c.plain and len(c.rows) <= 1):
        good &= t.padded_rows == c.row_extent
    if len(c.rows) > 1:  # strips are packed along the innermost of the rows' axes
        good &= (columns[PACK_ROWS] == 0) | (c.axes[c.rows[-1]].extent % rows == 0)
    if not c.plain:
        good &= t.padded_columns == c.column_extent
    good &= t.padded_rows * t.padded_columns <= _least_padded(c, cpu) * _MOST_WASTE
    # A block beyond the whole is the whole, which has a value of its own.
    good &= (columns[ROW_BLOCK] == 1) | (columns[ROW_BLOCK] * rows < c.row_extent)
    good &= (columns[COLUMN_BLOCK] == 1) | (
        columns[COLUMN_BLOCK] * vectors * lanes < c.column_extent
    )
    if 2.0 * c.row_extent * c.column_extent * c.outer_extent * c.depth > _SERIAL_FLOPS:
        good &= t.chunks >= cpu.cores
    return np.asarray(good, dtype=np.bool_)


def _least_padded(c: Contraction, cpu: Cpu) -> int:
    """Elements of the result where columns are padded to the narrowest vector."""
    narrow = min(_widths(c, cpu))
    return max(c.row_extent, 1) * -(-c.column_extent // narrow) * narrow


@dataclass(frozen=True, slots=True)
class Estimate:
    """The parts of an analytic estimate, each an array over settings.

    Attributes:
        multiplies: cycles of a step of the sum if only multiply-adds counted; `loads` if only
            loads did.
        panel_bytes: one panel of the column operand; `strip_bytes` one strip of the row operand.
        waiting: cycles a step waits for a cache beyond the first.
        busiest: share of the work that the busiest core does.
        packing: cycles of stages before the contraction.
        cycles: altogether.
    """

    multiplies: Any
    loads: Any
    panel_bytes: Any
    strip_bytes: Any
    waiting: Any
    busiest: Any
    packing: Any
    cycles: Any


def costs_s(c: Contraction, cpu: Cpu, columns: Columns) -> Costs:
    """Analytic latencies; infinite where a setting is not feasible."""
    cycles = estimate(c, cpu, columns).cycles
    return np.where(feasible(c, cpu, columns), cycles / _HERTZ, np.inf)


def estimate(c: Contraction, cpu: Cpu, columns: Columns) -> Estimate:
    """The register tile's pace, what it reads from where, balance over cores, packing.

    A core is taken to do one full vector multiply-add and one full vector load a cycle, at 3 GHz:
    only the order of the estimates matters.
    """
    t = tiling(c, columns)
    rows, vectors, lanes = columns[ROWS], columns[VECTORS], columns[LANES]
    # Odd vectors are computed with as the next power of two, and loaded in pieces. Narrow ones
    # take their share of a cycle, but no core starts more than two of them.
    share = 2.0 ** np.ceil(np.log2(lanes)) / cpu.lanes(c.out_bits)
    share = np.maximum(share, 0.5 if cpu.vector_bytes >= 64 else 1.0)
    pieces = sum((lanes >> bit) & 1 for bit in range(6))
    item = c.out_bits // 8
    multiplies = rows * vectors * share
    vector = pieces * share
    loads = vectors * vector + rows * _BROADCAST if c.broadcasts else (rows + 1) * vectors * vector
    step = np.maximum(np.maximum(multiplies, loads), _LATENCY)  # a sum waits for the one before
    panel = vectors * lanes * t.padded_depth * item
    strip = rows * t.padded_depth * item
    waiting = _traffic(panel, strip, t, cpu, columns) / t.padded_depth
    tiles = t.row_tiles * t.column_tiles * c.outer_extent
    per_step = step + waiting + _STEP / columns[UNROLL]
    per_tile = per_step * t.padded_depth + rows * vectors * 4 + _TILE
    busiest = np.ceil(t.chunks / cpu.cores) / t.chunks
    packing = _packing_cycles(c, cpu, columns, t)
    return Estimate(
        multiplies=multiplies,
        loads=loads,
        panel_bytes=panel,
        strip_bytes=strip,
        waiting=waiting,
        busiest=busiest,
        packing=packing,
        cycles=tiles * per_tile * busiest + packing,
    )


def traits(c: Contraction, cpu: Cpu, columns: Columns) -> npt.NDArray[np.float32]:
    """What a cost model should know of settings; the same columns for every contraction."""
    t, e = tiling(c, columns), estimate(c, cpu, columns)
    rows, vectors = columns[ROWS], columns[VECTORS]
    strips = e.strip_bytes * t.row_block
    panels = e.panel_bytes * t.column_block
    area = float(max(c.row_extent, 1) * c.column_extent)
    found = [
        rows * vectors / cpu.registers,
        e.multiplies / np.maximum(e.loads, 1e-6),
        np.log2(1.0 + rows * vectors * columns[UNROLL]),
        np.log2(e.panel_bytes / cpu.l1_bytes),
        np.log2(e.panel_bytes / cpu.l2_bytes),
        np.log2(e.strip_bytes / cpu.l1_bytes),
        np.log2((e.panel_bytes + e.strip_bytes) / cpu.l1_bytes),
        np.log2((e.panel_bytes + strips) / cpu.l2_bytes),
        np.log2((e.strip_bytes + panels) / cpu.l2_bytes),
        np.log2((strips + panels) / cpu.l3_bytes),
        t.padded_rows * t.padded_columns / area,
        e.waiting / np.maximum(e.multiplies, 1e-6),
        e.busiest * cpu.cores,
        np.log2(t.chunks),
        e.packing / e.cycles,
        np.log2(t.row_tiles),
        np.log2(t.column_tiles),
        columns[LANES] / cpu.lanes(c.out_bits),
        np.full(len(rows), np.log2(max(c.row_extent, 1))),
        np.full(len(rows), np.log2(c.column_extent)),
        np.full(len(rows), np.log2(c.depth)),
        np.full(len(rows), np.log2(c.outer_extent)),
        np.full(len(rows), float(c.broadcasts) + 2.0 * float(c.column_is_last)),
    ]
    return np.stack([np.broadcast_to(f, rows.shape) for f in found], axis=1).astype(np.float32)


_HERTZ = 3e9
_LATENCY = 4.0
_BROADCAST = 0.5
_STEP = 0.5
_TILE = 20.0
_BARRIER = 6000.0
_L2_BYTES_PER_CYCLE = 24.0
_L3_BYTES_PER_CYCLE = 8.0
_UNHIDDEN = 0.3


def _traffic(panel: Any, strip: Any, t: Tiling, cpu: Cpu, columns: Columns) -> Any:
    """Cycles a tile waits for panels that do not stay in the first cache."""
    first = columns[COLUMNS_FIRST] == 1
    inner, outer = np.where(first, strip, panel), np.where(first, panel, strip)
    inner_tiles = np.where(first, t.row_block, t.column_block)
    total: Any = 0.0
    # The outer operand's piece is used again at once; the inner one's returns after a round.
    for size, again in ((outer, outer + inner), (inner, outer + inner * inner_tiles)):
        pace = np.where(again <= cpu.l2_bytes, _L2_BYTES_PER_CYCLE, _L3_BYTES_PER_CYCLE)
        total = total + np.where(again <= cpu.l1_bytes, 0.0, _UNHIDDEN * size / pace)
    return total


def _packing_cycles(c: Contraction, cpu: Cpu, columns: Columns, t: Tiling) -> Any:
    width, height = t.padded_columns, t.padded_rows
    area = t.padded_depth * c.outer_extent / cpu.cores
    packs_columns = (columns[PACK_COLUMNS] == 1) & (not c.operands[c.columns_of].constant)
    padded = (height != c.row_extent) | (t.padded_depth != c.depth)
    cycles = np.where(packs_columns, _BARRIER + 0.25 * width * area, 0.0)
    cycles = cycles + np.where(columns[PACK_ROWS] == 1, _BARRIER + 0.7 * height * area, 0.0)
    copied = (padded | c.product) & (columns[PACK_ROWS] == 0)
    cycles = cycles + np.where(copied, _BARRIER + 0.5 * height * area, 0.0)
    return cycles + np.where(t.chunks > 1, _BARRIER, 0.0)
