"""What parts of a GPU take for one thing, in cycles of a multiprocessor; only ratios matter."""

from __future__ import annotations

from typing import Any

import numpy as np

from spaces.targets.gpu import Gpu

LATENCY, L2_LATENCY, SHARED_LATENCY = 800.0, 300.0, 40.0
"""Cycles from a load to its use: from the device's memory, the L2 cache, shared memory."""
FILL_CYCLES = 1200.0
"""Until a stage of shared memory is there that copies fill."""
SHUFFLE, MEET = 30.0, 60.0
"""Cycles of a step of a sum within a warp, and of threads of a block that wait for each other."""
LAUNCH_CYCLES, NEXT_LAUNCH_CYCLES, BLOCK_CYCLES, START_CYCLES = 3000.0, 2000.0, 400.0, 30.0
"""Cycles of a launch, of one behind another, of a block with nothing to do, and from the start of a
block to that of the next on a multiprocessor."""
IN_STEP = 0.3
"""The share of memory's time that is lost where a multiprocessor has one block, whose threads wait
and compute at the same times."""
SECTOR_BYTES, LINE_BYTES = 32, 128
"""Bytes that memory moves at least, and a run of which it moves at its full rate."""
L2_BYTES, SHARED_BYTES = 48.0, 128.0
"""Bytes that a multiprocessor reads in a cycle: from the L2 cache, and from its own memory."""
STORED_BYTES = 32.0
"""Bytes of results that a multiprocessor stores in a cycle."""
LOADED_BYTES = 64.0
"""Bytes that a multiprocessor takes in a cycle."""
L2_RATE = 2.5
"""The rate of the L2 cache, as times the rate of the device's memory."""
MOST_LEFT_BYTES = 1 << 30
"""The most memory in which blocks leave sums for others."""
ISSUED = 128.0
"""Instructions of threads that a multiprocessor issues in a cycle."""
ELEMENT_ISSUES, ACCESS_ISSUES, HEAVY_ISSUES = 2.0, 6.0, 14.0
"""Instructions for an element, for an access, and for an operation that takes long."""
UNPACK_ISSUES = 5.0
"""Instructions for an element that is made of a code and a scale."""
WINDOW_ISSUES = 14.0
"""Instructions that tell where in a window something is, and whether it is in the tensor."""
CODE_CYCLES = 0.5
"""Cycles in which an instruction is fetched for the first time."""
ALONE = 0.1
"""The share of shorter times that does not overlap with the longest."""


def ceil(number: Any, by: Any) -> Any:
    """A quotient, rounded up."""
    return -(-number // by)


def estimate_joining(gpu: Gpu, left_bytes: Any) -> Any:
    """Cycles of a second kernel, which joins what blocks have left in the device's memory, or in
    the L2 cache if it holds that; none where there is nothing."""
    near = L2_BYTES * gpu.multiprocessors
    rate = np.where(left_bytes <= gpu.numbers.l2_bytes, near, gpu.memory_bytes_per_cycle)
    return np.where(left_bytes > 0, NEXT_LAUNCH_CYCLES + 2 * left_bytes / rate, 0.0)


def count_left_bytes(splits: Any, share_bytes: Any) -> Any:
    """What blocks leave in the device's memory: so many bytes for each of their shares, and none
    where there is one share."""
    return np.where(splits > 1, 1.0 * share_bytes * splits, 0.0)


def overlap(*cycles: Any) -> Any:
    """Cycles of what overlaps but for a part of the shorter ones."""
    longest: Any = 0.0
    for each in cycles:
        longest = np.maximum(longest, each)
    return longest + ALONE * (sum(cycles) - longest)
