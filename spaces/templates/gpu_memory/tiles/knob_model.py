"""Knobs of a transpose on a GPU: their values, the limits they keep, and what they are estimated to
cost: the slowest of the device's memory, shared memory with its banks, and rounds of blocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from spaces.targets.gpu import Gpu, count_resident, register_limit
from spaces.templates import gpu_rates as rates
from spaces.templates.base import as_rows
from spaces.templates.gpu_memory.facts import Extents, Facts
from spaces.templates.gpu_memory.tiles.writer import Tile, pitch_of

LINES, COLUMNS, THREADS, VECTOR = "lines", "columns", "threads", "vector"
_MOST_HELD = 64
"""Elements of a thread that are under way."""
_OTHER_REGISTERS = 30
_BANKS = 32
_SHARED_ISSUES = 3.0


def choices_of(facts: Facts) -> dict[str, tuple[int, ...]]:
    """Values of each knob."""
    return {
        LINES: (8, 16, 32, 64, 128),
        COLUMNS: (8, 16, 32, 64, 128),
        THREADS: (64, 128, 256, 512),
        VECTOR: facts.vectors,
    }


def tile_of(knobs: Mapping[str, Any]) -> Tile:
    """The sizes of a setting, or of many."""
    return Tile(*(knobs[name] for name in (LINES, COLUMNS, THREADS, VECTOR)))


def feasible(facts: Facts, gpu: Gpu, tile: Tile) -> npt.NDArray[np.bool_]:
    """Whether each setting keeps to the limits of the hardware, whatever the shape, and gives all
    threads the same number of vectors."""
    own = tile.lines * tile.columns
    good = own % (tile.threads * tile.vector) == 0
    good &= (tile.lines % tile.vector == 0) & (tile.columns % tile.vector == 0)
    good &= (own // tile.threads) <= _MOST_HELD
    good &= _shared_bytes(facts, tile) <= gpu.shared_bytes
    good &= _registers(facts, tile) <= register_limit(gpu, tile.threads)
    return np.asarray(good, dtype=np.bool_)


@dataclass(frozen=True, slots=True)
class Estimate:
    """The parts of an analytic estimate, each an array over settings or over shapes.

    Attributes:
        streaming: cycles in which memory moves the tensors, at the rate that is kept up.
        turning: cycles in which shared memory is written and read; `issuing` those in which
            instructions are issued, and `waiting` those of rounds of blocks.
        blocks: tiles; `resident` those that share a multiprocessor.
        used: the share of tiles that lies within the tensors.
        cycles: total cycles of the program.
    """

    streaming: Any
    turning: Any
    issuing: Any
    waiting: Any
    blocks: Any
    resident: Any
    used: Any
    cycles: Any


def estimate(facts: Facts, extents: Extents, gpu: Gpu, tile: Tile) -> Estimate:
    """Estimate the slowest of memory, shared memory, instructions and waiting."""
    (part,) = facts.parts
    item = max((read.bytes for read in part.reads), default=4)
    lines, columns = extents.line, extents.lane_near[0]
    points = extents.lanes[0] * 1.0
    others = points / np.maximum(lines * columns * 1.0, 1.0)
    tiles: Any = rates.ceil(lines, tile.lines) * rates.ceil(columns, tile.columns)
    blocks: Any = np.maximum(others * tiles, 1.0)
    fitting: Any = count_resident(
        gpu, _shared_bytes(facts, tile), _registers(facts, tile), tile.threads
    )
    rounds: Any = np.ceil(blocks / (gpu.multiprocessors * fitting))
    busy = np.minimum(blocks, gpu.multiprocessors)
    resident = np.minimum(fitting, np.ceil(blocks / gpu.multiprocessors))
    used: Any = points / (blocks * tile.lines * tile.columns) + 1e-6
    under_way = resident * tile.lines * tile.columns * used * item
    rate = np.minimum(under_way / rates.LATENCY, rates.LOADED_BYTES) * busy
    runs = np.minimum(np.minimum(tile.lines, tile.columns) * item, rates.LINE_BYTES)
    moved: Any = extents.tensors * rates.LINE_BYTES / runs
    streaming: Any = moved / np.minimum(rate, gpu.memory_bytes_per_cycle)
    streaming = streaming * (1 + rates.IN_STEP / fitting)
    vector = np.where(extents.open % tile.vector == 0, tile.vector, 1)
    turning = points * 2 * vector / _BANKS / busy
    each: Any = rates.ELEMENT_ISSUES + rates.HEAVY_ISSUES * part.heavy + 2 * _SHARED_ISSUES
    each = each + (1 + len(part.reads)) * rates.ACCESS_ISSUES / vector
    issuing = points * each / used / (rates.ISSUED * busy)
    waiting = rounds * (rates.BLOCK_CYCLES + rates.LATENCY + rates.MEET)
    waiting = waiting + blocks / busy * rates.START_CYCLES
    cycles = rates.LAUNCH_CYCLES + rates.overlap(streaming, turning, issuing, waiting)
    return Estimate(streaming, turning, issuing, waiting, blocks, resident, used, cycles)


def traits(facts: Facts, extents: Extents, gpu: Gpu, tile: Tile) -> npt.NDArray[np.float32]:
    """Features of settings for a cost model; the same columns for every program."""
    e = estimate(facts, extents, gpu, tile)
    found = [
        np.log2(tile.lines),
        np.log2(tile.columns),
        np.log2(tile.threads),
        _registers(facts, tile) * tile.threads / gpu.registers,
        _shared_bytes(facts, tile) / gpu.shared_bytes,
        np.log2(e.streaming / e.cycles),
        np.log2(e.turning / e.cycles),
        np.log2(e.issuing / e.cycles),
        np.log2(e.waiting / e.cycles),
        np.log2(e.blocks),
        np.log2(e.resident),
        np.log2(e.used),
        np.log2(np.maximum(extents.tensors, 1)),
        facts.parts[0].heavy,
        max((read.bytes for read in facts.parts[0].reads), default=0),
    ]
    return as_rows(found, np.shape(e.cycles))


def _shared_bytes(facts: Facts, tile: Tile) -> Any:
    reads = [read for read in facts.parts[0].reads if read.is_turned]
    return sum(pitch_of(tile.lines, read.bytes) * tile.columns * read.bytes for read in reads)


def _registers(facts: Facts, tile: Tile) -> Any:
    own = tile.lines * tile.columns // tile.threads
    item = max((read.bytes for read in facts.parts[0].reads), default=4)
    return _OTHER_REGISTERS + own * item / 4 + tile.vector * len(facts.parts[0].reads)
