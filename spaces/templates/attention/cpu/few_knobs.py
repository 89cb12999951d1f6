"""Knobs of attention of few rows on CPUs: their values, their limits, and the sizes they give.

A vector has scores of some rows and as many keys as fill it. Products are summed along queries and
keys in vectors, and the lanes of as many sums as these have become one vector.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from spaces.targets.cpu import Cpu
from spaces.templates.attention.cpu.pieces import CHUNK, HEADS, ITEM, list_piece_choices
from spaces.templates.attention.heads import Heads
from spaces.templates.contraction.register_tile import PARALLEL

ROWS, VECTORS = "rows", "vectors"


@dataclass(frozen=True, slots=True)
class FewTile:
    """The sizes of a piece of work, of one setting or of many as arrays.

    Attributes:
        rows: of a piece.
        vectors: of columns, whose sums of values are in registers.
        chunk: keys whose weights are kept.
        heads: that have rows in a piece: one, or all those that have the same keys.
        parallel: whether cores share the pieces, 0 or 1.
    """

    rows: Any
    vectors: Any
    chunk: Any
    heads: Any
    parallel: Any


def choices_of(lanes: int, heads: Heads) -> dict[str, tuple[int, ...]]:
    """Values of each knob; none of rows where no vectors divide the heads."""
    is_whole = heads.width % lanes == heads.columns % lanes == 0
    vectors = heads.columns // lanes
    return {
        ROWS: tuple(1 << n for n in range(lanes.bit_length() - 1)) if is_whole else (),
        VECTORS: tuple(n for n in range(1, vectors + 1) if vectors % n == 0),
        **list_piece_choices(heads),
    }


def tile_of(knobs: Mapping[str, Any]) -> FewTile:
    """The sizes of a piece, from its knobs."""
    return FewTile(*(knobs[name] for name in (ROWS, VECTORS, CHUNK, HEADS, PARALLEL)))


def feasible(heads: Heads, cpu: Cpu, tile: FewTile) -> npt.NDArray[np.bool_]:
    """Whether sums, values and a weight fit the registers, and weights the cache of a core."""
    needed = tile.vectors * (tile.rows + 1) + 1
    kept = tile.chunk * tile.rows * ITEM
    good = (needed <= cpu.registers) & (kept <= cpu.l2_bytes // 2)
    return np.asarray(good, dtype=np.bool_)
