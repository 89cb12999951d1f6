"""Knobs of a program bound by memory on a GPU: their values, the limits they keep, and what they
are estimated to cost.

A program takes as long as the device's memory moves its tensors, if enough is under way to keep it
busy: threads of a multiprocessor times what each has loaded and not yet used. What is read again
comes from the L2 cache. Rounds of blocks wait for memory once for each stage that reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from spaces.targets.gpu import WARP, Gpu, count_resident, register_limit
from spaces.templates import gpu_rates as rates
from spaces.templates.base import as_rows
from spaces.templates.gpu_memory.facts import Extents, Facts, PartFacts
from spaces.templates.gpu_memory.program import Walk
from spaces.templates.gpu_memory.rows.setting import (
    AGAIN,
    HELD,
    ITEM_THREADS,
    LANE_THREADS,
    REGISTERS,
    SHARED,
    UNROLL,
    VECTOR,
    Setting,
)

_MOST_HELD, _MOST_UNROLLED = 96, 64
"""Registers of a thread for what is held, and elements that it goes through without a loop."""
_OTHER_REGISTERS = 26


def choices_of(facts: Facts) -> dict[str, tuple[int, ...]]:
    """Values of each knob."""
    lanes: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
    items: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64, 128)
    if facts.walk is Walk.FLAT:
        lanes, items = (32, 64, 128, 256, 512, 1024), (1,)
    elif facts.walk is Walk.COLUMNS:
        lanes, items = (1, 2, 4, 8, 16, 32, 64), (4, 8, 16, 32, 64, 128, 256)
    held: tuple[int, ...] = (AGAIN, REGISTERS, SHARED) if facts.shared_bytes else (AGAIN,)
    return {
        LANE_THREADS: lanes,
        ITEM_THREADS: items,
        VECTOR: facts.vectors,
        HELD: held,
        UNROLL: (1, 2, 4, 8),
    }


def count_held(facts: Facts, largest: Extents, setting: Setting) -> Any:
    """Vectors that a thread holds of each tensor that several stages read.

    Args:
        largest: the sizes of the largest shape; where longer items come, the rest is read again.
    """
    shared = [n for n, part in enumerate(facts.parts) if any(r.is_shared for r in part.reads)]
    most: Any = 0
    for number in shared:
        width = _width(facts, largest, number, setting.vector)
        most = np.maximum(most, rates.ceil(largest.lanes[number], setting.lane_threads * width))
    return np.where(np.asarray(setting.held) == AGAIN, 0, most)


def feasible(facts: Facts, largest: Extents, gpu: Gpu, s: Setting) -> npt.NDArray[np.bool_]:
    """Whether each setting keeps to the limits of the hardware, whatever the shape, and gives a
    program that no other one gives."""
    held = count_held(facts, largest, s)
    good = (s.threads <= gpu.threads) & (s.threads % WARP == 0)
    good &= held * s.vector <= _MOST_UNROLLED
    good &= (s.held != REGISTERS) | (held * s.vector * facts.shared_bytes <= 4 * _MOST_HELD)
    good &= _registers(facts, s, held) <= register_limit(gpu, s.threads)
    good &= _shared_bytes(facts, s, held) <= gpu.shared_bytes
    good &= (s.held == AGAIN) | (s.unroll == 1)
    good &= s.unroll * s.vector <= _MOST_UNROLLED // 2
    if not facts.is_symbolic and facts.walk is not Walk.FLAT:
        steps = np.max([_steps(facts, largest, n, s) for n in range(len(facts.parts))], axis=0)
        good &= s.unroll <= np.maximum(steps, 1)
    return np.asarray(good, dtype=np.bool_)


@dataclass(frozen=True, slots=True)
class Estimate:
    """The parts of an analytic estimate, each an array over settings or over shapes.

    Attributes:
        streaming: cycles in which memory moves the tensors, at the rate that is kept up.
        issuing: cycles in which multiprocessors issue instructions.
        waiting: cycles of rounds of blocks, one after another.
        blocks: blocks of the grid; `rounds` those of them over the multiprocessors.
        resident: blocks that share a multiprocessor.
        steps: steps of a thread in the longest stage.
        idle: threads for each one that has something to do.
        again: bytes read again, for each that is moved once.
        cycles: total cycles of the program.
    """

    streaming: Any
    issuing: Any
    waiting: Any
    blocks: Any
    rounds: Any
    resident: Any
    steps: Any
    idle: Any
    again: Any
    cycles: Any


def estimate(facts: Facts, extents: Extents, largest: Extents, gpu: Gpu, s: Setting) -> Estimate:
    """Estimate the slowest of memory, instructions and waiting."""
    held = count_held(facts, largest, s)
    numbers = range(len(facts.parts))
    steps = [_steps(facts, extents, n, s) for n in numbers]
    blocks = np.maximum(_blocks(facts, extents, s), 1)
    registers, shared = _registers(facts, s, held), _shared_bytes(facts, s, held)
    fitting = count_resident(gpu, shared, registers, s.threads)
    rounds = rates.ceil(blocks, gpu.multiprocessors * fitting)
    busy = np.minimum(blocks, gpu.multiprocessors)
    resident = np.minimum(fitting, np.maximum(rates.ceil(blocks, gpu.multiprocessors), 1))
    ahead = np.maximum(np.minimum(s.unroll, np.max(steps, axis=0)), np.minimum(held, steps[0]))
    used = _share_used(facts, extents, s)
    first = max((r.bytes for part in facts.parts for r in part.reads), default=4)
    under_way = resident * s.threads * used * ahead * s.vector * first
    rate = np.minimum(under_way / rates.LATENCY, rates.LOADED_BYTES) * busy
    memory = gpu.memory_bytes_per_cycle
    again, wasted = _again(facts, extents, s, held), _wasted(facts, extents, s)
    streaming = extents.tensors / np.minimum(rate, memory)
    streaming = streaming + (again + wasted) / np.minimum(rate, memory * rates.L2_RATE)
    streaming = streaming * (1 + rates.IN_STEP / fitting)
    issuing = sum(_issues(facts, extents, n, s) for n in numbers) / used / (rates.ISSUED * busy)
    chain = rates.BLOCK_CYCLES + sum(_chain(facts, n, s, steps[n], held) for n in numbers)
    started = blocks / busy * rates.START_CYCLES
    waiting = rounds * chain + started + _count_code(facts, s, held) * rates.CODE_CYCLES
    cycles = rates.LAUNCH_CYCLES + rates.overlap(streaming, issuing, waiting)
    return Estimate(
        streaming,
        issuing,
        waiting,
        blocks,
        rounds,
        resident,
        np.max(steps, axis=0),
        1 / used,
        again / np.maximum(extents.tensors, 1),
        cycles,
    )


def traits(
    facts: Facts, extents: Extents, largest: Extents, gpu: Gpu, s: Setting
) -> npt.NDArray[np.float32]:
    """Features of settings for a cost model; the same columns for every program."""
    e, held = estimate(facts, extents, largest, gpu, s), count_held(facts, largest, s)
    last = facts.parts[-1]
    found = [
        np.log2(s.threads),
        np.log2(s.vector * first_bytes(facts)),
        _registers(facts, s, held) * s.threads / gpu.registers,
        _shared_bytes(facts, s, held) / gpu.shared_bytes,
        np.log2(e.streaming / e.cycles),
        np.log2(e.issuing / e.cycles),
        np.log2(e.waiting / e.cycles),
        np.log2(e.blocks),
        np.log2(e.rounds),
        np.log2(e.resident),
        np.log2(np.maximum(e.steps, 1)),
        np.log2(e.idle),
        np.log2(1 + e.again),
        np.log2(1 + held),
        np.log2(np.maximum(extents.items, 1)),
        np.log2(np.maximum(np.max(extents.lanes, axis=0), 1)),
        np.log2(np.maximum(extents.tensors, 1)),
        len(facts.parts),
        sum(part.heavy for part in facts.parts),
        [*Walk].index(facts.walk),
        last.out_bytes,
    ]
    return as_rows(found, np.shape(e.cycles))


def first_bytes(facts: Facts) -> int:
    """Bytes of the widest element that is read."""
    return max((r.bytes for part in facts.parts for r in part.reads), default=4)


def _whole(extents: Extents, vector: Any) -> Any:
    """Elements of a vector in a shape: one where its sizes are no multiples."""
    return np.where(extents.open % vector == 0, vector, 1)


def _width(facts: Facts, extents: Extents, number: int, vector: Any) -> Any:
    """Elements of a vector that lie along the places of a part."""
    if facts.walk is Walk.COLUMNS:
        return 1
    whole = _whole(extents, vector)
    return np.where(extents.lane_near[number] % whole == 0, whole, 1)


def _steps(facts: Facts, extents: Extents, number: int, s: Setting) -> Any:
    """Steps of a thread."""
    if facts.walk is Walk.FLAT:
        return s.unroll
    width = _width(facts, extents, number, s.vector)
    return rates.ceil(extents.lanes[number], width * s.lane_threads)


def _blocks(facts: Facts, extents: Extents, s: Setting) -> Any:
    if facts.walk is Walk.FLAT:
        width = _width(facts, extents, 0, s.vector)
        return rates.ceil(extents.lanes[0], width * s.lane_threads * s.unroll)
    each = _whole(extents, s.vector) if facts.walk is Walk.COLUMNS else 1
    return rates.ceil(extents.items, each * s.item_threads)


def _share_used(facts: Facts, extents: Extents, s: Setting) -> Any:
    """The share of threads that have something to do, on average."""
    blocks = np.maximum(_blocks(facts, extents, s), 1)
    if facts.walk is Walk.FLAT:
        width = _width(facts, extents, 0, s.vector)
        return extents.lanes[0] / (blocks * s.lane_threads * s.unroll * width) + 1e-6
    each = _whole(extents, s.vector) if facts.walk is Walk.COLUMNS else 1
    items = extents.items / (blocks * s.item_threads * each)
    long = int(np.argmax([np.max(lanes) for lanes in extents.lanes]))
    width = _width(facts, extents, long, s.vector)
    steps = np.maximum(_steps(facts, extents, long, s), 1)
    return items * extents.lanes[long] / (steps * s.lane_threads * width) + 1e-6


def _registers(facts: Facts, s: Setting, held: Any) -> Any:
    """Estimated registers of a thread."""
    own: Any = 0
    for part in facts.parts:
        each = sum(r.bytes * np.where(r.growth == 0, 1, s.vector) for r in part.reads)
        own = np.maximum(own, s.unroll * each / 4 + 2 * s.unroll + s.vector)
    sums = s.vector if facts.walk is Walk.COLUMNS else 1
    sums = sums * sum(part.reduces for part in facts.parts)
    kept = np.where(s.held == REGISTERS, held * s.vector * facts.shared_bytes / 4, 0)
    return _OTHER_REGISTERS + own + sums + kept


def _shared_bytes(facts: Facts, s: Setting, held: Any) -> Any:
    sums = sum(part.reduces for part in facts.parts)
    if facts.walk is Walk.COLUMNS:
        own = np.where(s.lane_threads > 1, s.threads * s.vector * 4, 0) * sums
    else:
        own = np.where(s.lane_threads > WARP, s.threads // WARP * 4, 0) * sums
    kept = held * s.vector * s.threads * facts.shared_bytes
    return own + np.where(s.held == SHARED, kept, 0)


def _again(facts: Facts, extents: Extents, s: Setting, held: Any) -> Any:
    """Bytes that stages read again."""
    total: Any = 0.0
    for number, part in enumerate(facts.parts):
        points = extents.items * 1.0 * extents.lanes[number]
        left = np.maximum(_steps(facts, extents, number, s) - held, 0)
        share = left / np.maximum(_steps(facts, extents, number, s), 1)
        total = total + sum(
            points * r.bytes * share for r in part.reads if not r.is_first and r.growth != 0
        )
    return total


def _wasted(facts: Facts, extents: Extents, s: Setting) -> Any:
    """Bytes of memory's sectors beside those that threads read of them."""
    total: Any = 0.0
    in_order = s.item_threads if facts.walk is Walk.COLUMNS else s.lane_threads
    for number, part in enumerate(facts.parts):
        points = extents.items * 1.0 * extents.lanes[number]
        for read in part.reads:
            if read.growth == 0:
                continue
            run = np.where(read.growth == 1, in_order * s.vector, 1) * read.bytes
            waste = np.maximum(rates.SECTOR_BYTES / np.minimum(run, rates.SECTOR_BYTES) - 1, 0)
            total = total + points * read.bytes * waste * (1.0 if read.growth != 1 else 0.25)
    return total


