"""What a CPU offers a kernel: vectors, registers, caches, cores."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from spaces.target import parse_target

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
# Where the system does not tell: what small server cores have.
_USUAL_BYTES = {1: 32 << 10, 2: 512 << 10, 3: 8 << 20}


@dataclass(frozen=True, slots=True)
class Cpu:
    """Limits of one CPU target.

    Attributes:
        vector_bytes: of the widest registers.
        registers: how many of these there are.
        cores: threads a kernel uses.
        l1_bytes: of data, per core; so is `l2_bytes`. `l3_bytes` is shared.
        vnni: whether it multiplies 8-bit integers four at a time (AVX-512 VNNI or AVX-VNNI).
    """

    vector_bytes: int
    registers: int
    cores: int
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    vnni: bool = False

    def lanes(self, bits: int) -> int:
        """Elements of a vector."""
        return self.vector_bytes * 8 // bits


@lru_cache(maxsize=16)
def cpu_of(target_json: str) -> Cpu:
    """The CPU of an llvm target; cache sizes are this machine's."""
    from spaces import names

    target = parse_target(target_json)
    cores = int(json.loads(target_json).get("num-cores", 1))
    if names.has_cpu_feature(target, "avx512f"):
        vector_bytes, registers = 64, 32
    elif names.has_cpu_feature(target, "avx"):
        vector_bytes, registers = 32, 16
    elif str(json.loads(target_json).get("mtriple", names.host_triple())).startswith("aarch64"):
        vector_bytes, registers = 16, 32
    else:
        vector_bytes, registers = 16, 16
    caches = _cache_bytes(_CACHES)
    return Cpu(
        vector_bytes=vector_bytes,
        registers=registers,
        cores=cores,
        l1_bytes=caches[1],
        l2_bytes=caches[2],
        l3_bytes=caches[3],
        vnni=any(names.has_cpu_feature(target, f) for f in ("avx512vnni", "avxvnni")),
    )


def _cache_bytes(folder: Path) -> dict[int, int]:
    """Bytes of the data caches by level, as the system tells them."""
    found = dict(_USUAL_BYTES)
    for index in sorted(folder.glob("index*")):
        try:
            level = int((index / "level").read_text())
            kind = (index / "type").read_text().strip()
            size = (index / "size").read_text().strip()
        except (OSError, ValueError):
            continue
        if kind != "Instruction" and level in found and size[-1:] in _UNITS:
            found[level] = int(size[:-1]) * _UNITS[size[-1]]
    return found
