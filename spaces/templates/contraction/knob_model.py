"""Knobs of a contraction: their values, the limits they must keep, and their estimated costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from spaces.targets.cpu import Cpu
from spaces.templates.base import Columns, Costs, Knobs, as_rows
from spaces.templates.contraction import register_tile as k
from spaces.templates.contraction.canonical import distinct_unrolls
from spaces.templates.contraction.shape import Contraction

_MOST_UNROLLED = 160
_UNROLLS, _WHOLE_BYTES = (1, 2, 3, 4, 8, 9, 16), (2, 4, 8, 16)
_SERIAL_FLOPS = 1e6
_LATENCY = 4.0
_BLANK = 0.25
"""The cost of packing a column of padding, relative to a real column."""
_SPILLED = 0.28
"""Cycles to write a byte of a stage beyond the size of a core's L2 cache, and to read it back."""
_UNPACK, _LOOK_UP, _CODE_BITS = 4.0, 1.5, 8
"""Cycles to make a vector of numbers of packed ones, in terms of vector multiply-adds: by
arithmetic, or by a table, of what has fewer bits than these, scales included."""
_ROW_SUM = 6.0
"""Cycles to add up the lanes of a row's sum."""
_POINTERS, _RELOADED = 8, 0.15
"""Clamped rows whose addresses stay in registers; cycles of a step for each row beyond these."""


def choices_of(c: Contraction, cpu: Cpu) -> dict[str, tuple[int, ...]]:
    """Values of each knob; a knob that cannot matter has a single one."""
    lanes = k.widths(cpu, c.out_bits)
    paddable = c.plain and len(c.rows) <= 1
    most = min(k.MOST_ROWS, c.row_extent)
    loose = paddable or c.ragged_rows
    rows = [r for r in range(1, most + 1) if loose or c.row_extent % r == 0]
    if len(c.rows) > 1 and not c.epilogue_keeps_shape:
        inner = c.axes[c.rows[-1]].extent
        rows = [r for r in rows if inner % r == 0]
    if not c.plain:
        lanes = _exact_lanes(c.column_extent, lanes, odd=c.groups is None)
    packs_rows = c.plain and c.rows_pack
    return {
        k.ROWS: tuple(rows) if c.rows else (1,),
        k.VECTORS: k.VECTOR_COUNTS,
        k.LANES: lanes,
        k.UNROLL: distinct_unrolls(c, _unrolls(c)),
        k.ROW_BLOCK: k.BLOCKS if c.rows else (1,),
        k.COLUMN_BLOCK: k.BLOCKS,
        k.OUTER_BLOCK: k.outer_blocks(c),
        k.COLUMNS_FIRST: (0, 1),
        k.PACK_ROWS: (0, 1) if packs_rows else (0,),
        k.PACK_COLUMNS: _ways_of_columns(c),
        k.STAGE_INSIDE: (0, 1) if c.stages_inside else (0,),
        **({k.PARALLEL: (1, 0)} if c.symbolic or _is_small(c) else {}),
        **_ways_to_pack(c),
        **({k.PARTITION: _ways_of_rows(c)} if c.ragged_rows or _is_odd(c, rows) else {}),
    }


def _is_small(c: Contraction) -> bool:
    """Whether sharing the work out to threads may take longer than doing it."""
    return k.operations(c) <= _SERIAL_FLOPS


def _is_odd(c: Contraction, rows: list[int]) -> bool:
    """Whether known rows may leave a remainder that is worth more than a copy with padding."""
    odd = any(c.row_extent % r for r in rows)
    return c.plain and len(c.rows) == 1 and not c.symbolic and odd


def _ways_of_rows(c: Contraction) -> tuple[int, ...]:
    return (k.PAD, k.SPLIT, k.CLAMP) if c.plain else (k.SPLIT,)


def _unrolls(c: Contraction) -> tuple[int, ...]:
    if c.packed_bits is None:
        return _UNROLLS
    return tuple(n for n in _WHOLE_BYTES if c.depth % n == 0) or (1,)


