"""What attention of many rows on a CPU is estimated to take, in the cycles of
`spaces.templates.contraction.register_tile`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from spaces.targets.cpu import Cpu
from spaces.templates.attention.cpu.many_knobs import BITS, Tile
from spaces.templates.attention.heads import Heads
from spaces.templates.base import as_rows
from spaces.templates.contraction.register_tile import BARRIER, BROADCAST, STEP, TILE

LATENCY = 4.0
"""Cycles until a sum can be added to again."""
WEIGH = 18.0
"""Cycles of a vector of scores besides its products: to make it of these, and its powers."""
_LAY, _PUT = 1.5, 2.0
"""Cycles to lay out an element of a query, and to store one of the result."""
CHUNK = 60.0
"""Cycles of a vector of rows for each chunk, besides what each key costs."""
_L2_BYTES, _MEMORY_BYTES = 24.0, 5.0
"""That a core reads in a cycle."""
_ITEM = BITS // 8


@dataclass(frozen=True, slots=True)
class Estimate:
    """The parts of an analytic estimate, each an array over settings or over shapes.

    Attributes:
        multiplying: cycles of a piece's products; `weighing` those of its softmax, `moving` those
            of what is laid out, stored, and read from the second cache.
        pieces: of the whole program; `busiest` how many of them one core has.
        padding: the share of lanes that have a row.
        reading: cycles in which memory gives keys and values.
        cycles: total cycles of the program.
    """

    multiplying: Any
    weighing: Any
    moving: Any
    pieces: Any
    busiest: Any
    padding: Any
    reading: Any
    cycles: Any


def estimate(heads: Heads, cpu: Cpu, tile: Tile) -> Estimate:
    """Estimate pieces, each of which goes through the keys that its rows look at."""
    vectors, lanes = tile.vectors * 1.0, cpu.lanes(BITS)
    own = heads.rows * tile.heads
    tiles = np.maximum(np.ceil(own / (vectors * lanes)), 1)
    pieces = np.maximum(heads.batch // tile.heads, 1) * tiles
    keys = np.maximum(np.ceil(heads.keys * heads.keys_seen), 1)
    chunks = np.ceil(keys / tile.chunk)
    steps, across = np.ceil(keys / tile.keys), heads.columns // tile.columns
    scores = steps * (heads.width * _step(vectors, tile.keys) + TILE)
    sums = across * (keys * _step(vectors, tile.columns) + chunks * (TILE + 2 * tile.columns))
    weighing = keys * vectors * WEIGH + chunks * vectors * CHUNK
    rows = vectors * lanes
    moved = rows * (heads.width * _LAY + heads.columns * _PUT)
    kept = np.minimum(tile.chunk, keys) * rows * _ITEM
    again = np.where(kept > cpu.l1_bytes / 2, across * keys * rows * _ITEM / _L2_BYTES, 0.0)
    cores = np.minimum(np.where(tile.parallel == 1, cpu.cores, 1), pieces)
    busiest = np.ceil(pieces / cores)
    work = scores + sums + weighing + moved + again
    reading = count_reading(heads, keys) / cores
    cycles = busiest * work + reading + tile.parallel * BARRIER
    padding = own / (tiles * rows)
    return Estimate(
        scores + sums, weighing, moved + again, pieces, busiest, padding, reading, cycles
    )


def count_reading(heads: Heads, keys: Any) -> Any:
    """Cycles in which a core reads keys and values from memory, so many of each attention."""
    matrices = heads.batch / heads.together
    return matrices * keys * (heads.width + heads.columns) * _ITEM / _MEMORY_BYTES


def _step(vectors: Any, others: Any) -> Any:
    """Cycles to add a product to each of `vectors` x `others` sums."""
    adds = np.maximum(vectors * others, LATENCY)
    return np.maximum(adds, vectors + others * BROADCAST) + STEP


def estimate_cycles(heads: Heads, cpu: Cpu, tile: Tile) -> Any:
    """The cycles that `estimate` gives."""
    return estimate(heads, cpu, tile).cycles


def traits(heads: Heads, cpu: Cpu, tile: Tile) -> npt.NDArray[np.float32]:
    """Features of settings for a cost model; the same columns for every attention."""
    e = estimate(heads, cpu, tile)
    found = [
        tile.vectors,
        np.log2(tile.keys),
        np.log2(tile.columns),
        np.log2(tile.chunk),
        np.log2(tile.heads),
        tile.parallel,
        tile.vectors * (np.maximum(tile.keys, tile.columns) + 1) / cpu.registers,
        np.log2(e.multiplying / e.weighing),
        np.log2(e.multiplying / e.moving),
        np.log2(e.pieces),
        e.pieces / (e.busiest * cpu.cores),
        e.padding,
        np.log2(np.maximum(e.reading, 1.0)),
        *(np.log2(np.maximum(size, 1)) for size in (heads.rows, heads.keys, heads.batch)),
        np.full(np.shape(tile.keys), float(np.log2(heads.width + heads.columns))),
    ]
    return as_rows(found, np.broadcast_shapes(*(np.shape(f) for f in found)))
