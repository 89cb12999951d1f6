"""Resources of a CUDA device for a kernel: threads, registers, shared memory, multiprocessors."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from spaces.targets.config import Config
from spaces.targets.nvidia.numbers import Numbers, architecture_of, usual_numbers
from tuner.request.target_text import arithmetic_of

STATIC_SHARED_BYTES = 48 << 10
"""The most shared memory that a kernel may declare. More has to be dynamic, and asked for at the
launch, as TVM does for the scope `shared.dyn`."""
THREADS, WARP, REGISTERS = 1024, 32, 64 << 10
"""Of a block, on every device since sm_50."""
COPIES_AHEAD = 80
"""From this architecture on tensor cores multiply halves that were copied ahead (PTX ISA,
"cp.async")."""
HOPPER = 90
"""The architecture whose warpgroups multiply (PTX ISA, "wgmma")."""
_MOST_REGISTERS = 255
_RESIDENT_BLOCKS = ((110, 24), (90, 32), (89, 24), (86, 16), (80, 32), (75, 16), (0, 32))
"""The most blocks that share a multiprocessor, from these architectures on (CUDA C++ Programming
Guide, table "Technical Specifications per Compute Capability")."""
_GPC = 18
"""Multiprocessors of a GPC of Hopper, at most."""
_PARTS, _REGISTER_UNIT = 4, 8
"""Parts of a multiprocessor with registers of their own, and the unit in which these are given."""
_FEW_MADDS = (70, 75, 80)
_HALF_BITS = 16
_TENSOR_OPERATIONS = ((90, 4096), (80, 2048), (0, 1024))
"""Of a multiprocessor in a cycle, in float16, from these architectures on."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """Limits of one CUDA target.

    Attributes:
        warp: threads of a warp.
        threads: the most threads of a block; `registers` and `shared_bytes` are its most of these,
            as declared.
        dynamic_shared_bytes: its most shared memory where the launch asks for it.
        thread_registers: the most registers of one thread.
        numbers: the device's own.
        architecture: such as 90 for `sm_90`; 0 where it is not known.
        madds: multiply-adds in float32 that a multiprocessor starts in a cycle.
        tensor_operations: additions and products in halves that its tensor cores do in a cycle.
        resident_blocks: the most blocks that share a multiprocessor.
        tf32: whether float32 may be multiplied in TF32.
    """

    warp: int
    threads: int
    registers: int
    shared_bytes: int
    dynamic_shared_bytes: int
    numbers: Numbers
    thread_registers: int = _MOST_REGISTERS
    madds: int = 128
    tensor_operations: int = 1024
    architecture: int = 0
    resident_blocks: int = 32
    tf32: bool = False

    @property
    def multiprocessors(self) -> int:
        """Number of multiprocessors, which run blocks at the same time."""
        return self.numbers.multiprocessors

    @property
    def hertz(self) -> float:
        """Clock of the multiprocessors."""
        return self.numbers.megahertz * 1e6

    @property
    def memory_bytes_per_cycle(self) -> float:
        """Bytes that the device's memory moves in a cycle of the multiprocessors."""
        return self.numbers.gigabytes_per_s * 1e9 / self.hertz

    def count_tensor_operations(self, bits: int) -> float:
        """Additions and products that tensor cores do in a cycle with factors of so many bits:
        twice as many of 8 as of 16, half as many of TF32, which takes 32 (NVIDIA, "A100 Tensor Core
        GPU Architecture", "H100 Tensor Core GPU Architecture": peak rates)."""
        return self.tensor_operations * _HALF_BITS / bits

    @property
    def kept_shared_bytes(self) -> int:
        """Shared memory that the system keeps for itself of each block on a multiprocessor."""
        n = self.numbers
        return n.multiprocessor_shared_bytes - n.block_shared_bytes