def _ways_of_columns(c: Contraction) -> tuple[int, ...]:
    if c.groups is not None:  # its groups lie apart, or its columns do
        return (int(c.columns_pack),)
    reads = c.packed_bits is None and (c.columns_follow or not c.columns_pack)
    return (0,) * reads + (1,) * c.columns_pack


def _ways_to_pack(c: Contraction) -> dict[str, tuple[int, ...]]:
    if c.packed_bits is not None:
        return {k.PACK_INSIDE: (k.IN_STEP, k.IN_CHUNK)}
    return {k.PACK_INSIDE: (k.AT_ROOT, k.IN_CHUNK)} if c.symbolic and _packs_anew(c) else {}


def _packs_anew(c: Contraction) -> bool:
    """Whether panels of the column operand are packed each time the program runs."""
    return c.columns_pack and not c.operands[c.columns_of].constant


def choices_within(
    c: Contraction, choices: Mapping[str, tuple[int, ...]]
) -> dict[str, tuple[int, ...]]:
    """The choices that may suit one shape: settings drawn from all of them nearly never would."""

    def blocks(name: str, extent: int) -> tuple[int, ...]:
        return tuple(b for b in choices[name] if b in (1, k.ALL) or b < extent)

    return {
        **choices,
        k.ROWS: tuple(r for r in choices[k.ROWS] if r <= max(1, c.row_extent)),
        k.ROW_BLOCK: blocks(k.ROW_BLOCK, c.row_extent),
        k.COLUMN_BLOCK: blocks(k.COLUMN_BLOCK, c.column_extent),
    }


def _exact_lanes(extent: int, lanes: tuple[int, ...], *, odd: bool) -> tuple[int, ...]:
    """Vector widths that divide the extent: the usual ones, and where there may be odd ones the
    widest if it is another."""
    usual = tuple(w for w in lanes if extent % w == 0)
    if not odd:
        return usual
    widest = max(w for w in range(1, lanes[0] + 1) if extent % w == 0)
    return usual if widest in usual or widest == 1 else (widest, *usual)