def _count_code(facts: Facts, s: Setting, held: Any) -> Any:
    """Instructions of the whole program."""
    total: Any = 0.0
    for part in facts.parts:
        is_held = any(r.is_shared for r in part.reads)
        elements = s.vector * (np.maximum(held, s.unroll) if is_held else s.unroll)
        total = total + elements * (rates.ELEMENT_ISSUES + rates.HEAVY_ISSUES * part.heavy)
    return total


def _issues(facts: Facts, extents: Extents, number: int, s: Setting) -> Any:
    """Instructions of all threads in a part."""
    part = facts.parts[number]
    points = extents.items * 1.0 * extents.lanes[number]
    accesses = sum(1 / _access(part, r.widths, s, extents) for r in part.reads) + part.others
    if part.out_bytes and not part.reduces:
        accesses = accesses + 1 / _access(part, part.widths, s, extents)
    each = rates.ELEMENT_ISSUES + rates.HEAVY_ISSUES * part.heavy + rates.ACCESS_ISSUES * accesses
    return points * each


def _access(part: PartFacts, widths: Any, s: Setting, extents: Extents) -> Any:
    """Elements of an access."""
    found: Any = 1
    for vector, width in widths.items():
        found = np.where(_whole(extents, s.vector) == vector, width, found)
    return found


def _chain(facts: Facts, number: int, s: Setting, steps: Any, held: Any) -> Any:
    """Cycles of a block in a part, where nothing else runs."""
    part = facts.parts[number]
    is_held = any(r.is_shared for r in part.reads)
    is_first = any(r.is_first for r in part.reads)
    kept = np.minimum(held, steps) if is_held else 0
    left = rates.ceil(steps - kept, s.unroll)
    latency = rates.LATENCY if is_first else rates.L2_LATENCY
    near = np.where(s.held == SHARED, rates.SHARED_LATENCY, 4.0) * kept
    wait = left * latency + np.where(kept > 0, near + (rates.LATENCY if is_first else 0.0), 0.0)
    if not part.reduces:
        return wait if part.reads or part.others else wait * 0 + 20.0
    if facts.walk is Walk.COLUMNS:
        return wait + rates.MEET * np.log2(s.lane_threads)
    within = np.minimum(s.lane_threads, WARP)
    across = np.maximum(s.lane_threads // WARP, 1)
    return wait + rates.SHUFFLE * np.log2(within * across) + np.where(across > 1, rates.MEET, 0)
