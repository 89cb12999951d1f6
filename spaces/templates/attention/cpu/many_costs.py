"""What attention of many rows on a CPU is estimated to take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from spaces.targets.cpu import Cpu
from spaces.templates.attention.cpu import pieces as parts
from spaces.templates.attention.cpu.many_knobs import Tile
from spaces.templates.attention.cpu.pieces import Pieces
from spaces.templates.attention.heads import Heads
from spaces.templates.base import as_rows
from spaces.templates.contraction.register_tile import TILE

_LAY, _PUT = 1.5, 2.0
"""Cycles to lay out an element of a query, and to store one of the result."""
_L2_BYTES = 24.0
"""That a core reads in a cycle."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """The parts of an analytic estimate, each an array over settings or over shapes.

    Attributes:
        multiplying: cycles of a piece's products; `weighing` those of its softmax, `moving` those
            of what is laid out, stored, and read from the second cache.
        pieces: of the whole program.
    """

    multiplying: Any
    weighing: Any
    moving: Any
    pieces: Pieces

    @property
    def cycles(self) -> Any:
        """Total cycles of the program."""
        return self.pieces.count_cycles(self.multiplying + self.weighing + self.moving)


def estimate(heads: Heads, cpu: Cpu, tile: Tile) -> Estimate:
    """Estimate pieces, each of which goes through the keys that its rows look at."""
    vectors = tile.vectors * 1.0
    rows = vectors * cpu.lanes(parts.BITS)
    pieces = parts.count_pieces(heads, cpu, tile, rows)
    keys, chunks = pieces.keys, pieces.chunks
    steps, across = np.ceil(keys / tile.keys), heads.columns // tile.columns
    scores = steps * (heads.width * parts.count_step(vectors, tile.keys) + TILE)
    added = keys * parts.count_step(vectors, tile.columns)
    sums = across * (added + chunks * (TILE + 2 * tile.columns))
    weighing = keys * vectors * parts.WEIGH + chunks * vectors * parts.WEIGH_CHUNK
    moved = rows * (heads.width * _LAY + heads.columns * _PUT)
    kept = np.minimum(tile.chunk, keys) * rows * parts.ITEM
    again = across * keys * rows * parts.ITEM / _L2_BYTES
    moved = moved + np.where(kept > cpu.l1_bytes / 2, again, 0.0)
    return Estimate(scores + sums, weighing, moved, pieces)


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
        tile.vectors * (np.maximum(tile.keys, tile.columns) + 1) / cpu.registers,
        np.log2(e.multiplying / e.weighing),
        np.log2(e.multiplying / e.moving),
        *parts.list_traits(heads, cpu, tile, e.pieces),
    ]
    return as_rows(found, np.broadcast_shapes(*(np.shape(f) for f in found)))
