"""The register tile that all products share: its knobs, the sizes that follow, its cache traffic.

It is that of Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication" (2008):
`rows` x `vectors` accumulators stay in registers while the whole sum is done, one operand gives
vectors, the other single elements. Estimates count cycles of a core at 3 GHz that starts one full
vector multiply-add and one full vector load in each: only their order matters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from spaces.passes.arithmetic.code_tables import LANES as LOOKED_UP
from spaces.targets.cpu import Cpu
from spaces.templates.base import Columns
from spaces.templates.contraction.shape import Contraction

ROWS, VECTORS, LANES, UNROLL = "rows", "vectors", "lanes", "unroll"
ROW_BLOCK, COLUMN_BLOCK, OUTER_BLOCK = "row_block", "column_block", "outer_block"
COLUMNS_FIRST, PACK_ROWS, PACK_COLUMNS = "columns_first", "pack_rows", "pack_columns"
STAGE_INSIDE = "stage_inside"
PARALLEL = "parallel"
"""Whether several threads share the work; a knob where the work may be too small for that."""
PARTITION = "partition"
"""The treatment of rows that do not fill whole tiles, a knob where the rows are one axis: padded in
a copy (`PAD`), a remainder after the full tiles with code of its own (`SPLIT`), or each tile clamps
its row index (`CLAMP`)."""
PAD, SPLIT, CLAMP = 0, 1, 2
PACK_INSIDE = "pack_inside"
"""Where columns are packed that are packed each time the program runs: all of them before
(`AT_ROOT`), those of a chunk in it (`IN_CHUNK`), or, of packed weights, those of a step of the sum
in registers (`IN_STEP`)."""
AT_ROOT, IN_CHUNK, IN_STEP = 0, 1, 2
ALL = 0
"""The value of a block that is the whole extent."""

MOST_ROWS = 28
VECTOR_COUNTS = (1, 2, 3, 4, 5, 6)
BLOCKS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, ALL)
MOST_WASTE = 1.35
"""The most elements that padding may make of each element of a result."""

HERTZ = 3e9
BROADCAST = 0.5
"""Cycles to spread one element over a vector."""
STEP, TILE, BARRIER = 0.5, 20.0, 12000.0
"""Cycles that a step of a loop, a tile, and a parallel loop cost besides their work. The last takes
1 to 4 us, by machine, in which a core does more work than these estimates allow it."""
_L2_BYTES_PER_CYCLE = 24.0
_L3_BYTES_PER_CYCLE = 8.0
_UNHIDDEN = 0.3


def widths(cpu: Cpu, bits: int) -> tuple[int, ...]:
    """Elements of a vector, a whole register first; narrow ones where they still pay."""
    full = cpu.lanes(bits)
    return tuple(w for w in (full, full // 2, full // 4) if w >= 4 or w == full)


def share_of_cycle(cpu: Cpu, bits: int, lanes: Any) -> Any:
    """The share of a cycle that a vector operation takes.

    Vectors of odd widths cost as much as the next power of two. Narrow ones take their share of a
    whole register's cycle, but no core starts more than two of them in one.
    """
    share = 2.0 ** np.ceil(np.log2(lanes)) / cpu.lanes(bits)
    return np.maximum(share, 0.5 if cpu.vector_bytes >= 64 else 1.0)


def outer_blocks(c: Contraction) -> tuple[int, ...]:
    """Divisors of the innermost outer axis: the steps of it that a chunk may take."""
    known = bool(c.outer) and not c.axes[c.outer[-1]].symbolic
    extent = c.axes[c.outer[-1]].extent if known else 1
    return tuple(d for d in range(1, min(extent, 16) + 1) if extent % d == 0)


@dataclass(frozen=True, slots=True)
class Tiling:
    """Sizes that follow from knobs; of one setting, or of many as arrays.

    Attributes:
        row_tiles: register tiles along the rows; `column_tiles` along the columns.
        row_block: row tiles in one chunk; `column_block` column tiles in one.
        padded_rows: rows with padding; `padded_columns` and `padded_depth` the same of these.
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


