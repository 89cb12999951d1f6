"""A check of schedules for a GPU that knows a kernel's threads, and nothing else."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ThreadLimit:
    """Refuses schedules that want more threads in a block than a device has; used as one of TVM's
    post-processors, where those that lower a program refuse too much."""

    most: int

    def apply(self, schedule: Any) -> bool:
        """Whether a schedule's kernels have no more threads than that."""
        return all(
            math.prod(extents.values()) <= self.most
            for extents in map(_threads, schedule.mod.functions.values())
        )


def _threads(function: Any) -> dict[str, int]:
    """The most threads along each axis, by its tag."""
    import tvm_ffi
    from tvm.tirx import For, IntImm

    found: dict[str, int] = {}

    def visit(loop: Any) -> None:
        tag = str(loop.thread_binding.thread_tag) if loop.thread_binding is not None else ""
        if tag.startswith("threadIdx") and isinstance(loop.extent, IntImm):
            found[tag] = max(found.get(tag, 1), int(loop.extent))

    tvm_ffi.structural_walk(function.body, (For, visit))
    return found
