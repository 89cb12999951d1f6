"""A GPU's own numbers: what costs and occupancy depend on, and a TVM target has no options for.

They are read from the driver where there is a device, and taken from a table where there is none,
and travel in the target's `model`, which is free text to TVM: workers without a device estimate for
the one that will measure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace

_WORDS = {
    "multiprocessors": "sms",
    "multiprocessor_shared_bytes": "sm-smem",
    "block_shared_bytes": "block-smem",
    "resident_threads": "sm-threads",
    "megahertz": "mhz",
    "gigabytes_per_s": "gbps",
}
"""The numbers that go into the text, each with its word. The L2 cache is an option of targets."""
_KIB, _MIB = 1 << 10, 1 << 20


@dataclass(frozen=True, slots=True)
class Numbers:
    """What one device has.

    Attributes:
        multiprocessors: number of multiprocessors, which run blocks at the same time.
        l2_bytes: size of the L2 cache.
        multiprocessor_shared_bytes: shared memory of all blocks that share a multiprocessor.
        block_shared_bytes: the most dynamic shared memory of a block, which the launch asks for;
            a kernel may declare 48 KiB at most.
        resident_threads: the most threads of all blocks that share a multiprocessor.
        megahertz: the highest clock of the multiprocessors.
        gigabytes_per_s: the rate of its memory, in 10^9 bytes.
    """

    multiprocessors: int
    l2_bytes: int
    multiprocessor_shared_bytes: int
    block_shared_bytes: int
    resident_threads: int
    megahertz: int
    gigabytes_per_s: int

    def to_text(self) -> str:
        """The numbers, the L2 cache aside, as the `model` of a target."""
        return " ".join(f"{word}={getattr(self, name)}" for name, word in _WORDS.items())

    def updated(self, text: str) -> Numbers:
        """These numbers, those replaced that a `model` states."""
        said = dict(re.findall(r"([a-z0-9-]+)=(\d+)", text))
        found = {name: int(said[word]) for name, word in _WORDS.items() if int(said.get(word, 0))}
        return replace(self, **found)

    def with_l2(self, l2_bytes: int) -> Numbers:
        """These numbers with an L2 cache of another size."""
        return replace(self, l2_bytes=l2_bytes)

    def or_else(self, other: Numbers) -> Numbers:
        """These numbers, and the other's where one of these is 0, which stands for unknown."""
        known = {f.name: getattr(self, f.name) or getattr(other, f.name) for f in fields(self)}
        return Numbers(**known)


def _of(
    sms: int, l2_mib: float, shared_kib: int, threads: int, mhz: int, gbps: int, own_kib: int = 1
) -> Numbers:
    """A line of the table.

    Args:
        own_kib: shared memory of each block that the system keeps.
    """
    block_kib = shared_kib - own_kib
    return Numbers(sms, int(l2_mib * _MIB), shared_kib * _KIB, block_kib * _KIB, threads, mhz, gbps)


_BY_ARCHITECTURE = {
    70: _of(80, 6, 96, 2048, 1530, 898, own_kib=0),  # V100 SXM2
    75: _of(40, 4, 64, 1024, 1590, 320, own_kib=0),  # T4
    80: _of(108, 40, 164, 2048, 1410, 1555),  # A100 SXM, 40 GB
    86: _of(82, 6, 100, 1536, 1695, 936),  # RTX 3090
    89: _of(128, 72, 100, 1536, 2520, 1008),  # RTX 4090
    90: _of(132, 50, 228, 2048, 1980, 3352),  # H100 SXM
    100: _of(148, 126, 228, 2048, 1965, 7672),  # B200
    120: _of(170, 96, 100, 1536, 2407, 1792),  # RTX 5090
}
"""The usual data centre or desktop part of each architecture (NVIDIA's data sheets; the limits of a
multiprocessor: CUDA C++ Programming Guide, table "Technical Specifications per Compute
Capability")."""
_BY_NAME = {
    "a10": _of(72, 6, 100, 1536, 1695, 600),
    "a10g": _of(80, 6, 100, 1536, 1710, 600),
    "a30": _of(56, 24, 164, 2048, 1440, 933),
    "a40": _of(84, 6, 100, 1536, 1740, 696),
}
"""Others that TVM has tags of, by the last word of the tag."""
_USUAL = _of(80, 4, 64, 2048, 1500, 900, own_kib=0)


def usual_numbers(architecture: int) -> Numbers:
    """The numbers of a device that is not here, by its architecture, such as 90 for `sm_90`; of one
    that is unknown they are middling."""
    return _BY_ARCHITECTURE.get(architecture, _USUAL)


def numbers_of_tag(tag: str) -> Numbers | None:
    """The numbers of a device that one of TVM's tags names; None where the usual ones of its
    architecture are its own, and of a tag that is unknown."""
    return _BY_NAME.get(re.split(r"[/-]", tag)[-1])


def architecture_of(arch: str) -> int:
    """The number of an architecture such as `sm_90a`; 0 where there is none."""
    digits = re.search(r"\d+", arch)
    return int(digits[0]) if digits else 0
