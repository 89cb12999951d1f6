"""What parts of a GPU take for one thing, in cycles of a multiprocessor; only ratios matter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

LATENCY, L2_LATENCY, SHARED_LATENCY = 800.0, 300.0, 40.0
"""Cycles from a load to its use: from the device's memory, the L2 cache, shared memory."""
SHUFFLE, MEET = 30.0, 60.0
"""Cycles of a step of a sum within a warp, and of threads of a block that wait for each other."""
LAUNCH_CYCLES, BLOCK_CYCLES, START_CYCLES = 3000.0, 400.0, 30.0
"""Cycles of a launch, of a block with nothing to do, and from the start of a block to that of the
next on a multiprocessor."""
IN_STEP = 0.3
"""The share of memory's time that is lost where a multiprocessor has one block, whose threads wait
and compute at the same times."""
SECTOR_BYTES, LINE_BYTES = 32, 128
"""Bytes that memory moves at least, and a run of which it moves at its full rate."""
LOADED_BYTES = 64.0
"""Bytes that a multiprocessor takes in a cycle."""
L2_RATE = 2.5
"""The rate of the L2 cache, as times the rate of the device's memory."""
BLOCKS = 32
"""The most blocks that share a multiprocessor."""
ISSUED = 128.0
"""Instructions of threads that a multiprocessor issues in a cycle."""
ELEMENT_ISSUES, ACCESS_ISSUES, HEAVY_ISSUES = 2.0, 6.0, 14.0
"""Instructions for an element, for an access, and for an operation that takes long."""
CODE_CYCLES = 0.5
"""Cycles in which an instruction is fetched for the first time."""
_ALONE = 0.1
"""The share of shorter times that does not overlap with the longest."""


def ceil(number: Any, by: Any) -> Any:
    """A quotient, rounded up."""
    return -(-number // by)


def overlap(*cycles: Any) -> Any:
    """Cycles of a launch whose parts overlap."""
    longest: Any = 0.0
    for each in cycles:
        longest = np.maximum(longest, each)
    return LAUNCH_CYCLES + longest + _ALONE * (sum(cycles) - longest)


def as_rows(columns: Sequence[Any], shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """Features as one row for each setting or shape."""
    return np.stack([np.broadcast_to(c, shape) for c in columns], axis=1).astype(np.float32)
