"""Knobs of a product of bytes: their values, the limits they must keep, and what they should cost.

As for floats, see `contraction_knobs`, but that the sum is done in groups of four, columns are
always packed, and rows only where their bytes do not lie next to one another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from spaces.cpu import Cpu
from spaces.knobs import Columns, Costs
from spaces.templates.contraction_knobs import (
    ALL,
    COLUMN_BLOCK,
    COLUMNS_FIRST,
    LANES,
    OUTER_BLOCK,
    PACK_ROWS,
    ROW_BLOCK,
    ROWS,
    STAGE_INSIDE,
    UNROLL,
    VECTORS,
)
from spaces.templates.int8_shape import Products
from spaces.vnni import GROUP

_BLOCKS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, ALL)
_STRIPS = (4, 8, 16)
_MOST_ROWS = 28
_MOST_UNROLLED = 96
_MOST_WASTE = 1.35
_SERIAL_OPERATIONS = 4e6


def choices_of(p: Products, cpu: Cpu) -> dict[str, tuple[int, ...]]:
    """Values of each knob; those that cannot matter have one."""
    c = p.contraction
    full = cpu.lanes(32)
    lanes = tuple(w for w in (full, full // 2, full // 4) if w >= 4)
    rows = tuple(range(1, min(_MOST_ROWS, c.row_extent) + 1))
    unroll: tuple[int, ...] = (1, 2, 4)
    if not c.plain:
        lanes = tuple(w for w in lanes if c.column_extent % w == 0)
        rows = tuple(r for r in rows if c.row_extent % r == 0)
        unroll = tuple(u for u in unroll if p.depth % (GROUP * u) == 0)
    if not p.step:
        rows = _STRIPS
    packs = (1,) if not p.step else (0, 1) if c.plain else (0,)
    outer = c.axes[c.outer[-1]].extent if c.outer else 1
    return {
        ROWS: rows,
        VECTORS: (1, 2, 3, 4, 5, 6),
        LANES: lanes,
        UNROLL: unroll,
        ROW_BLOCK: _BLOCKS,
        COLUMN_BLOCK: _BLOCKS,
        OUTER_BLOCK: tuple(d for d in range(1, min(outer, 16) + 1) if outer % d == 0),
        COLUMNS_FIRST: (0, 1),
        PACK_ROWS: packs,
        STAGE_INSIDE: (0, 1) if c.operands[c.rows_of].staged else (0,),
    }


@dataclass(frozen=True, slots=True)
class Tiling:
    """Sizes that follow from knobs; of one setting, or of many as arrays.

    Attributes:
        row_tiles: register tiles along the rows; `column_tiles` along the columns.
        row_block: of these, how many one chunk does; so for `column_block`.
        rows: with padding; so are `columns` and `depth`.
        chunks: pieces of work that run in parallel.
    """

    row_tiles: Any
    column_tiles: Any
    row_block: Any
    column_block: Any
    rows: Any
    columns: Any
    depth: Any
    chunks: Any


def tiling(p: Products, knobs: Mapping[str, Any]) -> Tiling:
    """Sizes that follow from knobs, divisible or not."""
    c = p.contraction
    width, group = knobs[VECTORS] * knobs[LANES], GROUP * knobs[UNROLL]
    row_tiles, row_block = _blocked(c.row_extent, knobs[ROWS], knobs[ROW_BLOCK])
    column_tiles, column_block = _blocked(c.column_extent, width, knobs[COLUMN_BLOCK])
    outer = c.outer_extent // knobs[OUTER_BLOCK]
    return Tiling(
        row_tiles=row_tiles,
        column_tiles=column_tiles,
        row_block=row_block,
        column_block=column_block,
        rows=row_tiles * knobs[ROWS],
        columns=column_tiles * width,
        depth=-(-p.depth // group) * group,
        chunks=(row_tiles // row_block) * (column_tiles // column_block) * outer,
    )


def _blocked(extent: int, tile: Any, block: Any) -> tuple[Any, Any]:
    """Number of tiles, a multiple of the block; and the block."""
    tiles = -(-extent // tile)
    block = block + (block == ALL) * tiles
    return -(-tiles // block) * block, block


def feasible(p: Products, cpu: Cpu, columns: Columns) -> npt.NDArray[np.bool_]:
    """Which settings keep to the limits of the registers, the code's size, and the shape."""
    c = p.contraction
    rows, vectors, lanes = columns[ROWS], columns[VECTORS], columns[LANES]
    t = tiling(p, columns)
    # A byte of a row is spread over a register only where it is the unsigned factor: the other
    # one may come from memory. Top bits are turned over with a constant.
    spare = int(p.signs[0] == "u") + int(p.turned)
    good = rows * vectors + vectors + spare <= cpu.registers
    good &= rows * vectors * columns[UNROLL] <= _MOST_UNROLLED
    if not c.plain:
        good &= (t.rows == c.row_extent) & (t.columns == c.column_extent)
    else:
        narrow = max(1, cpu.lanes(32) // 4)
        least_rows = -(-c.row_extent // _STRIPS[0]) * _STRIPS[0] if not p.step else c.row_extent
        least = least_rows * -(-c.column_extent // narrow) * narrow
        good &= t.rows * t.columns <= least * _MOST_WASTE
        strips = np.isin(rows, _STRIPS) & (rows <= cpu.lanes(32))
        good &= (columns[PACK_ROWS] == 0) | strips
    # A block beyond the whole is the whole, which has a value of its own.
    good &= (columns[ROW_BLOCK] == 1) | (columns[ROW_BLOCK] * rows < c.row_extent)
    good &= (columns[COLUMN_BLOCK] == 1) | (
        columns[COLUMN_BLOCK] * vectors * lanes < c.column_extent
    )
    operations = 2.0 * c.row_extent * c.column_extent * c.outer_extent * c.depth
    if operations > _SERIAL_OPERATIONS:
        good &= t.chunks >= cpu.cores
    return np.asarray(good, dtype=np.bool_)


_HERTZ = 3e9
_LATENCY = 5.0
_BROADCAST = 0.5
_STEP = 0.5
_TILE = 20.0
_ROW_SUM = 6.0
_BARRIER = 6000.0
_L2_BYTES_PER_CYCLE = 24.0
_L3_BYTES_PER_CYCLE = 8.0
_UNHIDDEN = 0.3


def costs_s(p: Products, cpu: Cpu, columns: Columns) -> Costs:
    """Analytic latencies: the register tile's pace, what it reads from where, balance, packing.

    A core is taken to do one full vector of products of four and one full vector load a cycle, at
    3 GHz: only the order of the estimates matters. Infinite where a setting is not feasible.
    """
    c = p.contraction
    t = tiling(p, columns)
    rows, vectors, lanes = columns[ROWS], columns[VECTORS], columns[LANES]
    share = lanes / cpu.lanes(32)  # narrower vectors: as many a cycle as fill a full one
    sums = rows * vectors * share
    loads = vectors * share + rows * _BROADCAST
    step = np.maximum(np.maximum(sums, loads), _LATENCY * share)
    rounds = t.depth / GROUP * (c.depth / p.depth)
    panel = vectors * lanes * GROUP * rounds
    strip = rows * GROUP * rounds
    step = step + _traffic(panel, strip, t, cpu, columns) / rounds
    per_tile = (step + _STEP / columns[UNROLL]) * rounds + rows * vectors * 4 + _TILE
    if p.turned:
        outside = c.depth / p.depth  # each innermost sum corrects its rows
        per_tile = per_tile + outside * (rows * (_ROW_SUM + vectors * share) + sums / 2)
        per_tile = per_tile + rows * rounds / cpu.lanes(32)
    tiles = t.row_tiles * t.column_tiles * c.outer_extent
    alone = np.ceil(t.chunks / cpu.cores) / t.chunks  # the share of the busiest core
    cycles = tiles * per_tile * alone + _packing_cycles(p, cpu, columns, t)
    return np.where(feasible(p, cpu, columns), cycles / _HERTZ, np.inf)


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


def _packing_cycles(p: Products, cpu: Cpu, columns: Columns, t: Tiling) -> Any:
    c = p.contraction
    area = t.depth * (c.depth / p.depth) * c.outer_extent / cpu.cores
    constant = c.operands[c.columns_of].constant
    cycles = 0.0 if constant else _BARRIER + 0.4 * t.columns * area
    cycles = cycles + np.where(columns[PACK_ROWS] == 1, _BARRIER + 0.4 * t.rows * area, 0.0)
    if c.plain:
        grown = (t.rows != c.row_extent) | (t.depth != p.depth)
        cycles = cycles + np.where(grown, _BARRIER + 0.1 * t.rows * area, 0.0)
        grown = (t.columns != c.column_extent) | (t.depth != p.depth)
        if not constant:
            cycles = cycles + np.where(grown, _BARRIER + 0.1 * t.columns * area, 0.0)
    return cycles + np.where(t.chunks > 1, _BARRIER, 0.0)
