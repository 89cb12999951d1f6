"""How attentions are shared out to the cores of a CPU in pieces of some rows: knobs and estimates
that do not depend on what a core does for a piece, in the cycles of
`spaces.templates.contraction.register_tile`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from spaces.targets.cpu import Cpu
from spaces.templates.attention.heads import Heads
from spaces.templates.contraction.register_tile import BARRIER, BROADCAST, PARALLEL, STEP

CHUNK, HEADS = "chunk", "heads"
BITS = 32
"""Of a score, and of a sum."""
WEIGH = 18.0
"""Cycles of a vector of scores besides its products: to make it of these, and its powers."""
WEIGH_CHUNK = 60.0
"""Cycles of a vector of rows for each chunk, besides what each key costs."""
ITEM = BITS // 8
_LATENCY = 4.0
"""Cycles until a sum can be added to again."""
_MEMORY_BYTES = 5.0
"""That a core reads in a cycle."""


class PieceTile(Protocol):
    """What sizes of pieces have in common."""

    @property
    def chunk(self) -> Any:
        """Keys whose weights are kept."""

    @property
    def heads(self) -> Any:
        """Heads that have rows in a piece: one, or all those that have the same keys."""

    @property
    def parallel(self) -> Any:
        """Whether cores share the pieces, 0 or 1."""


def list_piece_choices(heads: Heads) -> dict[str, tuple[int, ...]]:
    """Values of the knobs that every piece has."""
    return {
        CHUNK: (32, 64, 128, 256, 512),
        HEADS: (1, heads.together) if heads.together > 1 else (1,),
        PARALLEL: (1, 0),
    }


@dataclass(frozen=True, slots=True)
class Pieces:
    """The pieces of a program, of one setting or of many as arrays.

    Attributes:
        number: of the whole program; `busiest` how many of them one core has.
        padding: the share of a piece's rows that there are.
        keys: that its rows look at; `chunks` of them.
        reading: cycles in which memory gives a core keys and values.
        sharing: cycles in which cores begin and end.
    """

    number: Any
    busiest: Any
    padding: Any
    keys: Any
    chunks: Any
    reading: Any
    sharing: Any

    def count_cycles(self, work: Any) -> Any:
        """Cycles of the program, with so many of a piece."""
        return self.busiest * work + self.reading + self.sharing


def count_pieces(heads: Heads, cpu: Cpu, tile: PieceTile, rows: Any) -> Pieces:
    """The pieces of a program, which have so many rows each."""
    own = heads.rows * tile.heads
    tiles = np.maximum(np.ceil(own / rows), 1)
    number = np.maximum(heads.batch // tile.heads, 1) * tiles
    keys = np.maximum(np.ceil(heads.keys * heads.keys_seen), 1)
    cores = np.minimum(np.where(tile.parallel == 1, cpu.cores, 1), number)
    matrices = heads.batch / heads.together
    reading = matrices * keys * (heads.width + heads.columns) * ITEM / _MEMORY_BYTES
    return Pieces(
        number,
        np.ceil(number / cores),
        own / (tiles * rows),
        keys,
        np.ceil(keys / tile.chunk),
        reading / cores,
        tile.parallel * BARRIER,
    )


def count_step(vectors: Any, others: Any) -> Any:
    """Cycles to add a product to each of `vectors` x `others` sums."""
    adds = np.maximum(vectors * others, _LATENCY)
    return np.maximum(adds, vectors + others * BROADCAST) + STEP


def list_traits(heads: Heads, cpu: Cpu, tile: PieceTile, pieces: Pieces) -> list[Any]:
    """Features of pieces for a cost model."""
    return [
        np.log2(tile.chunk),
        np.log2(tile.heads),
        tile.parallel,
        np.log2(pieces.number),
        pieces.number / (pieces.busiest * cpu.cores),
        pieces.padding,
        np.log2(np.maximum(pieces.reading, 1.0)),
        *(np.log2(np.maximum(size, 1)) for size in (heads.rows, heads.keys, heads.batch)),
        np.full(np.shape(tile.parallel), float(np.log2(heads.width + heads.columns))),
    ]
