"""Knobs of attention on tensor cores: their values, their limits, and the sizes they give.

The block goes through all keys, a tile after the other, which it copies into shared memory some
stages ahead (Dao, "FlashAttention-2", arXiv 2307.08691). A warp has some of the block's rows, and
of each tile some keys: with few rows, warps share the keys and join what they found in the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from spaces.targets.gpu import Gpu, register_limit
from spaces.templates import gpu_rates as rates
from spaces.templates.attention.heads import Heads
from spaces.templates.tensor_cores.tile import HALVES, STAGES

ROW_WARPS, KEY_WARPS, PARTS, KEYS = "row_warps", "key_warps", "parts", "keys"
SPLITS, HEADS = "splits", "heads"
WARP, ROWS, PAIR = 32, 16, 16
"""Threads of a warp, rows of one instruction, and columns that are loaded together, of two."""
ITEM, LINE, TERMS = HALVES.bytes, HALVES.line, HALVES.terms
_WIDE = 4
"""Bytes of a sum."""
_MOST_WARPS = 8
_OTHER_REGISTERS = 64
"""Of a thread, besides its sums, scores and factors: addresses, and the places of its scores."""


def pad_lines(width: int) -> int:
    """Elements of a row in shared memory, in whole lines."""
    return -(-width // LINE) * LINE


def pad_terms(width: int) -> int:
    """Elements of a row that instructions multiply, or columns that they add."""
    return -(-width // TERMS) * TERMS


class WarpTile(Protocol):
    """What a warp has of a stage."""

    @property
    def parts(self) -> Any:
        """Instructions along its rows, 16 each."""

    @property
    def warp_keys(self) -> Any:
        """Its keys."""

    @property
    def key_warps(self) -> Any:
        """Warps that have other keys of the same rows."""


@dataclass(frozen=True, slots=True)
class AttentionTile:
    """The sizes of a block, of one setting or of many as arrays.

    Attributes:
        row_warps: warps along the rows of a block; `key_warps` along the keys of a stage.
        parts: instructions of a warp along its rows.
        keys: of a stage.
        stages: of shared memory.
        splits: blocks to which the keys are shared out.
        heads: that have rows in a block: one, or all those that have the same keys.
        sustained: the share of the tensor cores' rate that its instructions keep up.
    """

    row_warps: Any
    key_warps: Any
    parts: Any
    keys: Any
    stages: Any
    splits: Any
    heads: Any
    sustained: float = 0.6

    @property
    def warp_rows(self) -> Any:
        """Rows of a warp."""
        return ROWS * self.parts

    @property
    def rows(self) -> Any:
        """Rows of a block."""
        return self.warp_rows * self.row_warps

    @property
    def warp_keys(self) -> Any:
        """Keys of a warp, of a stage."""
        return self.keys // self.key_warps

    @property
    def warps(self) -> Any:
        return self.row_warps * self.key_warps

    @property
    def threads(self) -> Any:
        return WARP * self.warps

    def block_bytes(self, heads: Heads) -> Any:
        """Shared memory of a block."""
        staged = self.stages * self.keys * (pad_lines(heads.width) + pad_lines(heads.columns))
        joined = (self.warps - self.row_warps) * WARP * self.count_joined(heads) * _WIDE
        return (self.rows * pad_lines(heads.width) + staged) * ITEM + joined

    def read_bytes(self, heads: Heads) -> Any:
        """What warps read from shared memory in a stage."""
        of_keys = self.row_warps * self.keys * (pad_terms(heads.width) + pad_terms(heads.columns))
        return (of_keys + self.key_warps * self.rows * pad_terms(heads.width)) * ITEM

    def count_joined(self, heads: Heads) -> Any:
        """What a thread has that those of other warps join: sums, and for each of its rows the
        largest score and the total."""
        return self.parts * (pad_terms(heads.columns) // 2 + 4)

    def registers(self, heads: Heads) -> Any:
        """Registers of a thread: an estimate."""
        own = (pad_terms(heads.columns) + self.warp_keys) // 2 + 8
        return self.parts * own + 4 + _OTHER_REGISTERS


def count_left_bytes(heads: Heads, splits: Any) -> Any:
    """What blocks leave for others in the device's memory, in a shape."""
    share = heads.batch * heads.rows * (heads.columns + 2) * _WIDE
    return rates.count_left_bytes(splits, share)


def list_block_choices(heads: Heads) -> dict[str, tuple[int, ...]]:
    """Values of the knobs that share attentions out to blocks, whatever these do."""
    return {
        SPLITS: (1, 2, 4, 8, 16, 32),
        HEADS: (1, heads.together) if heads.together > 1 else (1,),
    }


def choices_of(heads: Heads) -> dict[str, tuple[int, ...]]:
    """Values of each knob."""
    return {
        ROW_WARPS: (1, 2, 4, 8),
        KEY_WARPS: (1, 2, 4, 8),
        PARTS: (1, 2),
        KEYS: (16, 32, 64, 128),
        STAGES: (2, 3, 4),
        **list_block_choices(heads),
    }


def tile_of(knobs: Mapping[str, Any]) -> AttentionTile:
    """The sizes of a block, from its knobs."""
    names = (ROW_WARPS, KEY_WARPS, PARTS, KEYS, STAGES, SPLITS, HEADS)
    return AttentionTile(*(knobs[name] for name in names))


def feasible(heads: Heads, gpu: Gpu, tile: AttentionTile) -> npt.NDArray[np.bool_]:
    """Whether each setting keeps to the limits of the hardware, whatever the shape.

    Args:
        heads: the sizes of the largest.
    """
    good = tile.registers(heads) <= register_limit(gpu, tile.threads)
    good &= tile.block_bytes(heads) <= gpu.dynamic_shared_bytes
    good &= count_left_bytes(heads, tile.splits) <= rates.MOST_LEFT_BYTES
    good &= (tile.warps <= _MOST_WARPS) & (tile.warp_keys >= PAIR)
    return np.asarray(good, dtype=np.bool_)
