"""What attention on tensor cores is estimated to take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from spaces.targets.gpu import Gpu, count_resident
from spaces.templates import gpu_rates as rates
from spaces.templates.attention.gpu.hopper_knobs import HopperAttentionTile
from spaces.templates.attention.gpu.knobs import (
    ITEM,
    WARP,
    AttentionTile,
    count_left_bytes,
    pad_lines,
    pad_terms,
)
from spaces.templates.attention.heads import Heads
from spaces.templates.base import as_rows
from spaces.templates.products.layout import UNIT

Tile = AttentionTile | HopperAttentionTile
_STEP_CYCLES = 400.0
"""Of a warp's way through a stage."""
_POWERS = 16.0
"""Powers that a multiprocessor computes in a cycle."""
_SCORE_ISSUES, _ROW_ISSUES, _COPY_ISSUES = 9.0, 40.0, 8.0
"""Instructions of a thread for a score, for its rows of a stage, and for 16 bytes it copies."""
_JOIN_CYCLES = 8.0
"""For each number that a thread joins."""
_PARTS = 4
"""Parts of a multiprocessor, each of which issues an instruction of a warp in a cycle."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """The parts of an analytic estimate, each an array over settings or over shapes.

    Attributes:
        multiplying: cycles of the tensor cores in a stage; `weighing` those of its softmax;
            `fetching` those in which its keys and values come from the L2 cache.
        blocks: of the whole program; `waves` rounds of them over the multiprocessors.
        resident: blocks that share a multiprocessor.
        steps: stages of a block.
        cycles: total cycles of the program.
    """

    multiplying: Any
    weighing: Any
    fetching: Any
    blocks: Any
    waves: Any
    resident: Any
    steps: Any
    cycles: Any


def estimate(heads: Heads, gpu: Gpu, tile: Tile) -> Estimate:
    """Estimate rounds of blocks, each of which goes through the keys that its rows look at."""
    widths = pad_terms(heads.width) + pad_terms(heads.columns)
    operations = 2.0 * tile.rows * tile.keys * widths
    multiplying = np.maximum(
        operations / (gpu.tensor_operations * tile.sustained),
        tile.read_bytes(heads) / rates.SHARED_BYTES,
    )
    staged = tile.keys * (pad_lines(heads.width) + pad_lines(heads.columns)) * ITEM
    # A thread has half as many scores of a part as there are keys, and as many sums as columns.
    own = tile.parts * (
        (tile.warp_keys * _SCORE_ISSUES + pad_terms(heads.columns)) / 2 + _ROW_ISSUES
    )
    issued = tile.warps * own + staged / UNIT * _COPY_ISSUES / WARP
    weighing = np.maximum(issued / _PARTS, tile.rows * tile.keys / _POWERS)
    fetching = staged / rates.L2_BYTES
    alone = heads.batch // tile.heads
    blocks = alone * rates.ceil(heads.rows * tile.heads, tile.rows) * tile.splits
    waves = rates.ceil(blocks, gpu.multiprocessors)
    found = count_resident(gpu, tile.block_bytes(heads), tile.registers(heads), tile.threads)
    resident = np.minimum(found, np.maximum(waves, 1))
    # A part of a multiprocessor has warps of its own; one multiplies while others weigh.
    warps = tile.warps * resident / _PARTS
    most, least = np.maximum(multiplying, weighing), np.minimum(multiplying, weighing)
    busy = (most + least / np.maximum(warps, 1.0)) / np.minimum(warps, 1.0)
    step = busy + _STEP_CYCLES / (np.maximum(warps, 1.0) * resident)
    filling = rates.FILL_CYCLES / ((tile.stages - 1) * resident)
    step = np.maximum(np.maximum(step, fetching), filling)
    steps = rates.ceil(heads.keys, tile.keys) * heads.keys_seen
    steps = np.maximum(rates.ceil(steps, tile.splits), 1.0)
    joining = (tile.key_warps - 1) * tile.count_joined(heads) * _JOIN_CYCLES
    cycles = waves * (steps * step + (rates.FILL_CYCLES + joining) / resident)
    lines = heads.batch * (heads.rows + heads.keys / heads.together)
    streaming = lines * (heads.width + heads.columns) * ITEM / gpu.memory_bytes_per_cycle
    cycles = np.maximum(cycles, streaming) + rates.LAUNCH_CYCLES
    cycles = cycles + rates.estimate_joining(gpu, count_left_bytes(heads, tile.splits))
    return Estimate(multiplying, weighing, fetching, blocks, waves, resident, steps, cycles)


def estimate_cycles(heads: Heads, gpu: Gpu, tile: Tile) -> Any:
    """The cycles that `estimate` gives."""
    return estimate(heads, gpu, tile).cycles


def traits(heads: Heads, gpu: Gpu, tile: Tile) -> npt.NDArray[np.float32]:
    """Features of settings for a cost model; the same columns for every attention."""
    e = estimate(heads, gpu, tile)
    blocks = np.maximum(e.blocks, 1)
    found = [
        np.log2(tile.rows),
        np.log2(tile.keys),
        np.log2(tile.key_warps),
        np.log2(tile.splits),
        np.log2(tile.heads),
        tile.registers(heads) * tile.threads / gpu.registers,
        tile.block_bytes(heads) / gpu.dynamic_shared_bytes,
        np.log2(e.multiplying / e.weighing),
        np.log2(e.multiplying / e.fetching),
        np.log2(blocks),
        blocks / (np.maximum(e.waves, 1) * gpu.multiprocessors),
        np.log2(e.resident),
        np.log2(e.steps),
        *(np.log2(np.maximum(size, 1)) for size in (heads.rows, heads.keys, heads.batch)),
        np.full(np.shape(tile.rows), float(np.log2(heads.width + heads.columns))),
    ]
    shape = np.broadcast_shapes(*(np.shape(f) for f in found))
    return as_rows(found, shape)