def register_limit(gpu: Gpu, threads: Any) -> Any:
    """Registers that a thread may have, where warps are dealt to the parts of a multiprocessor; of
    one size of block, or of many as an array."""
    warps = -(-np.maximum(threads, 1) // gpu.warp)
    most = gpu.registers // (-(-warps // _PARTS) * _PARTS * gpu.warp)
    return np.minimum(gpu.thread_registers, most - most % _REGISTER_UNIT)


def count_resident(gpu: Gpu, shared_bytes: Any, registers: Any, threads: Any) -> Any:
    """The number of blocks that fit on one multiprocessor together; one at least.

    Registers are given to warps, in units, and warps to the parts of a multiprocessor (CUDA
    Occupancy Calculator).

    Args:
        shared_bytes: of a block; `registers` are a thread's, all of one block, or of many.
    """
    own_bytes = np.maximum(shared_bytes + gpu.kept_shared_bytes, 1)
    by_shared = gpu.numbers.multiprocessor_shared_bytes // own_bytes
    warps = -(-threads // gpu.warp)
    each = -(-np.maximum(registers, 1) // _REGISTER_UNIT) * _REGISTER_UNIT * gpu.warp
    by_registers = gpu.registers // each // _PARTS * _PARTS // warps
    by_threads = gpu.numbers.resident_threads // (warps * gpu.warp)
    found = np.minimum(np.minimum(by_shared, by_registers), by_threads)
    return np.clip(found, 1, gpu.resident_blocks)


def count_in_clusters(gpu: Gpu, blocks: Any) -> Any:
    """Multiprocessors of Hopper that clusters of so many blocks keep busy at once.

    The blocks of a cluster share one of a device's GPCs, of which none has more than 18
    multiprocessors (NVIDIA H100 Tensor Core GPU Architecture, "H100 GPU Hardware Architecture").
    Which of them lack some is not known: this supposes that one at most does.

    Args:
        blocks: a number, or many; at least one cluster is counted.
    """
    whole, rest = divmod(gpu.multiprocessors, _GPC)
    clusters = whole * (_GPC // blocks) + rest // blocks
    return (clusters + (clusters == 0)) * blocks


@lru_cache(maxsize=16)
def gpu_of(target_json: str) -> Gpu:
    """The device of a cuda target; limits that the target leaves out hold for every device."""
    config = json.loads(target_json)
    threads = config.get("max_threads_per_block", config.get("max_num_threads", THREADS))
    architecture = architecture_of(str(config.get("arch", "")))
    numbers = numbers_of(config)
    asked = int(config.get("max_shared_memory_per_block", STATIC_SHARED_BYTES))
    return Gpu(
        warp=int(config.get("thread_warp_size", WARP)),
        threads=int(threads),
        registers=int(config.get("registers_per_block", REGISTERS)),
        shared_bytes=min(asked, STATIC_SHARED_BYTES),
        dynamic_shared_bytes=max(asked, numbers.block_shared_bytes),
        numbers=numbers,
        madds=128 if has_many_madds(architecture) else 64,
        architecture=architecture,
        tensor_operations=_since(_TENSOR_OPERATIONS, architecture),
        resident_blocks=_since(_RESIDENT_BLOCKS, architecture),
        tf32=arithmetic_of(target_json).tf32,
    )


def has_many_madds(architecture: int) -> bool:
    """Whether a multiprocessor starts as many multiply-adds in float32 as instructions in a cycle,
    and not half as many."""
    return architecture not in _FEW_MADDS


def _since(rows: Sequence[tuple[int, int]], architecture: int) -> int:
    """The number of the first row that an architecture is not before."""
    return next(number for least, number in rows if architecture >= least)


def numbers_of(config: Config) -> Numbers:
    """The numbers that a cuda target states, and the usual ones of its architecture where it does
    not."""
    usual = usual_numbers(architecture_of(str(config.get("arch", ""))))
    stated = usual.updated(str(config.get("model", "")))
    l2_bytes = int(config.get("l2_cache_size_bytes", usual.l2_bytes))
    return stated.with_l2(l2_bytes)
