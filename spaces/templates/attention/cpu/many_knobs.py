"""Knobs of attention of many rows on CPUs: their values, their limits, and the sizes they give.

A core has rows of queries, one in each lane of some vectors, and goes through all keys, a chunk
after the other: scores, their softmax, and the sums of values are vectors over the rows, so that
nothing is ever summed across lanes, and each element of a key or a value is read where it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from spaces.targets.cpu import Cpu
from spaces.templates.attention.cpu.pieces import CHUNK, HEADS, list_piece_choices
from spaces.templates.attention.heads import Heads
from spaces.templates.contraction.register_tile import PARALLEL

VECTORS, KEYS, COLUMNS = "vectors", "keys", "columns"
_MOST_SUMS = 24
"""Vectors of sums in registers."""


@dataclass(frozen=True, slots=True)
class Tile:
    """The sizes of a piece of work, of one setting or of many as arrays.

    Attributes:
        vectors: of rows.
        keys: whose scores are summed in registers at once; `columns` whose sums of values are.
        chunk: keys whose weights are kept.
        heads: that have rows in a piece: one, or all those that have the same keys.
        parallel: whether cores share the pieces, 0 or 1.
    """

    vectors: Any
    keys: Any
    columns: Any
    chunk: Any
    heads: Any
    parallel: Any


def choices_of(heads: Heads) -> dict[str, tuple[int, ...]]:
    """Values of each knob."""
    most = min(heads.columns, _MOST_SUMS)
    return {
        VECTORS: (1, 2, 3, 4),
        KEYS: (2, 3, 4, 5, 6, 8, 10, 12, 16, 24),
        COLUMNS: tuple(n for n in range(1, most + 1) if heads.columns % n == 0),
        **list_piece_choices(heads),
    }


def tile_of(knobs: Mapping[str, Any]) -> Tile:
    """The sizes of a piece, from its knobs."""
    names = (VECTORS, KEYS, COLUMNS, CHUNK, HEADS, PARALLEL)
    return Tile(*(knobs[name] for name in names))


def feasible(heads: Heads, cpu: Cpu, tile: Tile) -> npt.NDArray[np.bool_]:
    """Whether each setting keeps to the limits of the hardware: sums, the vectors that are
    multiplied and an element fit the registers, weights the cache of a core."""
    needed = tile.vectors * (np.maximum(tile.keys, tile.columns) + 1) + 1
    kept = tile.chunk * tile.vectors * cpu.vector_bytes
    good = (needed <= cpu.registers) & (kept <= cpu.l2_bytes // 2) & (tile.keys <= tile.chunk)
    return np.asarray(good, dtype=np.bool_)
