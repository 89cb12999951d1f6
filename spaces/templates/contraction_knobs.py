"""Knobs of a contraction: their values, the limits they must keep, and what they should cost.

The register tile is that of Goto and van de Geijn, "Anatomy of High-Performance Matrix
Multiplication" (2008): `rows` x `vectors` accumulators stay in registers while the whole sum is
done, one operand gives vectors, the other single elements.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from spaces.cpu import Cpu
from spaces.knobs import Knobs
from spaces.templates.contraction_shape import Contraction

ROWS, VECTORS, LANES, UNROLL = "rows", "vectors", "lanes", "unroll"
ROW_BLOCK, COLUMN_BLOCK, OUTER_BLOCK = "row_block", "column_block", "outer_block"
COLUMNS_FIRST, PACK_ROWS, PACK_COLUMNS = "columns_first", "pack_rows", "pack_columns"
STAGE_INSIDE = "stage_inside"
ALL = 0
"""As a block: the whole extent."""

_MOST_UNROLLED = 160
_MOST_WASTE = 1.35
_SERIAL_FLOPS = 2e5
_BLOCKS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, ALL)


def choices_of(c: Contraction, cpu: Cpu) -> dict[str, tuple[int, ...]]:
    """Values of each knob; those that cannot matter have one."""
    full = cpu.lanes(c.out_bits)
    lanes = tuple(w for w in (full, full // 2, full // 4) if w >= 4 or w == full)
    column_axis = c.axes[c.column]
    contiguous = column_axis.dims[c.columns_of] == len(c.operands[c.columns_of].shape) - 1
    paddable = c.plain and len(c.rows) <= 1
    rows = [r for r in range(1, 29) if r <= c.row_extent and (paddable or c.row_extent % r == 0)]
    if len(c.rows) > 1 and not c.epilogue_keeps_shape:
        inner = c.axes[c.rows[-1]].extent
        rows = [r for r in rows if inner % r == 0]
    if not c.plain:
        lanes = tuple(w for w in lanes if c.column_extent % w == 0)
    packs_rows = c.plain and c.broadcasts and bool(c.rows)
    packs_columns = c.broadcasts
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
        PACK_COLUMNS: ((0, 1) if contiguous else (1,)) if packs_columns else (0,),
        STAGE_INSIDE: (0, 1) if c.operands[c.rows_of].staged else (0,),
    }


def _divisors(extent: int) -> tuple[int, ...]:
    return tuple(d for d in range(1, min(extent, 16) + 1) if extent % d == 0)


@dataclass(frozen=True, slots=True)
class Tiling:
    """Sizes that follow from knobs.

    Attributes:
        row_tiles: register tiles along the rows; `column_tiles` along the columns.
        row_block: of these, how many one chunk does; so for `column_block`.
        padded_rows: rows with padding; so for the others.
        chunks: pieces of work that run in parallel.
    """

    row_tiles: int
    column_tiles: int
    row_block: int
    column_block: int
    padded_rows: int
    padded_columns: int
    padded_depth: int
    chunks: int


def tiling(c: Contraction, knobs: Knobs) -> Tiling:
    """Sizes that follow from knobs, divisible or not."""
    width = knobs[VECTORS] * knobs[LANES]
    rows, row_block = _blocked(c.row_extent, knobs[ROWS], knobs[ROW_BLOCK])
    columns, column_block = _blocked(c.column_extent, width, knobs[COLUMN_BLOCK])
    outer_block = knobs[OUTER_BLOCK]
    chunks = (rows // row_block) * (columns // column_block) * (c.outer_extent // outer_block)
    return Tiling(
        row_tiles=rows,
        column_tiles=columns,
        row_block=row_block,
        column_block=column_block,
        padded_rows=rows * knobs[ROWS],
        padded_columns=columns * width,
        padded_depth=ceil(c.depth / knobs[UNROLL]) * knobs[UNROLL] if c.plain else c.depth,
        chunks=chunks,
    )


def _blocked(extent: int, tile: int, block: int) -> tuple[int, int]:
    """Number of tiles, a multiple of the block; and the block."""
    tiles = ceil(extent / tile)
    block = tiles if block == ALL else block
    return ceil(tiles / block) * block, block


def refusal(c: Contraction, cpu: Cpu, knobs: Knobs) -> str:
    """Why knobs cannot work, empty if they can."""
    rows, vectors, lanes = knobs[ROWS], knobs[VECTORS], knobs[LANES]
    registers = rows * vectors + vectors + (1 if c.broadcasts else vectors)
    if registers > cpu.registers * (cpu.vector_bytes * 8 // c.out_bits) // max(
        lanes, cpu.lanes(c.out_bits)
    ):
        return "more accumulators than registers"
    if rows * vectors * knobs[UNROLL] > _MOST_UNROLLED:
        return "too much unrolled"
    t = tiling(c, knobs)
    if not (c.plain and len(c.rows) <= 1) and t.padded_rows != c.row_extent:
        return "rows do not divide"
    if not c.plain and t.padded_columns != c.column_extent:
        return "columns do not divide"
    if c.outer and c.axes[c.outer[-1]].extent % knobs[OUTER_BLOCK]:
        return "outer block does not divide"
    if t.padded_rows * t.padded_columns > _least_padded(c, cpu) * _MOST_WASTE:
        return "too much padding"
    if knobs[ROW_BLOCK] > max(1, ceil(c.row_extent / rows)):
        return "row block larger than the whole"
    if knobs[COLUMN_BLOCK] > ceil(c.column_extent / (vectors * lanes)):
        return "column block larger than the whole"
    if 2.0 * c.row_extent * c.column_extent * c.outer_extent * c.depth > _SERIAL_FLOPS * 4:
        if t.chunks < cpu.cores:
            return "fewer chunks than cores"
    return ""


def _least_padded(c: Contraction, cpu: Cpu) -> int:
    """Elements of the result where columns are padded to the narrowest vector."""
    narrow = max(1, cpu.lanes(c.out_bits) // 4)
    return max(c.row_extent, 1) * ceil(c.column_extent / narrow) * narrow


def cost_s(c: Contraction, cpu: Cpu, knobs: Knobs) -> float:
    """Analytic latency: the register tile's pace, what it reads from where, balance, packing.

    A core is taken to do one full vector multiply-add and one full vector load a cycle, at 3 GHz:
    only the order of the estimates matters.
    """
    t = tiling(c, knobs)
    rows, vectors, lanes = knobs[ROWS], knobs[VECTORS], knobs[LANES]
    share = lanes / cpu.lanes(c.out_bits)  # narrower vectors: as many a cycle as fill a full one
    item = c.out_bits // 8
    width = vectors * lanes
    multiplies = rows * vectors * share
    loads = (vectors + (0 if not c.broadcasts else 0)) * share + rows * _BROADCAST
    if not c.broadcasts:
        loads = (rows + 1) * vectors * share
    hidden = _LATENCY / max(1.0, rows * vectors) * multiplies  # too few chains: the pipe runs dry
    step = max(multiplies, loads * _LOAD, hidden)
    panel = width * t.padded_depth * item
    strip = rows * t.padded_depth * item
    step += _traffic(panel, strip, t, cpu, knobs) / t.padded_depth
    tiles = t.row_tiles * t.column_tiles * c.outer_extent
    per_tile = step * t.padded_depth + rows * vectors * 4 + 20
    rounds = ceil(t.chunks / cpu.cores) * cpu.cores / t.chunks if t.chunks > 1 else cpu.cores
    cycles = tiles * per_tile * rounds / cpu.cores
    cycles += _packing_cycles(c, cpu, knobs, t)
    return cycles / _HERTZ


_HERTZ = 3e9
_LATENCY = 4.0
_LOAD = 1.0
_BROADCAST = 0.5
_BARRIER = 6000.0
_L2_BYTES_PER_CYCLE = 24.0
_L3_BYTES_PER_CYCLE = 8.0


def _traffic(panel: float, strip: float, t: Tiling, cpu: Cpu, knobs: Knobs) -> float:
    """Cycles a tile waits for panels that do not stay in the first cache."""
    inner, outer = (strip, panel) if knobs[COLUMNS_FIRST] else (panel, strip)
    inner_tiles = t.row_block if knobs[COLUMNS_FIRST] else t.column_block
    total = 0.0
    # The outer operand's piece is used again at once; the inner one's returns after a round.
    for size, again in ((outer, outer + inner), (inner, outer + inner * inner_tiles)):
        if again <= cpu.l1_bytes:
            continue
        pace = _L2_BYTES_PER_CYCLE if again <= cpu.l2_bytes else _L3_BYTES_PER_CYCLE
        total += 0.3 * size / pace
    return total


def _packing_cycles(c: Contraction, cpu: Cpu, knobs: Knobs, t: Tiling) -> float:
    cycles = 0.0
    depth = t.padded_depth
    batch = c.outer_extent
    if knobs[PACK_COLUMNS] and not c.operands[c.columns_of].constant:
        cycles += _BARRIER + 0.25 * t.padded_columns * depth * batch / cpu.cores
    if knobs[PACK_ROWS]:
        cycles += _BARRIER + 0.7 * t.padded_rows * depth * batch / cpu.cores
    padded = t.padded_rows != c.row_extent or depth != c.depth
    if padded and not knobs[PACK_ROWS]:
        cycles += _BARRIER + 0.5 * t.padded_rows * depth * batch / cpu.cores
    if t.chunks > 1:
        cycles += _BARRIER
    return cycles
