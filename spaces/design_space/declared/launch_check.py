"""A check of schedules for a GPU that also knows shared memory that is reserved at launch."""

from __future__ import annotations

import math
from typing import Any

_AT_LAUNCH = "shared.dyn"


class LaunchCheck:
    """Refuses schedules that want more than a device has; used as one of TVM's post-processors.

    TVM's own check takes shared memory that is reserved at launch, as for tensor cores, for static,
    and refuses schedules that run: of these only the threads are counted.

    Args:
        context: TVM's tune context of the program.
        most_threads: in a block.
    """

    def __init__(self, context: Any, most_threads: int) -> None:
        from tvm.s_tir.meta_schedule import postproc

        self._verify = postproc.VerifyGPUCode()
        self._verify._initialize_with_tune_context(context)
        self._most_threads = most_threads

    def apply(self, schedule: Any) -> bool:
        """Whether a device takes a schedule's kernels."""
        functions = list(schedule.mod.functions.values())
        if any(map(_reserves, functions)):
            return all(math.prod(_threads(f).values()) <= self._most_threads for f in functions)
        return bool(self._verify.apply(schedule))


def _reserves(function: Any) -> bool:
    """Whether a function has buffers in shared memory that is reserved at launch."""
    import tvm_ffi
    from tvm.s_tir import SBlock

    found = False

    def visit(block: Any) -> None:
        nonlocal found
        found |= any(buffer.scope() == _AT_LAUNCH for buffer in block.alloc_buffers)

    tvm_ffi.structural_walk(function.body, (SBlock, visit))
    return found


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
