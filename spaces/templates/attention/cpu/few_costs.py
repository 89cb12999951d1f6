"""What attention of few rows on a CPU is estimated to take."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from spaces.targets.cpu import Cpu
from spaces.templates.attention.cpu import pieces as parts
from spaces.templates.attention.cpu.few_knobs import FewTile
from spaces.templates.attention.cpu.pieces import Pieces
from spaces.templates.attention.heads import Heads
from spaces.templates.base import as_rows

_ADD_LANES = 6.0
"""Cycles to add up the lanes of a sum."""
_MOVE = 1.0
"""Cycles to lay out or store a vector."""


def _estimate(heads: Heads, cpu: Cpu, tile: FewTile) -> tuple[Any, Pieces]:
    """Cycles of a piece, which goes through the keys that its rows look at, and the pieces."""
    lanes, rows = cpu.lanes(parts.BITS), tile.rows * 1.0
    pieces = parts.count_pieces(heads, cpu, tile, rows)
    keys, chunks = pieces.keys, pieces.chunks
    width, columns = heads.width / lanes, heads.columns / lanes
    scores = keys * (width * (rows + 1) + rows * _ADD_LANES)
    weighing = keys * rows / lanes * parts.WEIGH + chunks * parts.WEIGH_CHUNK
    values = columns / tile.vectors * keys * parts.count_step(tile.vectors, rows)
    moved = (chunks + 1) * rows * (width + columns) * _MOVE
    return scores + weighing + values + moved, pieces


def estimate_cycles(heads: Heads, cpu: Cpu, tile: FewTile) -> Any:
    """Estimated cycles of the program."""
    work, pieces = _estimate(heads, cpu, tile)
    return pieces.count_cycles(work)


def traits(heads: Heads, cpu: Cpu, tile: FewTile) -> npt.NDArray[np.float32]:
    """Features of settings for a cost model; the same columns for every attention."""
    work, pieces = _estimate(heads, cpu, tile)
    found = [
        np.log2(tile.rows),
        tile.vectors,
        tile.vectors * (tile.rows + 1) / cpu.registers,
        np.log2(work),
        *parts.list_traits(heads, cpu, tile, pieces),
    ]
    return as_rows(found, np.broadcast_shapes(*(np.shape(f) for f in found)))
