"""Resources of a CUDA device for a kernel: threads, registers, shared memory, multiprocessors."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import lru_cache

_STATIC_SHARED = 48 << 10
"""Bytes of shared memory that a kernel may declare; more has to be asked for at launch, which these
kernels do not do."""
_MOST_REGISTERS = 255
_USUAL = 80
# Those of the usual data centre or desktop part of each architecture. A target does not tell, and
# asking a device would rank settings differently on a machine that has none.
_MULTIPROCESSORS = {70: 80, 75: 40, 80: 108, 86: 82, 89: 128, 90: 132, 100: 148, 120: 170}
_FEW_MADDS = (70, 75, 80)


@dataclass(frozen=True, slots=True)
class Gpu:
    """Limits of one CUDA target.

    Attributes:
        warp: threads of a warp.
        threads: the most threads of a block; `registers` and `shared_bytes` are its most of these.
        thread_registers: the most registers of one thread.
        multiprocessors: number of multiprocessors, which run blocks at the same time.
        resident_threads: the most threads of all blocks that share a multiprocessor.
        madds: multiply-adds in float32 that a multiprocessor starts in a cycle.
    """

    warp: int
    threads: int
    registers: int
    shared_bytes: int
    multiprocessors: int
    thread_registers: int = _MOST_REGISTERS
    resident_threads: int = 2048
    madds: int = 128


@lru_cache(maxsize=16)
def gpu_of(target_json: str) -> Gpu:
    """The device of a cuda target; limits that the target leaves out hold for every device."""
    config = json.loads(target_json)
    threads = config.get("max_threads_per_block", config.get("max_num_threads", 1024))
    digits = re.search(r"\d+", str(config.get("arch", "")))
    arch = int(digits[0]) if digits else 0
    return Gpu(
        warp=int(config.get("thread_warp_size", 32)),
        threads=int(threads),
        registers=int(config.get("registers_per_block", 65536)),
        shared_bytes=min(
            int(config.get("max_shared_memory_per_block", _STATIC_SHARED)), _STATIC_SHARED
        ),
        multiprocessors=_MULTIPROCESSORS.get(arch, _USUAL),
        resident_threads=1024 if arch == 75 else 1536 if arch in (86, 89, 120) else 2048,
        madds=64 if arch in _FEW_MADDS else 128,
    )
