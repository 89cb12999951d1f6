"""Knobs of a product of bytes in blocks: values, limits, and estimated costs.

A register tile has `rows` of those of a tile of the program and `vectors` of columns; its sums stay
in registers while the products of a block are summed. Tiles that only pad are left out, so one row
of an open number is best served by tiles of one. Codes are unpacked for each block, or once for all
tiles of a chunk's rows. Estimates count cycles as `contraction.register_tile` does.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from spaces.targets.cpu import GROUP, Cpu
from spaces.templates.base import Columns, Costs, as_rows
from spaces.templates.block_products.shape import BlockProduct
from spaces.templates.contraction import register_tile as k

BITS = 32
"""Of a sum."""
_MOST_VECTORS = 8
_SUM, _UNPACK, _STORE = 4.0, 2.0, 3.0
"""Cycles to add a vector of a block's sums to those of a tile, and to make, write and read again a
vector of codes: in registers, or through a cache."""
_BYTES_PER_CYCLE = 5.0
"""Of memory, to a core."""


def choices_of(p: BlockProduct, cpu: Cpu) -> dict[str, tuple[int, ...]]:
    """Values of each knob."""
    lanes = cpu.lanes(BITS)
    vectors = range(1, _MOST_VECTORS + 1)
    return {
        k.ROWS: tuple(n for n in range(1, p.height + 1) if p.height % n == 0),
        k.VECTORS: tuple(v for v in vectors if p.columns % (v * lanes) == 0),
        k.COLUMN_BLOCK: tuple(b for b in k.BLOCKS if b != k.ALL),
        k.PACK_INSIDE: (k.IN_STEP, k.IN_CHUNK),
        k.PARALLEL: (1, 0),
    }


def feasible(p: BlockProduct, cpu: Cpu, columns: Columns) -> npt.NDArray[np.bool_]:
    """Whether each setting keeps to the limits of the shape."""
    width = columns[k.VECTORS] * cpu.lanes(BITS)
    good = p.columns // width % columns[k.COLUMN_BLOCK] == 0
    good &= p.columns - p.packed_columns < width  # codes are padded to whole panels, no further
    good &= columns[k.ROWS] * columns[k.VECTORS] <= cpu.registers
    return np.asarray(good & ((columns[k.PARALLEL] == 1) | (_operations(p) <= 1e6)))


def _operations(p: BlockProduct) -> float:
    return 2.0 * p.batches * p.rows * p.columns * p.blocks * p.block


def estimate(p: BlockProduct, cpu: Cpu, columns: Columns) -> Mapping[str, npt.NDArray[np.float64]]:
    """Parts of an analytic estimate, in cycles."""
    vectors, rows = columns[k.VECTORS] * 1.0, columns[k.ROWS] * 1.0
    tiles = p.columns / (vectors * cpu.lanes(BITS))
    groups = p.block / GROUP
    spilled = np.maximum(2 * rows * vectors - cpu.registers + 4, 0.0)
    adds = groups * np.maximum(rows * vectors, np.maximum(4.0, rows * k.BROADCAST))
    unpacks = groups * vectors * _UNPACK
    sums = rows * vectors * _SUM + spilled
    in_step = columns[k.PACK_INSIDE] == k.IN_STEP
    for_all = np.where(in_step, 0.0, p.blocks * (unpacks + groups * vectors * _STORE))
    each = p.blocks * (adds + sums + np.where(in_step, unpacks, groups * vectors))
    chunks = np.maximum(tiles // columns[k.COLUMN_BLOCK], 1)
    busiest = np.where(columns[k.PARALLEL] == 1, np.ceil(chunks / cpu.cores) / chunks, 1.0)
    read = p.columns * p.blocks * (p.block * p.packed_bits / 8 + 4.0) / _BYTES_PER_CYCLE
    steps = max(p.batches, 1) * np.ceil(max(p.rows, 1) / rows)
    work = tiles * (for_all + steps * (each + k.TILE))
    return {
        "work": work * busiest,
        "read": read * busiest,
        "barrier": np.where(columns[k.PARALLEL] == 1, k.BARRIER, 0.0),
        "chunks": chunks,
        "spilled": spilled,
        "unpacks": unpacks / (adds + sums),
        "busiest": busiest * cpu.cores,
    }


def costs_s(p: BlockProduct, cpu: Cpu, columns: Columns) -> Costs:
    """Analytic latencies; infinite where a setting is not feasible."""
    e = estimate(p, cpu, columns)
    cycles = np.maximum(e["work"], e["read"]) + e["barrier"]
    return np.where(feasible(p, cpu, columns), cycles / k.HERTZ, np.inf)


def traits(p: BlockProduct, cpu: Cpu, columns: Columns) -> npt.NDArray[np.float32]:
    """Features of settings for a cost model."""
    e = estimate(p, cpu, columns)
    sizes = (p.batches, p.rows, p.height, p.columns, p.blocks, p.block)
    found = [
        *(np.log2(np.maximum(e[name], 1e-6)) for name in ("work", "read", "chunks", "unpacks")),
        e["spilled"],
        e["busiest"],
        columns[k.ROWS],
        *(np.log2(np.maximum(size, 1)) for size in sizes),
    ]
    return as_rows(found, columns[k.VECTORS].shape)
