"""What attention of few rows on a CPU is estimated to take, in the cycles of
`spaces.templates.contraction.register_tile`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from spaces.targets.cpu import Cpu
from spaces.templates.attention.cpu import many_costs as many
from spaces.templates.attention.cpu.few_knobs import FewTile
from spaces.templates.attention.cpu.many_knobs import BITS
from spaces.templates.attention.heads import Heads
from spaces.templates.base import as_rows
from spaces.templates.contraction.register_tile import BARRIER, BROADCAST, STEP

_ADD_LANES = 6.0
"""Cycles to add up the lanes of a sum."""
_MOVE = 1.0
"""Cycles to lay out or store a vector."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """The parts of an analytic estimate, each an array over settings or over shapes.

    Attributes:
        work: cycles of a piece.
        pieces: of the whole program; `busiest` how many of them one core has.
        padding: the share of rows that there are.
        reading: cycles in which memory gives keys and values.
        cycles: total cycles of the program.
    """

    work: Any
    pieces: Any
    busiest: Any
    padding: Any
    reading: Any
    cycles: Any


def estimate(heads: Heads, cpu: Cpu, tile: FewTile) -> Estimate:
    """Estimate pieces, each of which goes through the keys that its rows look at."""
    lanes, rows = cpu.lanes(BITS), tile.rows * 1.0
    own = heads.rows * tile.heads
    tiles = np.maximum(np.ceil(own / rows), 1)
    pieces = np.maximum(heads.batch // tile.heads, 1) * tiles
    keys = np.maximum(np.ceil(heads.keys * heads.keys_seen), 1)
    chunks = np.ceil(keys / tile.chunk)
    width, columns = heads.width / lanes, heads.columns / lanes
    scores = keys * (width * (rows + 1) + rows * _ADD_LANES)
    weighing = keys * rows / lanes * many.WEIGH + chunks * many.CHUNK
    adds = np.maximum(rows * tile.vectors, many.LATENCY)
    each = np.maximum(adds, tile.vectors + rows * BROADCAST) + STEP
    values = columns / tile.vectors * keys * each
    work = scores + weighing + values + (chunks + 1) * rows * (width + columns) * _MOVE
    cores = np.minimum(np.where(tile.parallel == 1, cpu.cores, 1), pieces)
    busiest = np.ceil(pieces / cores)
    reading = many.count_reading(heads, keys) / cores
    cycles = busiest * work + reading + tile.parallel * BARRIER
    return Estimate(work, pieces, busiest, own / (tiles * rows), reading, cycles)


def estimate_cycles(heads: Heads, cpu: Cpu, tile: FewTile) -> Any:
    """The cycles that `estimate` gives."""
    return estimate(heads, cpu, tile).cycles


def traits(heads: Heads, cpu: Cpu, tile: FewTile) -> npt.NDArray[np.float32]:
    """Features of settings for a cost model; the same columns for every attention."""
    e = estimate(heads, cpu, tile)
    found = [
        np.log2(tile.rows),
        tile.vectors,
        np.log2(tile.chunk),
        np.log2(tile.heads),
        tile.parallel,
        tile.vectors * (tile.rows + 1) / cpu.registers,
        np.log2(e.work),
        np.log2(e.pieces),
        e.pieces / (e.busiest * cpu.cores),
        e.padding,
        np.log2(np.maximum(e.reading, 1.0)),
        *(np.log2(np.maximum(size, 1)) for size in (heads.rows, heads.keys, heads.batch)),
        np.full(np.shape(tile.rows), float(np.log2(heads.width + heads.columns))),
    ]
    return as_rows(found, np.broadcast_shapes(*(np.shape(f) for f in found)))
