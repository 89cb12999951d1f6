"""What attention on tensor cores is estimated to take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from spaces.targets.gpu import Gpu, count_resident
from spaces.templates.attention.knobs import AttentionTile, Heads
from spaces.templates.tensor_cores.tile import ITEM

_LAUNCH_CYCLES, _FILL_CYCLES, _STEP_CYCLES = 3000.0, 1200.0, 60.0
"""Cycles of a launch, of a stage until it is there, and of a stage's barriers."""
_SUSTAINED = 0.6
"""The share of the tensor cores' rate that instructions of single warps keep up."""
_POWERS, _ISSUES = 16.0, 10.0
"""Powers that a multiprocessor computes in a cycle, and instructions of a thread for a score."""
_L2_BYTES = 48.0
"""Bytes in a cycle of a multiprocessor from the L2 cache."""
_APART = 0.5
"""The share of the softmax that does not overlap with products of other warps."""


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


def estimate(heads: Heads, gpu: Gpu, tile: AttentionTile) -> Estimate:
    """Estimate rounds of blocks, each of which goes through the keys that its rows look at."""
    scores = tile.rows * tile.keys * 1.0
    operations = 2 * scores * (heads.terms + heads.sums)
    multiplying = operations / (gpu.tensor_operations * _SUSTAINED)
    weighing = np.maximum(scores / _POWERS, scores * _ISSUES / gpu.madds)
    fetching = tile.keys * (heads.padded_width + heads.padded_columns) * ITEM / _L2_BYTES
    blocks = heads.batch * -(-heads.rows // tile.rows)
    waves = -(-blocks // gpu.multiprocessors)
    found = count_resident(gpu, tile.block_bytes(heads), tile.registers(heads), tile.threads)
    resident = np.minimum(found, np.maximum(waves, 1))
    together = np.maximum(tile.warps * resident, 1)
    busy = np.maximum(multiplying, weighing) + _APART * np.minimum(multiplying, weighing) / together
    filling = _FILL_CYCLES / ((tile.stages - 1) * resident)
    # A scheduler has warps of its own: fewer than four of them leave some idle.
    idle = np.maximum(4.0 / together, 1.0)
    step = np.maximum(np.maximum(busy * idle, fetching), filling) + _STEP_CYCLES / resident
    steps = np.maximum(-(-heads.keys // tile.keys) * heads.keys_seen, 1.0)
    cycles = waves * (steps * step + _FILL_CYCLES / resident)
    moved = heads.batch * (heads.rows + heads.keys) * (heads.width + heads.columns) * ITEM
    streaming = moved / gpu.memory_bytes_per_cycle
    cycles = np.maximum(cycles, streaming) + _LAUNCH_CYCLES
    return Estimate(multiplying, weighing, fetching, blocks, waves, resident, steps, cycles)


def traits(heads: Heads, gpu: Gpu, tile: AttentionTile) -> npt.NDArray[np.float32]:
    """Features of settings for a cost model; the same columns for every attention."""
    e = estimate(heads, gpu, tile)
    blocks = np.maximum(e.blocks, 1)
    found = [
        np.log2(tile.rows),
        np.log2(tile.keys),
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
    return np.stack([np.broadcast_to(f, shape) for f in found], axis=1).astype(np.float32)
