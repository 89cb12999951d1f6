"""Resources of a CPU for a kernel: vectors, registers, caches, cores."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from spaces.targets.cpu_caches import caches_of
from spaces.targets.host import this_host

GROUP = 4
"""Products of bytes that VNNI adds up in a lane at once."""


@dataclass(frozen=True, slots=True)
class Cpu:
    """Limits of one CPU target.

    Attributes:
        vector_bytes: size of the widest vector registers.
        registers: number of these registers.
        cores: threads that a kernel uses.
        l1_bytes: size of a core's L1 data cache; `l2_bytes` is per core too, `l3_bytes` is shared.
        vnni: whether it multiplies 8-bit integers four at a time (AVX-512 VNNI or AVX-VNNI).
        dots_bf16: whether it multiplies bfloat16 two at a time (AVX512-BF16).
    """

    vector_bytes: int
    registers: int
    cores: int
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    vnni: bool = False
    dots_bf16: bool = False

    def lanes(self, bits: int) -> int:
        """Elements of a vector."""
        return self.vector_bytes * 8 // bits


@lru_cache(maxsize=16)
def cpu_of(target_json: str) -> Cpu:
    """The CPU of an llvm target; where the target names no caches, they are this machine's."""
    from tvm.target import Target

    from spaces.ir import tvm_compat

    config = json.loads(target_json)
    target = Target(config)
    if tvm_compat.has_cpu_feature(target, "avx512f"):
        vector_bytes, registers = 64, 32
    elif tvm_compat.has_cpu_feature(target, "avx"):
        vector_bytes, registers = 32, 16
    elif str(config.get("mtriple", tvm_compat.host_triple())).startswith("aarch64"):
        vector_bytes, registers = 16, 32
    else:
        vector_bytes, registers = 16, 16
    caches = caches_of(str(config.get("model", ""))) or this_host().caches
    return Cpu(
        vector_bytes=vector_bytes,
        registers=registers,
        cores=int(config.get("num-cores", 1)),
        l1_bytes=caches[1],
        l2_bytes=caches[2],
        l3_bytes=caches[3],
        vnni=multiplies_bytes(target),
        dots_bf16=multiplies_bf16(target),
    )


def multiplies_bytes(target: Any) -> bool:
    """Whether an llvm target has VNNI instructions for its widest vectors and for the narrowest."""
    from spaces.ir import tvm_compat

    widest, wide, narrow, other = (
        tvm_compat.has_cpu_feature(target, feature)
        for feature in ("avx512f", "avx512vnni", "avx512vl", "avxvnni")
    )
    if widest:
        return wide and (narrow or other)
    return other or (wide and narrow)


def multiplies_bf16(target: Any) -> bool:
    """Whether an llvm target has AVX512-BF16, for vectors of any width."""
    from spaces.ir import tvm_compat

    wanted = ("avx512f", "avx512bf16", "avx512vl")
    return all(tvm_compat.has_cpu_feature(target, feature) for feature in wanted)


def same_but_for_caches(one: str, other: str) -> bool:
    """Whether two llvm targets have the same vectors, registers and threads. Schedules of products
    of bfloat16 compile without instructions for these, too (`spaces.passes.bf16.dots`)."""
    return _without_caches(cpu_of(one)) == _without_caches(cpu_of(other))


def _without_caches(cpu: Cpu) -> Cpu:
    return replace(cpu, l1_bytes=0, l2_bytes=0, l3_bytes=0, dots_bf16=False)
