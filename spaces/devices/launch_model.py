"""A model of the time that a CUDA device takes for a launch, from what its threads do.

It ranks kernels that differ in how much they compute, read and wait; it is no measurement, and was
fitted to none.
"""

from __future__ import annotations

from spaces.emulation.library import Launch
from spaces.targets.gpu import count_resident, gpu_of

_LAUNCH_S = 3e-6
_SHARED_BYTES_PER_CYCLE = 128
"""Of a multiprocessor."""
_L2_OVER_DRAM = 2.5
"""The bandwidth of the L2 cache, in that of the device's memory: what blocks read twice comes from
there, and the model does not know what does."""
_BARRIER_CYCLES = 30
_HIDING_WARPS = 8
"""Warps that a multiprocessor needs to be busy while others wait."""


def launch_s(launch: Launch, target: str) -> float:
    """Seconds of a launch on the device of a target, by the model.

    Args:
        target: as JSON.
    """
    gpu = gpu_of(target)
    # Registers are not known.
    resident = int(count_resident(gpu, launch.block_shared_bytes, 1, launch.threads))
    # The multiprocessor with the most blocks is done last.
    share = -(-launch.blocks // gpu.multiprocessors) / launch.blocks
    warps = min(resident, launch.blocks * share) * -(-launch.threads // gpu.warp)
    busy = max(
        launch.operations / 2 / gpu.madds * share,
        launch.shared_bytes / _SHARED_BYTES_PER_CYCLE * share,
        launch.tensor_operations / gpu.tensor_operations * share,
    )
    memory = launch.global_bytes / (gpu.memory_bytes_per_cycle * _L2_OVER_DRAM)
    waiting = launch.barriers * share * _BARRIER_CYCLES / resident
    cycles = max(busy * max(1.0, _HIDING_WARPS / warps), memory) + waiting
    return _LAUNCH_S + cycles / gpu.hertz