def tiling(c: Contraction, knobs: Mapping[str, Any]) -> k.Tiling:
    """Sizes that follow from knobs, divisible or not."""
    steps = -(-c.steps // knobs[k.UNROLL]) * knobs[k.UNROLL] if c.plain else c.steps
    return k.compute_tiling(c, knobs, padded_depth=steps * c.group)


def layout(c: Contraction, knobs: Knobs) -> str:
    """The packed layout of constant operands: settings of equal layout share what is packed."""
    t = tiling(c, knobs)
    depth = t.padded_depth if c.plain and _count_summed_axes(c) == 1 else c.depth
    rows = t.padded_rows if len(c.rows) == 1 else c.row_extent
    width = knobs[k.VECTORS] * knobs[k.LANES]
    ways = (
        (c.rows_of, knobs[k.PACK_ROWS], knobs[k.ROWS], c.row_extent, rows),
        (c.columns_of, knobs[k.PACK_COLUMNS], width, c.column_extent, t.padded_columns),
    )
    parts = []
    for operand, packed, panel, extent, padded in ways:
        grown = c.plain and (padded, depth) != (extent, c.depth)
        moved = packed or grown or c.operands[operand].staged or not c.has_groups(operand)
        if c.operands[operand].packed_bits is not None or (c.operands[operand].constant and moved):
            words = "w" if k.in_words(knobs) and c.operands[operand].packed_bits is not None else ""
            parts.append(f"{operand}:{panel if packed else 1}/{padded}x{depth}{words}")
    return " ".join(parts)


def hoists_predicate(c: Contraction, knobs: Mapping[str, Any]) -> Any:
    """Whether settings that split ragged rows off have the row predicate hoisted out of tiles.

    Not where the row operand is copied before: without a predicate on each row TVM finds out in
    another way how much is copied, and divides by extents that may be zero. There TVM partitions
    the loop over tiles itself.
    """
    copied = c.product or c.operands[c.rows_of].staged or not c.has_groups(c.rows_of)
    return (c.plain and not copied) & (np.asarray(depth_grows(c, knobs)) == 0)


def depth_grows(c: Contraction, knobs: Mapping[str, Any]) -> Any:
    """Whether the reduction is padded to a multiple of its unrolled steps."""
    inner = inner_reduction(c)
    return False if inner is None else is_padded(c, inner, knobs[k.UNROLL] * c.group)


def is_padded(c: Contraction, axis: int, multiple: Any) -> Any:
    """Whether an axis may have to grow to become a multiple of something."""
    found = c.axes[axis]
    return multiple > 1 if found.symbolic else found.extent % multiple != 0


def inner_reduction(c: Contraction) -> int | None:
    """The reduction axis with more than one step; None unless there is exactly one."""
    real = [i for i in c.reduce_axes if not c.axes[i].single]
    return real[0] if len(real) == 1 else None


def _count_summed_axes(c: Contraction) -> int:
    """The number of reduction axes with more than one step."""
    return sum(not c.axes[i].single for i in c.reduce_axes)


def feasible(c: Contraction, cpu: Cpu, columns: Columns) -> npt.NDArray[np.bool_]:
    """Whether each setting keeps to the limits of the registers, the code's size, and the shape."""
    rows, vectors = columns[k.ROWS], columns[k.VECTORS]
    t = tiling(c, columns)
    spread = 1 if c.broadcasts else vectors
    flips = int(c.groups is not None and c.groups.alike)  # top bits, by a constant
    good = rows * vectors + vectors + spread + flips <= cpu.registers
    good &= rows * vectors * columns[k.UNROLL] <= _MOST_UNROLLED
    if not (c.plain and len(c.rows) <= 1) and not c.ragged_rows:
        good &= t.padded_rows == c.row_extent
    if len(c.rows) > 1:  # strips are packed along the innermost of the rows' axes
        good &= (columns[k.PACK_ROWS] == 0) | (c.axes[c.rows[-1]].extent % rows == 0)
    if not c.outer and c.axes[c.column].symbolic:  # then there must be chunks of either
        whole_rows = (columns[k.ROW_BLOCK] == k.ALL) | (not c.ragged_rows)
        good &= ~(whole_rows & (columns[k.COLUMN_BLOCK] == k.ALL))
    good &= (np.asarray(k.packs_inside(columns)) == 0) | (columns[k.PACK_COLUMNS] == 1)
    split_off = np.asarray(k.leaves_ragged(columns)) == 1
    good &= ~split_off | ((columns[k.PACK_ROWS] == 0) & (columns[k.STAGE_INSIDE] == 0))
    if not c.ragged_rows:
        good &= ~split_off | (c.row_extent % rows != 0)
    versioned = np.asarray(hoists_predicate(c, columns))
    good &= versioned | ~np.asarray(k.clamps(columns))
    by_tvm = split_off & ~versioned
    good &= ~by_tvm | ((columns[k.ROW_BLOCK] != 1) & c.ragged_rows)
    if c.axes[c.column].symbolic:
        # With chunks of both, TVM takes seconds to see that full tiles need no guard.
        whole = (columns[k.ROW_BLOCK] == k.ALL) & (columns[k.COLUMN_BLOCK] == k.ALL)
        good &= ~by_tvm | whole
    if not c.plain:
        good &= t.padded_columns == c.column_extent
    if c.packed_bits is not None:  # weights are padded ahead to whole panels, and no further
        good &= t.padded_columns - c.column_extent < columns[k.VECTORS] * columns[k.LANES]
        good &= t.padded_depth == c.depth
    good &= t.padded_rows * t.padded_columns <= _least_padded(c, cpu) * k.MOST_WASTE
    good &= k.proper_blocks(c, columns)
    if not _is_small(c):
        good &= (t.chunks >= cpu.cores) & (k.in_threads(columns) == 1)
    return np.asarray(good, dtype=np.bool_)


def padding(c: Contraction, columns: Columns) -> npt.NDArray[np.float64]:
    """The share of the tiles' work that is padding, of rows, of columns and of the reduction."""
    t = tiling(c, columns)
    done = t.padded_rows * t.padded_columns * t.padded_depth * 1.0
    return np.asarray(1.0 - c.row_extent * c.column_extent * c.depth / done)


def _least_padded(c: Contraction, cpu: Cpu) -> int:
    """Elements of the result where columns are padded to the narrowest vector."""
    narrow = min(k.widths(cpu, c.out_bits))
    return max(c.row_extent, 1) * -(-c.column_extent // narrow) * narrow


@dataclass(frozen=True, slots=True)
class Estimate:
    """The parts of an analytic estimate, each an array over settings.

    Attributes:
        multiplies: cycles of a reduction step if only multiply-adds counted; `loads` if only
            loads did.
        panel_bytes: one panel of the column operand; `strip_bytes` one strip of the row operand.
        waiting: cycles a step waits for a cache beyond the first.
        busiest: share of the work that the busiest core does.
        packing: cycles of stages before the contraction.
        cycles: total cycles of the program.
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
    return np.where(feasible(c, cpu, columns), cycles / k.HERTZ, np.inf)


def estimate(c: Contraction, cpu: Cpu, columns: Columns) -> Estimate:
    """Estimate the register tile's pace, its cache traffic, the balance over cores, and packing."""
    t = tiling(c, columns)
    rows, vectors, lanes = columns[k.ROWS], columns[k.VECTORS], columns[k.LANES]
    share = k.share_of_cycle(cpu, c.out_bits, lanes)
    pieces = sum((lanes >> bit) & 1 for bit in range(6))  # in which odd vectors are loaded
    item = c.operands[c.columns_of].bits // 8
    multiplies = rows * vectors * share
    vector = pieces * share
    loads = vectors * vector + rows * k.BROADCAST if c.broadcasts else (rows + 1) * vectors * vector
    clamps = np.where(k.clamps(columns), k.BROADCAST * rows / columns[k.UNROLL], 0.0)
    loads = loads + clamps  # more rows than a core has registers for their addresses
    unpacks = np.asarray(k.packs_inside(columns)) == k.IN_STEP
    work = multiplies + np.where(unpacks, _count_unpacking(c, columns) * vectors * share, 0.0)
    step = np.maximum(np.maximum(work, loads), _LATENCY)  # a sum waits for the one before
    packed = item if c.packed_bits is None else np.where(unpacks, c.packed_bits / 8, item)
    panel = vectors * lanes * t.padded_depth * packed
    strip = rows * t.padded_depth * item
    steps = t.padded_depth / c.group
    waiting = k.traffic(panel, strip, t, cpu, columns) / steps
    tiles = t.row_tiles * t.column_tiles * c.outer_extent
    reloads = np.where(k.clamps(columns), _RELOADED * np.maximum(rows - _POINTERS, 0), 0.0)
    per_step = step + waiting + reloads + k.STEP / columns[k.UNROLL]
    per_tile = per_step * steps + rows * vectors * 4 + k.TILE
    per_tile = per_tile + _correcting_cycles(c, cpu, columns, steps)
    shared = np.ceil(t.chunks / cpu.cores) / t.chunks
    busiest = np.where(k.in_threads(columns) == 1, shared, 1.0)
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


def _correcting_cycles(c: Contraction, cpu: Cpu, columns: Columns, steps: Any) -> Any:
    """Cycles in which the sums of a tile are corrected, where factors are signed alike."""
    if c.groups is None or not c.groups.alike:
        return 0.0
    rows = columns[k.ROWS]
    along = rows * steps / cpu.lanes(c.out_bits)
    across = steps * np.maximum(_LATENCY, rows / 4)  # a group of each row: sums wait for themselves
    strips = (columns[k.PACK_ROWS] == 1) | (not c.has_groups(c.rows_of))
    return np.where(strips, across, along) + rows * (_ROW_SUM + columns[k.VECTORS])


def traits(c: Contraction, cpu: Cpu, columns: Columns) -> npt.NDArray[np.float32]:
    """Features of settings for a cost model; the same columns for every contraction."""
    t, e = tiling(c, columns), estimate(c, cpu, columns)
    rows, vectors = columns[k.ROWS], columns[k.VECTORS]
    strips = e.strip_bytes * t.row_block
    panels = e.panel_bytes * t.column_block
    area = np.maximum(c.row_extent, 1) * np.maximum(c.column_extent, 1) * 1.0
    found = [
        rows * vectors / cpu.registers,
        e.multiplies / np.maximum(e.loads, 1e-6),
        np.log2(1.0 + rows * vectors * columns[k.UNROLL]),
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
        columns[k.LANES] / cpu.lanes(c.out_bits),
        *(np.log2(np.maximum(n, 1)) for n in (c.row_extent, c.column_extent, c.depth)),
        np.log2(c.outer_extent),
        float(c.broadcasts) + 2.0 * float(c.column_is_last),
    ]
    return as_rows(found, rows.shape)


def _count_unpacking(c: Contraction, columns: Columns) -> Any:
    """See `_UNPACK`."""
    codes = c.packed_bits is not None and c.packed_bits < _CODE_BITS
    return np.where(k.in_words(columns) & codes, _LOOK_UP, _UNPACK)


def _packing_cycles(c: Contraction, cpu: Cpu, columns: Columns, t: k.Tiling) -> Any:
    height = t.padded_rows
    width = c.column_extent + _BLANK * (t.padded_columns - c.column_extent)
    threads = k.in_threads(columns) == 1
    barrier = np.where(threads, k.BARRIER, 0.0)
    area = t.padded_depth * c.outer_extent / np.where(threads, cpu.cores, 1)
    item = c.operands[c.columns_of].bits // 8

    def apart(pace: float, elements: Any) -> Any:
        """Cycles of a whole stage that the threads wait for; its result goes through the caches."""
        spilled = np.maximum(elements * item - cpu.l2_bytes, 0.0)
        return barrier + pace * elements + _SPILLED * spilled

    packs_columns = (columns[k.PACK_COLUMNS] == 1) & (not c.operands[c.columns_of].constant)
    grown = (height != c.row_extent) & (k.leaves_ragged(columns) == 0)
    padded = grown | (t.padded_depth != c.depth)
    # A stage within each chunk that reads a piece: no thread waits, but these chunks repeat it.
    where = np.asarray(k.packs_inside(columns))
    pace = np.asarray(0.25)
    if c.packed_bits is not None:
        pace = pace + _count_unpacking(c, columns) * 32 / c.out_bits / cpu.lanes(32)
    again = pace * width * area * -(-t.row_tiles // t.row_block)
    before = np.where(where == k.IN_CHUNK, again, apart(0.25, width * area))
    cycles = np.where(packs_columns & (where != k.IN_STEP), before, 0.0)
    cycles = cycles + np.where(columns[k.PACK_ROWS] == 1, apart(0.7, height * area), 0.0)
    copied = (padded | c.product | (not c.has_groups(c.rows_of))) & (columns[k.PACK_ROWS] == 0)
    inside = copied & (columns[k.STAGE_INSIDE] == 1) & c.symbolic
    again = 0.5 * height * area * (t.column_tiles // t.column_block)
    copying = np.where(inside, again, apart(0.5, height * area))
    cycles = cycles + np.where(copied, copying, 0.0)
    return cycles + np.where(t.chunks > 1, barrier, 0.0)
