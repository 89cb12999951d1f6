"""Knobs of attention for Hopper's warpgroups: their values, their limits, and the sizes they give.

The first warpgroup of a block copies keys and values, some stages ahead; each of the others has 64
rows of its own (Shah, Bikshandi, Zhang, Thakkar, Ramani and Dao, "FlashAttention-3", arXiv
2407.08608).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from spaces.targets.gpu import WARP, Gpu, register_limit
from spaces.templates.attention.gpu.knobs import (
    HEADS,
    ITEM,
    KEYS,
    SPLITS,
    count_left_bytes,
    list_block_choices,
    pad_lines,
    pad_terms,
)
from spaces.templates.attention.heads import Heads
from spaces.templates.gpu_rates import MOST_LEFT_BYTES
from spaces.templates.tensor_cores.tile import STAGES
from spaces.templates.tensor_cores.warpgroups import ROWS, WARPGROUP

CONSUMERS = "consumers"
REGISTERS = {1: (104, 232), 2: (104, 200), 3: (56, 152)}
"""Of threads that copy and of those that multiply, by the number of warpgroups of the latter."""
_OTHER_REGISTERS = 56
"""Of a thread that multiplies, besides its sums, scores and weights."""
_ALL_REGISTERS, _MOST_REGISTERS = 1 << 16, 248
_BARRIER_BYTES = 16


@dataclass(frozen=True, slots=True)
class HopperAttentionTile:
    """The sizes of a block, of one setting or of many as arrays.

    Attributes:
        consumers: warpgroups that multiply.
        keys: of a stage; `stages` of shared memory.
        splits: blocks to which the keys are shared out.
        heads: that have rows in a block: one, or all those that have the same keys.
        parts, key_warps, sustained: see `spaces.templates.attention.gpu.knobs.AttentionTile`.
    """

    consumers: Any
    keys: Any
    stages: Any
    splits: Any
    heads: Any
    parts: int = 1
    key_warps: int = 1
    sustained: float = 0.8

    @property
    def rows(self) -> Any:
        """Rows of a block."""
        return ROWS * self.consumers

    @property
    def warp_keys(self) -> Any:
        """Keys of a warp, of a stage."""
        return self.keys

    @property
    def warps(self) -> Any:
        """Warps that multiply."""
        return self.consumers * (WARPGROUP // WARP)

    @property
    def threads(self) -> Any:
        return WARPGROUP * (1 + self.consumers)

    def block_bytes(self, heads: Heads) -> Any:
        """Shared memory of a block."""
        staged = self.stages * self.keys * (pad_lines(heads.width) + pad_lines(heads.columns))
        barriers = self.stages * _BARRIER_BYTES
        return (self.rows * pad_lines(heads.width) + staged) * ITEM + barriers

    def read_bytes(self, heads: Heads) -> Any:
        """What instructions read from shared memory in a stage."""
        of_scores = (ROWS + self.keys) * pad_terms(heads.width)
        return self.consumers * (of_scores + self.keys * pad_terms(heads.columns)) * ITEM

    def count_joined(self, heads: Heads) -> Any:
        """Numbers that warps join: none, as each has rows of its own."""
        return 0

    def own_registers(self, heads: Heads) -> Any:
        """Registers of a thread that multiplies: an estimate."""
        return (pad_terms(heads.columns) + self.keys) // 2 + self.keys // 4 + _OTHER_REGISTERS

    def registers(self, heads: Heads) -> Any:
        """Registers that the compiler gives each thread: those of a thread that multiplies, which
        gets more from those that copy where its share of all, in steps of eight, is less."""
        share = np.minimum(_ALL_REGISTERS // self.threads // 8 * 8, _MOST_REGISTERS)
        return np.minimum(self.own_registers(heads), share)


def choices_of(heads: Heads) -> dict[str, tuple[int, ...]]:
    """Values of each knob."""
    return {
        CONSUMERS: (1, 2, 3),
        KEYS: (32, 64, 96, 128, 160, 192),
        STAGES: (2, 3, 4),
        **list_block_choices(heads),
    }


def tile_of(knobs: Mapping[str, Any]) -> HopperAttentionTile:
    """The sizes of a block, from its knobs."""
    return HopperAttentionTile(*(knobs[name] for name in (CONSUMERS, KEYS, STAGES, SPLITS, HEADS)))


def feasible(heads: Heads, gpu: Gpu, tile: HopperAttentionTile) -> npt.NDArray[np.bool_]:
    """Whether each setting keeps to the limits of the hardware, whatever the shape.

    Args:
        heads: the sizes of the largest.
    """
    limits = np.array([0, *(own for _, own in REGISTERS.values())])
    good = tile.own_registers(heads) <= limits[tile.consumers]
    good &= tile.registers(heads) <= register_limit(gpu, tile.threads)
    good &= tile.block_bytes(heads) <= gpu.dynamic_shared_bytes
    good &= count_left_bytes(heads, tile.splits) <= MOST_LEFT_BYTES
    return np.asarray(good, dtype=np.bool_)
