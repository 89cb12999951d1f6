"""Knobs of an int8 matrix product: values, limits that they must keep, and an analytic cost.

As for float32 (see `spaces.templates.contraction.knob_model`), except that sums are done in groups
of four, columns are always packed, and rows must be where their bytes are not contiguous.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from spaces.intrinsics.vnni import GROUP
from spaces.targets.cpu import Cpu
from spaces.templates.base import Columns, Costs
from spaces.templates.contraction import register_tile as k
from spaces.templates.int8.shape import Products

_STRIPS = (4, 8, 16)
_MOST_UNROLLED = 96
_SERIAL_OPERATIONS = 4e6
_BITS = 32
"""Size of an accumulator."""
_LATENCY = 5.0
_ROW_SUM = 6.0


def choices_of(p: Products, cpu: Cpu) -> dict[str, tuple[int, ...]]:
    """Values of each knob; a knob that cannot matter has a single one."""
    c = p.contraction
    lanes = k.widths(cpu, _BITS)
    rows = tuple(range(1, min(k.MOST_ROWS, c.row_extent) + 1))
    unroll: tuple[int, ...] = (1, 2, 4)
    if not c.plain:
        lanes = tuple(w for w in lanes if c.column_extent % w == 0)
        rows = tuple(r for r in rows if c.row_extent % r == 0)
        unroll = tuple(u for u in unroll if p.depth % (GROUP * u) == 0)
    if not p.step:
        rows = _STRIPS
    packs = (1,) if not p.step else (0, 1) if c.plain else (0,)
    return {
        k.ROWS: rows,
        k.VECTORS: k.VECTOR_COUNTS,
        k.LANES: lanes,
        k.UNROLL: unroll,
        k.ROW_BLOCK: k.BLOCKS,
        k.COLUMN_BLOCK: k.BLOCKS,
        k.OUTER_BLOCK: k.outer_blocks(c),
        k.COLUMNS_FIRST: (0, 1),
        k.PACK_ROWS: packs,
        k.STAGE_INSIDE: (0, 1) if c.operands[c.rows_of].staged else (0,),
    }


def tiling(p: Products, knobs: Mapping[str, Any]) -> k.Tiling:
    """Sizes that follow from knobs, divisible or not; the depth is that of the innermost sum."""
    group = GROUP * knobs[k.UNROLL]
    return k.compute_tiling(p.contraction, knobs, padded_depth=-(-p.depth // group) * group)


def feasible(p: Products, cpu: Cpu, columns: Columns) -> npt.NDArray[np.bool_]:
    """Whether each setting keeps to the limits of the registers, the code's size, and the shape."""
    c = p.contraction
    rows, vectors = columns[k.ROWS], columns[k.VECTORS]
    t = tiling(p, columns)
    # A byte of a row is broadcast to a register only where it is the unsigned factor: the signed
    # one may come from memory. Top bits are flipped with a constant.
    spare = int(p.signs[0] == "u") + int(p.turned)
    good = rows * vectors + vectors + spare <= cpu.registers
    good &= rows * vectors * columns[k.UNROLL] <= _MOST_UNROLLED
    if not c.plain:
        good &= (t.padded_rows == c.row_extent) & (t.padded_columns == c.column_extent)
    else:
        narrow = min(k.widths(cpu, _BITS))
        least_rows = -(-c.row_extent // _STRIPS[0]) * _STRIPS[0] if not p.step else c.row_extent
        least = least_rows * -(-c.column_extent // narrow) * narrow
        good &= t.padded_rows * t.padded_columns <= least * k.MOST_WASTE
        strips = np.isin(rows, _STRIPS) & (rows <= cpu.lanes(_BITS))
        good &= (columns[k.PACK_ROWS] == 0) | strips
    good &= k.proper_blocks(c, columns)
    if k.operations(c) > _SERIAL_OPERATIONS:
        good &= t.chunks >= cpu.cores
    return np.asarray(good, dtype=np.bool_)


def costs_s(p: Products, cpu: Cpu, columns: Columns) -> Costs:
    """Analytic latencies: the register tile's pace, its cache traffic, balance over cores, packing.

    Infinite where a setting is not feasible.
    """
    c = p.contraction
    t = tiling(p, columns)
    rows, vectors, lanes = columns[k.ROWS], columns[k.VECTORS], columns[k.LANES]
    share = k.share_of_cycle(cpu, _BITS, lanes)
    sums = rows * vectors * share
    loads = vectors * share + rows * k.BROADCAST
    step = np.maximum(np.maximum(sums, loads), _LATENCY)
    rounds = t.padded_depth / GROUP * (c.depth / p.depth)
    panel = vectors * lanes * GROUP * rounds
    strip = rows * GROUP * rounds
    step = step + k.traffic(panel, strip, t, cpu, columns) / rounds
    per_tile = (step + k.STEP / columns[k.UNROLL]) * rounds + rows * vectors * 4 + k.TILE
    if p.turned:
        outside = c.depth / p.depth  # each innermost sum corrects its rows
        per_tile = per_tile + outside * (rows * (_ROW_SUM + vectors * share) + sums / 2)
        per_tile = per_tile + rows * rounds / cpu.lanes(_BITS)
    tiles = t.row_tiles * t.column_tiles * c.outer_extent
    alone = np.ceil(t.chunks / cpu.cores) / t.chunks  # the share of the busiest core
    cycles = tiles * per_tile * alone + _packing_cycles(p, cpu, columns, t)
    return np.where(feasible(p, cpu, columns), cycles / k.HERTZ, np.inf)


def _packing_cycles(p: Products, cpu: Cpu, columns: Columns, t: k.Tiling) -> Any:
    c = p.contraction
    area = t.padded_depth * (c.depth / p.depth) * c.outer_extent / cpu.cores
    constant = c.operands[c.columns_of].constant
    cycles = 0.0 if constant else k.BARRIER + 0.4 * t.padded_columns * area
    cycles = cycles + np.where(
        columns[k.PACK_ROWS] == 1, k.BARRIER + 0.4 * t.padded_rows * area, 0.0
    )
    if c.plain:
        grown = (t.padded_rows != c.row_extent) | (t.padded_depth != p.depth)
        cycles = cycles + np.where(grown, k.BARRIER + 0.1 * t.padded_rows * area, 0.0)
        grown = (t.padded_columns != c.column_extent) | (t.padded_depth != p.depth)
        if not constant:
            cycles = cycles + np.where(grown, k.BARRIER + 0.1 * t.padded_columns * area, 0.0)
    return cycles + np.where(t.chunks > 1, k.BARRIER, 0.0)