def in_words(knobs: Mapping[str, Any]) -> Any:
    """Whether settings have codes of 4 bits in words, as `spaces.passes.arithmetic.code_tables`
    wants them: those whose vectors it looks up."""
    return knobs[LANES] == LOOKED_UP


def in_threads(knobs: Mapping[str, Any]) -> Any:
    """Whether settings use several threads; those without the knob do."""
    return knobs.get(PARALLEL, 1)


def leaves_ragged(knobs: Mapping[str, Any]) -> Any:
    """Whether settings leave ragged rows unpadded, 0 or 1; those without the knob pad them."""
    return 1 * (knobs.get(PARTITION, PAD) != PAD)


def clamps(knobs: Mapping[str, Any]) -> Any:
    """Whether every tile clamps its row index, so that a missing row repeats the last one."""
    return knobs.get(PARTITION, PAD) == CLAMP


def packs_inside(knobs: Mapping[str, Any]) -> Any:
    """Where settings pack columns, see `PACK_INSIDE`; those without the knob pack all before."""
    return knobs.get(PACK_INSIDE, AT_ROOT)


def compute_tiling(c: Contraction, knobs: Mapping[str, Any], *, padded_depth: Any) -> Tiling:
    """The tiles and blocks of rows and columns, divisible or not."""
    width = knobs[VECTORS] * knobs[LANES]
    rows, row_block = _block(c.row_extent, knobs[ROWS], knobs[ROW_BLOCK])
    columns, column_block = _block(c.column_extent, width, knobs[COLUMN_BLOCK])
    outer = c.outer_extent // knobs[OUTER_BLOCK]
    chunks = rows // row_block
    ragged = leaves_ragged(knobs)  # the last block of rows may have less than its tiles
    rows += ragged * (-(-c.row_extent // knobs[ROWS]) - rows)
    row_block += ragged * (np.minimum(row_block, np.maximum(rows, 1)) - row_block)
    return Tiling(
        row_tiles=rows,
        column_tiles=columns,
        row_block=row_block,
        column_block=column_block,
        padded_rows=rows * knobs[ROWS],
        padded_columns=columns * width,
        padded_depth=padded_depth,
        chunks=chunks * (columns // column_block) * outer,
    )


def _block(extent: int, tile: Any, block: Any) -> tuple[Any, Any]:
    """The number of tiles, rounded up to a multiple of the block; and the block."""
    tiles = -(-extent // tile)
    block = block + (block == ALL) * tiles
    return -(-tiles // block) * block, block


def proper_blocks(c: Contraction, columns: Columns) -> Any:
    """Whether each setting's blocks are smaller than the extent: larger ones equal `ALL`."""
    width = columns[VECTORS] * columns[LANES]
    good = (columns[ROW_BLOCK] == 1) | (columns[ROW_BLOCK] * columns[ROWS] < c.row_extent)
    return good & ((columns[COLUMN_BLOCK] == 1) | (columns[COLUMN_BLOCK] * width < c.column_extent))


def operations(c: Contraction) -> float:
    """Multiplications and additions without padding."""
    return 2.0 * c.row_extent * c.column_extent * c.outer_extent * c.depth


def traffic(panel: Any, strip: Any, t: Tiling, cpu: Cpu, columns: Columns) -> Any:
    """Cycles a tile waits for panels and strips, given in bytes, that do not stay in L1."""
    first = columns[COLUMNS_FIRST] == 1
    inner, outer = np.where(first, strip, panel), np.where(first, panel, strip)
    inner_tiles = np.where(first, t.row_block, t.column_block)
    total: Any = 0.0
    # The outer operand's piece is used again at once; the inner one's returns after a round.
    for size, again in ((outer, outer + inner), (inner, outer + inner * inner_tiles)):
        pace = np.where(again <= cpu.l2_bytes, _L2_BYTES_PER_CYCLE, _L3_BYTES_PER_CYCLE)
        total = total + np.where(again <= cpu.l1_bytes, 0.0, _UNHIDDEN * size / pace)
    return total
