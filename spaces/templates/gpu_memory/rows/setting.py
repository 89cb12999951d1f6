"""The sizes of a kernel that follow from the knobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LANE_THREADS, ITEM_THREADS = "lane_threads", "item_threads"
VECTOR, HELD, UNROLL = "vector", "held", "unroll"

AGAIN, REGISTERS, SHARED = 0, 1, 2
"""Values of `HELD`: where elements are that several stages read."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting, or many as arrays.

    Attributes:
        lane_threads: threads that share out the places of an item.
        item_threads: items of a block; of columns so many vectors.
        vector: elements of a vector.
        held: where elements are that several stages read: in the device's memory, in registers, or
            in shared memory.
        unroll: vectors that a thread loads before it computes.
    """

    lane_threads: Any
    item_threads: Any
    vector: Any
    held: Any
    unroll: Any

    @property
    def threads(self) -> Any:
        """Threads of a block."""
        return self.lane_threads * self.item_threads


def setting_of(knobs: Mapping[str, Any]) -> Setting:
    """The sizes of a setting, or of many."""
    names = (LANE_THREADS, ITEM_THREADS, VECTOR, HELD, UNROLL)
    return Setting(*(knobs[name] for name in names))
